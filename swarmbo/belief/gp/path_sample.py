"""Functions drawn from additive posteriors, one per factor, jointly: of exact processes, and of random features.

Matheron's rule turns a draw from the prior into one from the posterior: with the factors' prior draws p_j, noise draws
e and alpha = (K + noise)⁻¹ (z - Σ_j p_j(X) - e), the functions

    f_i(x) = p_i(x) + k_i(x, X) alpha

are together one draw of all factors given the totals z, cross-covariances included. Only p_j at the data and alpha tie
the factors together: an agent that owns factor i draws p_i alone, tells the others its values at the data (one number
per observation), and everybody solves the same system. Source: Wilson et al. 2020, eq. 9, for a sum of processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.stack import StackedParts
from swarmbo.graph import FactorGraph, FactorStack
from swarmbo.kernels import spectral_frequencies
from swarmbo.kernels.threads import in_threads

if TYPE_CHECKING:
    from swarmbo.belief.gp.stack_predict import StackPosterior

_Drawn = tuple[Float[np.ndarray, "g 1"], Float[np.ndarray, "g 1"], Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]


@dataclass(frozen=True, eq=False)
class PriorDraw:
    """One function from a factor's prior, as D random Fourier features, in radians per side of the domain.

    ``pulses`` are in radians per round, of a function that changes; ``now`` is the round that it is drawn for.
    """

    frequencies: Float[np.ndarray, "D a"]
    sine_weights: Float[np.ndarray, " D"]
    cosine_weights: Float[np.ndarray, " D"]
    pulses: Float[np.ndarray, " D"] | None = None
    now: float = 0.0


@dataclass(frozen=True, eq=False)
class StackedDraws:
    """Prior draws of some factors of equal size, evaluated together."""

    draws: Sequence[PriorDraw]

    def values(
        self, U: Float[np.ndarray, "g m a"], rounds: Float[np.ndarray, " m"] | None = None, *, gradient: bool = False
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Values, standardised, now or in the rounds given; gradients are 0 where not wanted."""
        from swarmbo.belief.gp.compiled import put_waves  # late: numba is slow to load

        X = U
        if self.draws[0].pulses is not None:  # the round is one more coordinate
            when = np.full(U.shape[1], self.draws[0].now) if rounds is None else rounds
            X = np.concatenate([U, np.broadcast_to(when[:, None], (*U.shape[:2], 1))], axis=2)
        value, slope = np.empty(U.shape[:2]), np.zeros(U.shape)
        frequencies, weights = self._waves
        points = np.ascontiguousarray(X)

        def put(rows: slice) -> None:
            put_waves(gradient, points[rows], frequencies[rows], weights[rows], value[rows], slope[rows])

        in_threads(len(points), put)
        return value, slope

    @cached_property
    def _waves(self) -> tuple[Float[np.ndarray, "g c D"], Float[np.ndarray, "g 2 D"]]:
        by_coordinate = [
            np.vstack([draw.frequencies.T, *([] if draw.pulses is None else [draw.pulses])]) for draw in self.draws
        ]
        weights = [(draw.sine_weights, draw.cosine_weights) for draw in self.draws]
        return np.array(by_coordinate), np.array(weights)


class _Sample(ABC):
    """Drawn functions, one per factor: c_i + scale_i z_i(u), at coordinates of the unit cube."""

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m"]:
        """Each factor's drawn function, physical; coordinates of the unit cube."""
        constants, scales, z, _ = self._drawn(stack, U, gradient=False)
        return constants + scales * z

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"]
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Values and gradients by coordinates of the unit cube."""
        constants, scales, z, slopes = self._drawn(stack, U, gradient=True)
        return constants + scales * z, scales[..., None] * slopes

    @abstractmethod
    def _drawn(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool) -> _Drawn:
        """Constants, scales, standardised values and their gradients."""


class PathSample(_Sample):
    """A joint draw of all factors from their posterior. Made by ``AdditiveGP.sample``.

    ``draws`` are prior draws by factor, of all factors or of those whose functions are wanted; ``alpha`` the weights of
    the update.
    """

    def __init__(
        self,
        graph: FactorGraph,
        conditioned: Conditioned,
        draws: Mapping[str, PriorDraw],
        alpha: Float[np.ndarray, "k T"],
    ) -> None:
        self.graph = graph
        self._conditioned, self._draws, self._alpha = conditioned, dict(draws), alpha
        self._prepared: dict[tuple[str, ...], tuple[StackPosterior, StackedDraws]] = {}

    def of(self, factors: Iterable[str]) -> "PathSample":
        """The drawn functions of some factors only."""
        return PathSample(self.graph, self._conditioned, {f: self._draws[f] for f in factors}, self._alpha)

    def _drawn(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool) -> _Drawn:
        from swarmbo.belief.gp.stack_predict import StackPosterior  # late: numba is slow to load

        index = [self.graph.place_of[factor] for factor in stack.factors]
        if stack.factors not in self._prepared:
            draws = StackedDraws([self._draws[f] for f in stack.factors])
            self._prepared[stack.factors] = StackPosterior(self._conditioned, index), draws
        own, draws = self._prepared[stack.factors]
        drawn, ddrawn = draws.values(U, gradient=gradient)
        told, pulled = own.weighted(U, self._alpha[index], gradient=gradient)
        return own.constants, own.scales, drawn + told, ddrawn + pulled


def draw_prior(
    rng: np.random.Generator, hyper: AdditiveHyperparameters, factor: int, n_features: int, now: float = 0.0
) -> PriorDraw:
    """A function from one factor's prior, with standardised values."""
    D = n_features // 2
    frequencies = spectral_frequencies(rng, hyper.kernels[factor], hyper.lengthscale_array(factor), D)
    weights = np.sqrt(hyper.outputscales[factor] / D) * rng.standard_normal((2, D))
    if not hyper.times:
        return PriorDraw(frequencies, weights[0], weights[1])
    # the kernels over variables and over rounds multiply, so their frequencies are drawn independently
    time = hyper.times[factor]
    pulses = spectral_frequencies(rng, time.kernel, np.array([time.lengthscale]), D)[:, 0]
    return PriorDraw(frequencies, weights[0], weights[1], pulses, now)


def told(conditioned: Conditioned, factor: int, draw: PriorDraw) -> Float[np.ndarray, " _r"]:
    """Values of a factor's prior draw at each observation, which its owner tells the others; 0 where not in it."""
    rounds = conditioned.part_data[0 if conditioned.is_coupled else factor].rounds
    points = conditioned.points([factor])[0, : len(rounds)]
    ((values,), _) = StackedDraws([draw]).values(points[None], rounds)
    return np.where(conditioned.seen[factor], values, 0.0) if conditioned.is_coupled else values


def path_weights(
    conditioned: Conditioned,
    values: Mapping[int, Float[np.ndarray, " _r"]],
    noise_rngs: Mapping[int, np.random.Generator],
) -> Float[np.ndarray, "k T"]:
    """Weights of the update, from the values that owners of factors told; 0 for factors not told of.

    With totals, values are of all factors, and the noise has one stream, shared, in the place of factor 0.
    """
    data = conditioned.part_data
    alphas = [np.zeros(n) for n in conditioned.counts]
    for i in [0] if conditioned.is_coupled else values:
        own, parts = data[i], conditioned.parts
        s = int((~np.isnan(own.outcome)).sum())  # pending ones come last, and take the draw's own value: no change
        drawn = np.sum([values[j] for j in sorted(values)], axis=0) if conditioned.is_coupled else values[i]
        noise = np.sqrt(own.noise_variances(conditioned.hyper)[:s]) * noise_rngs[i].standard_normal(s)
        moved = drawn[:s] + noise
        if isinstance(parts, StackedParts):
            alphas[i] = parts.solve(i, parts.residuals[i, :s] - moved)
        else:
            alphas[i] = parts[0].solve(parts[0].residual[:s] - moved)
    return conditioned.spread(alphas)


def draw_posterior(
    graph: FactorGraph,
    conditioned: Conditioned,
    rngs: Mapping[str, np.random.Generator],
    noise_rng: np.random.Generator,
    n_features: int,
) -> PathSample:
    """Condition prior draws on the data."""
    hyper, now = conditioned.hyper, conditioned.now
    draws = [draw_prior(rngs[f], hyper, i, n_features, now) for i, f in enumerate(graph.factors)]
    values = {i: told(conditioned, i, draw) for i, draw in enumerate(draws)}
    noise_rngs = {0: noise_rng} if conditioned.is_coupled else {i: rngs[f] for i, f in enumerate(graph.factors)}
    alpha = path_weights(conditioned, values, noise_rngs)
    return PathSample(graph, conditioned, dict(zip(graph.factors, draws, strict=True)), alpha)


@dataclass(frozen=True, eq=False)
class FeatureSample(_Sample):
    """Sums of waves c_i + scale_i w_i·phi_i(u). Made by ``Ensemble.draw``."""

    graph: FactorGraph
    draws: Mapping[str, PriorDraw]
    constants: Mapping[str, float]
    scales: Mapping[str, float]

    def _drawn(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool) -> _Drawn:
        constants, scales = (
            np.array([numbers[factor] for factor in stack.factors])[:, None]
            for numbers in (self.constants, self.scales)
        )
        return constants, scales, *StackedDraws([self.draws[f] for f in stack.factors]).values(U, gradient=gradient)
