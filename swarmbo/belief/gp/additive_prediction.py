"""Predictions of an additive belief: single factors for agents, their sum, and functions drawn from all of them.

Matheron's rule turns a draw from the prior into one from the posterior: with the factors' prior draws p_j, noise draws
e and alpha = (K + noise)⁻¹ (z - Σ_j p_j(X) - e), the functions

    f_i(x) = p_i(x) + k_i(x, X) alpha

are together one draw of all factors given the totals z, cross-covariances included. Source: Wilson et al. 2020, eq. 9,
for a sum of processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo import errors, kernels
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.engine import ChannelGP
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.spatial import checked_points
from swarmbo.belief.gp.stack import Marginals, StackedParts
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.kernels.threads import in_threads

if TYPE_CHECKING:
    from swarmbo.belief.gp.stack_predict import StackPosterior

_ENTRIES = 2**20  # number of means of factors that are computed at once
Point = Float[np.ndarray, " n"]
Points = Float[np.ndarray, "g m a"]
_Drawn = tuple[Float[np.ndarray, "g 1"], Float[np.ndarray, "g 1"], Float[np.ndarray, "g m"], Points]


@dataclass(frozen=True, eq=False)
class StackedDraws:
    """Prior draws of some factors of equal size, evaluated together; frequencies are per side and, last, per round."""

    draws: Sequence[kernels.FourierDraw]
    now: float = 0.0

    def values(
        self, U: Points, rounds: Float[np.ndarray, " m"] | None = None, *, gradient: bool = False
    ) -> tuple[Float[np.ndarray, "g m"], Points]:
        """Standardised values, now or in the rounds given, and gradients, which are 0 unless requested."""
        from swarmbo.belief.gp.compiled import put_waves  # late: numba is slow to load

        frequencies, weights = self._waves
        X = U
        if frequencies.shape[1] > U.shape[2]:  # the round is one more coordinate
            when = np.full(U.shape[1], self.now) if rounds is None else rounds
            X = np.concatenate([U, np.broadcast_to(when[:, None], (*U.shape[:2], 1))], axis=2)
        value, slope, points = np.empty(U.shape[:2]), np.zeros(U.shape), np.ascontiguousarray(X)

        def put(rows: slice) -> None:
            work = np.empty((2, frequencies.shape[2]))
            put_waves(gradient, points[rows], frequencies[rows], weights[rows], value[rows], slope[rows], work)

        in_threads(len(points), put)
        return value, slope

    @cached_property
    def _waves(self) -> tuple[Float[np.ndarray, "g c D"], Float[np.ndarray, "g 2 D"]]:
        weights = np.array([(draw.sine_weights, draw.cosine_weights) for draw in self.draws])
        return np.array([draw.frequencies.T for draw in self.draws]), weights


class _Sample(ABC):
    """Drawn functions, one per factor: c_i + scale_i z_i(u), at coordinates of the unit cube."""

    def value(self, stack: FactorStack, U: Points) -> Float[np.ndarray, "g m"]:
        """Physical value of each factor's drawn function at coordinates of the unit cube."""
        constants, scales, z, _ = self._drawn(stack, U, gradient=False)
        return constants + scales * z

    def value_and_gradient(self, stack: FactorStack, U: Points) -> tuple[Float[np.ndarray, "g m"], Points]:
        constants, scales, z, slopes = self._drawn(stack, U, gradient=True)
        return constants + scales * z, scales[..., None] * slopes

    @abstractmethod
    def _drawn(self, stack: FactorStack, U: Points, *, gradient: bool) -> _Drawn:
        """Constants, scales, standardised values and their gradients."""


@dataclass(frozen=True, eq=False)
class PathSample(_Sample):
    """A joint draw of all factors from their posterior: prior ``draws`` by factor, weights ``alpha`` of the update."""

    graph: FactorGraph
    conditioned: Conditioned
    draws: Mapping[str, kernels.FourierDraw]
    alpha: Float[np.ndarray, "k T"]
    _prepared: "dict[tuple[str, ...], tuple[StackPosterior, StackedDraws]]" = field(
        default_factory=dict[Any, Any], init=False
    )

    def _drawn(self, stack: FactorStack, U: Points, *, gradient: bool) -> _Drawn:
        from swarmbo.belief.gp.stack_predict import StackPosterior  # late: numba is slow to load

        index = [self.graph.place_of[factor] for factor in stack.factors]
        if stack.factors not in self._prepared:
            draws = StackedDraws([self.draws[f] for f in stack.factors], self.conditioned.now)
            self._prepared[stack.factors] = StackPosterior(self.conditioned, index), draws
        posterior, draws = self._prepared[stack.factors]
        prior, prior_slope = draws.values(U, gradient=gradient)
        update, update_slope = posterior.weighted(U, self.alpha[index], gradient=gradient)
        return posterior.constants, posterior.scales, prior + update, prior_slope + update_slope


def draw_prior(
    rng: np.random.Generator, hyper: AdditiveHyperparameters, factor: int, n_features: int
) -> kernels.FourierDraw:
    """A function from one factor's prior, with standardised values."""
    kernel, output = hyper.kernels[factor], hyper.outputscales[factor]
    drawn = kernels.draw(rng, kernel, np.array(hyper.lengthscales[factor]), output, n_features)
    if not hyper.times:
        return drawn
    # the kernels over variables and over rounds multiply, so their frequencies are drawn independently
    time = hyper.times[factor]
    pulses = kernels.spectral_frequencies(rng, time.kernel, np.array([time.lengthscale]), len(drawn.frequencies))
    return replace(drawn, frequencies=np.hstack([drawn.frequencies, pulses]))


def _at_data(conditioned: Conditioned, factor: int, draw: kernels.FourierDraw) -> Float[np.ndarray, " _r"]:
    """Values of a factor's prior draw at each observation of its part; 0 for observations without the factor."""
    rounds = conditioned.part_data[0 if conditioned.is_coupled else factor].rounds
    points = conditioned.points([factor])[0, : len(rounds)]
    ((values,), _) = StackedDraws([draw]).values(points[None], rounds)
    return np.where(conditioned.seen[factor], values, 0.0) if conditioned.is_coupled else values


def draw_posterior(
    graph: FactorGraph,
    conditioned: Conditioned,
    rngs: Mapping[str, np.random.Generator],
    noise_rng: np.random.Generator,
    n_features: int,
) -> PathSample:
    """Condition prior draws on the data. With totals, all factors share the stream of the noise."""
    hyper, parts = conditioned.hyper, conditioned.parts
    alpha = np.zeros(parts.entries.shape)
    draws = [draw_prior(rngs[f], hyper, i, n_features) for i, f in enumerate(graph.factors)]
    values = [_at_data(conditioned, i, draw) for i, draw in enumerate(draws)]
    for i, data in enumerate(conditioned.part_data):
        s = int((~np.isnan(data.outcome)).sum())  # pending outcomes, which are last, equal the draw and change nothing
        values_there = np.sum(values, axis=0) if conditioned.is_coupled else values[i]
        rng = noise_rng if conditioned.is_coupled else rngs[graph.factors[i]]
        noisy = values_there[:s] + np.sqrt(data.noise_variances(hyper)[:s]) * rng.standard_normal(s)
        alpha[i, : len(data)] = parts.solve(i, parts.residuals[i, :s] - noisy)
    return PathSample(graph, conditioned, dict(zip(graph.factors, draws, strict=True)), conditioned.spread(alpha))


@dataclass(frozen=True, eq=False)
class FeatureSample(_Sample):
    """Sums of waves c_i + scale_i w_i·phi_i(u). Made by ``Ensemble.draw``."""

    graph: FactorGraph
    draws: Mapping[str, kernels.FourierDraw]
    constants: Mapping[str, float]
    scales: Mapping[str, float]

    def _drawn(self, stack: FactorStack, U: Points, *, gradient: bool) -> _Drawn:
        numbers = (self.constants, self.scales)
        constants, scales = (np.array([by_factor[f] for f in stack.factors])[:, None] for by_factor in numbers)
        return constants, scales, *StackedDraws([self.draws[f] for f in stack.factors]).values(U, gradient=gradient)


@dataclass(frozen=True, eq=False, kw_only=True)
class AdditivePosterior(ChannelGP):
    """Posterior of a sum of Gaussian processes, and of each summand.

    Predictions of the sum, and fields that are not listed here, are those of the base ``ChannelGP``. Columns of points
    are in the order of ``graph.variables``.
    """

    settings: AdditiveGPSettings
    graph: FactorGraph
    hyperparameters: AdditiveHyperparameters
    fitted_at: int = 0  # number of data at the last fit; 0: not yet

    @cached_property
    def channels(self) -> AdditiveHyperparameters:
        """Hyper-parameters of the factors and of their sum."""
        return self.hyperparameters

    @property
    def has_time(self) -> bool:
        """True if the belief has a time axis."""
        return bool(self.hyperparameters.times)

    @property
    def prior_variance(self) -> float:
        """Prior variance of the sum, in the square of the outcome's unit."""
        h = self.hyperparameters
        return float(np.sum(np.array(h.outputscales) * np.array(h.scales) ** 2))

    @property
    def noise_variance(self) -> float:
        """Fitted noise variance of totals, in the square of the outcome's unit."""
        return self.hyperparameters.total_noise_variance * self.hyperparameters.common_scale**2

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """For each factor, the columns of X that it depends on."""
        return self.graph.columns

    @cached_property
    def _prepared(self) -> "dict[tuple[str, ...], StackPosterior]":
        return {}

    def _stack(self, stack: FactorStack) -> "StackPosterior":
        from swarmbo.belief.gp.stack_predict import StackPosterior  # late: numba is slow to load

        if stack.factors not in self._prepared:
            index = [self.graph.place_of[factor] for factor in stack.factors]
            self._prepared[stack.factors] = StackPosterior(self._conditioned, index)
        return self._prepared[stack.factors]

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the noise-free sum; see ``SpatialGP.posterior``."""
        points = self._points(X)
        if self._conditioned.is_coupled or self.has_time:
            return super().posterior(points)
        mean, var = np.zeros(len(points)), np.zeros(len(points))  # the factors are independent of one another
        size = max(1, _ENTRIES // len(self.graph.factors))
        for start in range(0, len(points), size):
            rows, U = slice(start, start + size), self.domain.to_unit(points[start : start + size])
            for stack in stacks_of(self.graph):
                marginals = self.local(stack, stack.take(U))
                mean[rows] += marginals.mean.sum(axis=0)
                var[rows] += marginals.var.sum(axis=0)
        return mean, var

    @cached_property
    def means_at_data(self) -> Float[np.ndarray, "k t"]:
        """Means of the factors, stack after stack, at the points with a known outcome."""
        U, parts, hyper = self.domain.to_unit(self.points[self.known]), self._conditioned.parts, self.hyperparameters
        # ``fitted`` has means in the round of each outcome; with a time axis, this belief's round may differ
        if self.has_time or not isinstance(parts, StackedParts):
            return np.concatenate([self.local_mean(stack, stack.take(U)) for stack in stacks_of(self.graph)])
        order = [self.graph.place_of[factor] for stack in stacks_of(self.graph) for factor in stack.factors]
        is_whole, means = (parts.known == len(U)) & (parts.jitters == 0.0), np.empty((len(order), len(U)))
        if is_whole.any():
            constants, scales = np.array(hyper.constants)[is_whole, None], np.array(hyper.scales)[is_whole, None]
            means[is_whole] = constants + scales * parts.fitted[is_whole, : len(U)]
        if not is_whole.all():
            for stack in stacks_of(self.graph, np.array(self.graph.factors)[~is_whole].tolist()):
                means[[self.graph.place_of[factor] for factor in stack.factors]] = self.local_mean(stack, stack.take(U))
        return means[order]

    def local(self, stack: FactorStack, U: Points, *, gradient: bool = False) -> Marginals:
        """Posterior of each factor of a stack at its own points of the unit cube, bit-identical in any other stack."""
        return self._stack(stack).posterior(U, gradient=gradient)

    def local_mean(self, stack: FactorStack, U: Points) -> Float[np.ndarray, "g m"]:
        """Mean (g, m) as in ``local``, bit-identical, without the cost of a variance."""
        return self._stack(stack).mean(U)

    def local_contrast(self, stack: FactorStack, U: Points, reference: Point, *, gradient: bool = False) -> Marginals:
        """Posterior of f_i(u) - f_i(v), v from the joint ``reference`` (unit cube)."""
        return self._stack(stack).posterior(U, stack.take(reference[None]), gradient=gradient)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of one factor.

        Totals alone don't determine how the mean of the sum is divided among factors, so factors get equal shares.

        Args:
            factor: Name of the factor.
            X: Points (m, a) of the factor's scope, physical.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        self.graph.scope(factor)  # raises an error for an unknown name
        (stack,) = stacks_of(self.graph, [factor])
        U = self.domain.part(stack.columns[0].tolist()).to_unit(checked_points(X, stack.size))
        marginals = self.local(stack, U[None])
        return marginals.mean[0], marginals.var[0]

    def sample(
        self, rngs: Mapping[str, np.random.Generator], noise_rng: np.random.Generator, n_features: int = 512
    ) -> PathSample:
        """A joint draw of all factors from the posterior.

        ``rngs`` has a generator for each factor, so that its owner can draw alone; all share ``noise_rng``.
        ``n_features``, an even number >= 2, is the number of features in each factor's prior draw.
        """
        return draw_posterior(self.graph, self._conditioned, rngs, noise_rng, n_features)

    def log_evidences(self) -> tuple[float, ...]:
        """``log_evidence`` for each factor's own outcomes; an error if there are totals, which couple factors."""
        if self._has_totals:
            raise errors.ConfigError("got outcomes of the sum; wanted outcomes of single factors", at="$.outcomes")
        return tuple(self._on_data.parts.log_densities.tolist())
