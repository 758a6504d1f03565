"""A sum of Gaussian processes over the scopes of a factor graph: the team's belief about an additive function.

    f(x) = Σ_i f_i(x_{V_i}),  f_i independent Gaussian processes, scopes V_i may overlap.

Outcomes are told of the total, of single factors, or both. Totals tie the factors together: then means add up exactly,
variances do not, and sigma <= Σ_i sigma_i always. Outcomes of factors alone leave them independent.

Source: Duvenaud et al. 2011; Kandasamy et al. 2015, eqs. (2)-(4), for the posterior of one factor given totals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.additive_fit import fit_additive, prior_hyperparameters
from swarmbo.belief.additive_settings import AdditiveGPSettings, AdditiveHyperparameters
from swarmbo.belief.conditioning import TOTAL, Conditioned, Observations, condition
from swarmbo.belief.data import checked_points
from swarmbo.belief.local_posterior import Moments, StackPosterior
from swarmbo.belief.path_sample import PathSample, draw_posterior
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.kernels import kernel_matrix
from swarmbo.spaces import Domain

Outcomes = Literal["total", "per-factor"]
_LARGEST_OUTCOME = 1e60


@dataclass(frozen=True, eq=False, kw_only=True)
class AdditiveGP:
    """Belief about an additive function, immutable: what learns returns a new one. Make one with ``create``.

    Args:
        settings: Kernel, priors, effort of the fit.
        graph: Scopes.
        domain: The box of joint points, columns in the order of ``graph.variables``.
        outcomes: What ``update`` takes by default, and what points pending are taken to bring.
        hyperparameters: In use.
        X: Evaluated points (t, n), physical.
        totals: Their outcomes in sum (t,); NaN where not observed.
        factors: Their outcomes by factor (t, k); NaN where not observed.
        noise: Known noise variances (t,) on top of the fitted one, physical.
        pending: Points (p, n) conditioned on without an outcome.

    Example:
        >>> from swarmbo.graph import FactorGraph
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> belief = AdditiveGP.create(AdditiveGPSettings(), graph, Domain(np.zeros(3), np.ones(3)))
        >>> belief = belief.update([[0.1, 0.2, 0.3], [0.5, 0.5, 0.9]], [1.0, 3.0])
        >>> mean, var = belief.posterior([[0.1, 0.2, 0.3]])
        >>> parts = [belief.factor_posterior(name, [[0.1, 0.2]])[0] for name in ("f",)]
        >>> bool(abs(mean[0] - 1.0) < 0.1), parts[0].shape
        (True, (1,))
    """

    settings: AdditiveGPSettings
    graph: FactorGraph
    domain: Domain
    outcomes: Outcomes
    hyperparameters: AdditiveHyperparameters
    X: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    factors: Float[np.ndarray, "t k"]
    noise: Float[np.ndarray, " t"]
    pending: Float[np.ndarray, "p n"]

    @classmethod
    def create(
        cls, settings: AdditiveGPSettings, graph: FactorGraph, domain: Domain, outcomes: Outcomes = "total"
    ) -> "AdditiveGP":
        """A belief without data, its hyper-parameters at the mode of their prior.

        Raises:
            ShapeError: If the domain has not one side per variable.
        """
        n, k = len(graph.variables), len(graph.factors)
        if domain.n_dims != n:
            raise ShapeError(f"domain: got {domain.n_dims} sides; wanted one for each of {n} variables")
        return cls(
            settings=settings,
            graph=graph,
            domain=domain,
            outcomes=outcomes,
            hyperparameters=prior_hyperparameters(settings, graph),
            X=np.zeros((0, n)),
            totals=np.zeros(0),
            factors=np.zeros((0, k)),
            noise=np.zeros(0),
            pending=np.zeros((0, n)),
        )

    @property
    def n_data(self) -> int:
        """Number of evaluated points with at least one outcome."""
        return int((np.isfinite(self.totals) | np.isfinite(self.factors).any(axis=1)).sum())

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        totals: ArrayLike | None = None,
        factors: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> "AdditiveGP":
        """Learn outcomes; hyper-parameters stay, points pending are forgotten.

        Args:
            X: New points (n, d), physical, columns in the order of ``graph.variables``.
            y: Their totals (n,) or outcomes by factor (n, k), as the number of axes says.
            totals: Totals (n,), together with ``factors`` for mixed outcomes.
            factors: Outcomes by factor (n, k), in the order of ``graph.factors``.
            noise_variance: Known variances (n,) >= 0 on top of the fitted noise, in the square of the outcome's unit.

        Returns:
            The new belief. NaN means that an outcome was not observed.

        Raises:
            ShapeError: If shapes do not fit, or an outcome is infinite or beyond 1e60; it names the row.
        """
        points = checked_points(X, self.domain.n_dims)
        if y is not None:
            array = np.array(y, dtype=float)
            totals, factors = (array, factors) if array.ndim == 1 else (totals, array)
        n, k = len(points), len(self.graph.factors)
        new_totals = _outcomes("totals", totals, (n,))
        new_factors = _outcomes("factors", factors, (n, k))
        noise = np.zeros(n) if noise_variance is None else np.array(noise_variance, dtype=float)
        if noise.shape != (n,) or not (np.isfinite(noise) & (noise >= 0.0)).all():
            raise ShapeError(f"noise_variance: got {noise.tolist()}; wanted {n} finite numbers >= 0")
        return replace(
            self,
            X=np.concatenate([self.X, points]),
            totals=np.concatenate([self.totals, new_totals]),
            factors=np.concatenate([self.factors, new_factors]),
            noise=np.concatenate([self.noise, noise]),
            pending=self.pending[:0],
        )

    def condition_on_pending(self, X: ArrayLike) -> "AdditiveGP":
        """A belief whose variance knows of evaluations to come, and whose mean does not move.

        Source: Desautels, Krause & Burdick 2014, section 4 (hallucinated outcomes).
        """
        return replace(self, pending=np.concatenate([self.pending, checked_points(X, self.domain.n_dims)]))

    def fit(self, rng: np.random.Generator, *, warm: AdditiveHyperparameters | None = None) -> "AdditiveGP":
        """Refit all hyper-parameters to all data; points pending are forgotten.

        Args:
            rng: For random starts.
            warm: A further start: an earlier optimum. With it and ``settings.restarts == 0`` it is the only one.
        """
        return replace(self, hyperparameters=fit_additive(self, rng, warm), pending=self.pending[:0])

    def with_graph(self, graph: FactorGraph) -> "AdditiveGP":
        """The same totals seen through another decomposition; lengthscales by variable are carried over.

        A variable's lengthscale is the geometric mean over the factors it was in; the prior variance is shared out
        evenly.
        """
        h = self.hyperparameters
        logs: dict[str, list[float]] = {variable: [] for variable in self.graph.variables}
        for i, factor in enumerate(self.graph.factors):
            for variable, length in zip(self.graph.scope(factor), h.lengthscales[i], strict=True):
                logs[variable].append(float(np.log(length)))
        lengths = {variable: float(np.exp(np.mean(values))) for variable, values in logs.items()}
        k = len(graph.factors)
        hyper = AdditiveHyperparameters(
            kernels=(h.kernels[0],) * k,
            lengthscales=tuple(tuple(lengths[variable] for variable in graph.scope(f)) for f in graph.factors),
            outputscales=(float(np.sum(h.outputscales)) / k,) * k,
            noise_variances=(h.total_noise_variance,) * k,
            total_noise_variance=h.total_noise_variance,
            constants=(h.constant / k,) * k,
            scales=(h.scales[0],) * k,
        )
        order = [self.graph.variables.index(variable) for variable in graph.variables]
        domain = Domain(self.domain.low[order], self.domain.high[order])
        return replace(
            self,
            graph=graph,
            domain=domain,
            hyperparameters=hyper,
            X=self.X[:, order],
            factors=np.full((len(self.X), k), np.nan),
            pending=self.pending[:, order],
        )

    @property
    def is_tied(self) -> bool:
        """Whether any total ties the factors together."""
        return bool(np.isfinite(self.totals).any()) or (self.outcomes == "total" and len(self.pending) > 0)

    @cached_property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """For each factor the columns of X that it sees."""
        place = {variable: index for index, variable in enumerate(self.graph.variables)}
        return tuple(tuple(place[v] for v in self.graph.scope(factor)) for factor in self.graph.factors)

    @cached_property
    def observations(self) -> Observations:
        """All that was observed, factor after factor, then points pending."""
        U, k = self.domain.to_unit(self.X), len(self.graph.factors)
        channels = [(TOTAL, self.totals), *((i, self.factors[:, i]) for i in range(k))]
        rows = [(channel, np.flatnonzero(np.isfinite(outcome)), outcome) for channel, outcome in channels]
        ahead = [TOTAL] if self.outcomes == "total" else list(range(k))
        pending = self.domain.to_unit(self.pending)
        p = len(pending)
        return Observations(
            U=np.concatenate([*(U[index] for _, index, _ in rows), *(pending for _ in ahead)]),
            channel=np.concatenate(
                [*(np.full(len(index), c) for c, index, _ in rows), *(np.full(p, c) for c in ahead)]
            ).astype(int),
            outcome=np.concatenate([*(outcome[index] for _, index, outcome in rows), np.full(p * len(ahead), np.nan)]),
            noise=np.concatenate([*(self.noise[index] for _, index, _ in rows), np.zeros(p * len(ahead))]),
        )

    @cached_property
    def _conditioned(self) -> Conditioned:
        return condition(self.hyperparameters, self.scopes, self.observations, is_tied=self.is_tied)

    @cached_property
    def _prepared(self) -> dict[tuple[str, ...], StackPosterior]:
        return {}

    def _stack(self, stack: FactorStack) -> StackPosterior:
        if stack.factors not in self._prepared:
            index = [self.graph.factors.index(factor) for factor in stack.factors]
            self._prepared[stack.factors] = StackPosterior(self.hyperparameters, self._conditioned, index)
        return self._prepared[stack.factors]

    def local(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Moments:
        """Posterior of each factor at points of its own (g, m, a) of the unit cube, physical outcomes."""
        return self._stack(stack).moments(U, gradient=gradient)

    def local_contrast(
        self,
        stack: FactorStack,
        U: Float[np.ndarray, "g m a"],
        reference: Float[np.ndarray, " n"],
        *,
        gradient: bool = False,
    ) -> Moments:
        """Posterior of f_i(u) - f_i(reference), for a joint reference point (n,) of the unit cube."""
        return self._stack(stack).contrast(U, stack.take(reference[None]), gradient=gradient)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of one factor at points (m, a) of its scope, physical."""
        (stack,) = stacks_of(self.graph, [factor])
        columns = stack.columns[0]
        points = checked_points(X, stack.size)
        U = (points - self.domain.low[columns]) / (self.domain.high - self.domain.low)[columns]
        moments = self.local(stack, U[None])
        return moments.mean[0], moments.var[0]

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the sum at joint points (m, n), physical."""
        mean, covariance = self._sum(X, full=False)
        return mean, covariance

    def posterior_mean(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Mean of the sum at joint points (m, n), physical."""
        U = self.domain.to_unit(checked_points(X, self.domain.n_dims))
        means = [self.local(stack, stack.take(U)).mean for stack in stacks_of(self.graph)]
        return np.concatenate(means).sum(axis=0)

    def joint_posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m m"]]:
        """Mean and covariance of the sum at joint points (m, n), physical."""
        return self._sum(X, full=True)

    def _sum(self, X: ArrayLike, *, full: bool) -> tuple[np.ndarray, np.ndarray]:
        points = checked_points(X, self.domain.n_dims)
        U, h = self.domain.to_unit(points), self.hyperparameters
        mean = self.posterior_mean(points)
        priors, crosses = [], []
        for i, (factor, scope) in enumerate(zip(self.graph.factors, self.scopes, strict=True)):
            own = U[:, list(scope)]
            kernel = kernel_matrix(h.kernels[i], own, own, h.lengthscale_array(i), h.outputscales[i]) if full else None
            priors.append(np.full(len(U), h.outputscales[i]) if kernel is None else kernel)
            (stack,) = stacks_of(self.graph, [factor])
            crosses.append(self._stack(stack).covariances(own[None])[0])
        if self._conditioned.is_tied:
            cross, A = np.sum(crosses, axis=0), self._conditioned.inverse[0]
            reduction = cross @ A @ cross.T if full else ((cross @ A) * cross).sum(axis=1)
            covariance = h.scales[0] ** 2 * (np.sum(priors, axis=0) - reduction)
        else:
            covariance = np.zeros((len(U), len(U))) if full else np.zeros(len(U))
            for i, cross in enumerate(crosses):
                A = self._conditioned.inverse_of(i)
                reduction = cross @ A @ cross.T if full else ((cross @ A) * cross).sum(axis=1)
                covariance += h.scales[i] ** 2 * (priors[i] - reduction)
        return mean, covariance if full else np.maximum(covariance, 0.0)

    def sample(
        self, rngs: Mapping[str, np.random.Generator], noise_rng: np.random.Generator, n_features: int = 512
    ) -> PathSample:
        """A joint draw of all factors from the posterior; see ``swarmbo.belief.path_sample``.

        Args:
            rngs: One stream per factor, so that its owner can draw alone.
            noise_rng: A stream that all agents share.
            n_features: Random features of each factor's prior draw, an even number.
        """
        return draw_posterior(
            self.graph,
            self.scopes,
            self.hyperparameters,
            self._conditioned,
            self.observations,
            rngs,
            noise_rng,
            n_features,
        )

    def log_evidence(self) -> float:
        """Log density of the standardised outcomes at the present hyper-parameters; 0 without data."""
        total = 0.0
        for L, residual in zip(self._conditioned.L, self._conditioned.residuals, strict=True):
            outcomes = self.observations.outcome if self._conditioned.is_tied else residual
            t = int(np.isfinite(outcomes).sum()) if self._conditioned.is_tied else len(residual) - len(self.pending)
            known = np.asfortranarray(L[:t, :t])
            whitened = np.linalg.solve(known, residual[:t]) if t else residual[:t]
            total += -0.5 * float(whitened @ whitened) - float(np.log(known.diagonal()).sum())
            total -= 0.5 * t * float(np.log(2.0 * np.pi))
        return total

    def state_dict(self) -> dict[str, Any]:
        """Data and hyper-parameters as JSON and arrays; ``from_state_dict`` makes an equal belief of it, to the bit."""
        arrays = {name: getattr(self, name).copy() for name in ("X", "totals", "factors", "noise", "pending")}
        return {"json": {"hyperparameters": msgspec.to_builtins(self.hyperparameters)}, "arrays": arrays}

    @classmethod
    def from_state_dict(
        cls,
        settings: AdditiveGPSettings,
        graph: FactorGraph,
        domain: Domain,
        state: Mapping[str, Any],
        outcomes: Outcomes = "total",
    ) -> "AdditiveGP":
        """The belief that ``state_dict`` wrote down."""
        hyper = msgspec.convert(state["json"]["hyperparameters"], AdditiveHyperparameters)
        arrays = {name: np.array(array) for name, array in state["arrays"].items()}
        empty = cls.create(settings, graph, domain, outcomes)
        return replace(empty, hyperparameters=hyper, **arrays)


def _outcomes(name: str, given: ArrayLike | None, shape: tuple[int, ...]) -> np.ndarray:
    if given is None:
        return np.full(shape, np.nan)
    outcomes = np.array(given, dtype=float)
    if outcomes.shape != shape:
        raise ShapeError(f"{name}: got shape {outcomes.shape}; wanted {shape}")
    bad = ~np.isnan(outcomes) & ~(np.abs(outcomes) < _LARGEST_OUTCOME)
    if bad.any():
        row = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ShapeError(f"{name}{list(row)}: got {outcomes[row]}; wanted a number below 1e60 in size, or NaN")
    return outcomes
