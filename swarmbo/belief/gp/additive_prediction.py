"""What an additive belief predicts: single factors for agents, and their sum.

Inside, points live in the unit cube and outcomes are standardised; outside, everything is physical.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, AdditiveHyperparameters
from swarmbo.belief.gp.conditioning import Conditioned, condition
from swarmbo.belief.gp.data import checked_points
from swarmbo.belief.gp.grid_posterior import GridPosterior
from swarmbo.belief.gp.local_posterior import Moments, StackPosterior
from swarmbo.belief.gp.observations import Observations
from swarmbo.belief.gp.path_sample import PathSample, draw_posterior
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.kernels import kernel_matrix
from swarmbo.spaces import Domain

Outcomes = Literal["total", "per-factor"]


@dataclass(frozen=True, eq=False, kw_only=True)
class AdditivePosterior:
    """The posterior of a sum of Gaussian processes, and of each of them.

    Args:
        settings: Kernel, priors, effort of the fit.
        graph: Scopes.
        domain: The box of joint points, columns in the order of ``graph.variables``.
        outcomes: What points pending are taken to bring.
        hyperparameters: In use.
        standardise: Whether outcomes are brought to mean 0 and variance 1 at each update, until the first fit.
        X: Evaluated points (t, n), physical.
        totals: Their outcomes in sum (t,); NaN where not observed.
        factors: Their outcomes by factor (t, k); NaN where not observed.
        noise: Known noise variances (t,) on top of the fitted one, physical.
        moments: The round of each evaluation (t,); of no account where nothing fades.
        now: The round of predictions, and of evaluations and points pending that do not state theirs.
        pending: Points (p, n) conditioned on without an outcome.
        pending_moments: The round of each (p,).
        awaited: Of which factors (p, k) their outcomes are to come; those of all as `outcomes` says.
        fitted_at: Number of data at the last fit; 0: not yet.
        base: The posterior of the first data, which further ones extend; None: of no data.
    """

    settings: AdditiveGPSettings
    graph: FactorGraph
    domain: Domain
    outcomes: Outcomes
    hyperparameters: AdditiveHyperparameters
    standardise: bool
    X: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    factors: Float[np.ndarray, "t k"]
    noise: Float[np.ndarray, " t"]
    moments: Float[np.ndarray, " t"]
    now: float
    pending: Float[np.ndarray, "p n"]
    pending_moments: Float[np.ndarray, " p"]
    awaited: Bool[np.ndarray, "p k"]
    fitted_at: int
    base: Conditioned | None

    def __post_init__(self) -> None:
        data = (self.X, self.totals, self.factors, self.noise, self.moments)
        for array in (*data, self.pending, self.pending_moments, self.awaited):
            array.flags.writeable = False

    @property
    def n_data(self) -> int:
        """Number of evaluated points with at least one outcome."""
        return int((~np.isnan(self.totals) | (~np.isnan(self.factors)).any(axis=1)).sum())

    @property
    def n_pending(self) -> int:
        """Number of points conditioned on without an outcome."""
        return len(self.pending)

    @property
    def has_time(self) -> bool:
        """Whether outcomes fade."""
        return bool(self.hyperparameters.times)

    @property
    def is_tied(self) -> bool:
        """Whether any total ties the factors together."""
        return self._has_totals or (self.outcomes == "total" and bool(self.awaited.all(axis=1).any()))

    @property
    def _has_totals(self) -> bool:
        return bool((~np.isnan(self.totals)).any())

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
    def jitter(self) -> float:
        """What was added to covariance matrices to factorise them, as a share of their diagonals; 0 as a rule."""
        return self._conditioned.jitter

    @cached_property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """For each factor the columns of X that it sees."""
        place = {variable: index for index, variable in enumerate(self.graph.variables)}
        return tuple(tuple(place[v] for v in self.graph.scope(factor)) for factor in self.graph.factors)

    @cached_property
    def observations(self) -> Observations:
        """All outcomes, one entry each, at points of the unit cube."""
        return Observations.of(self.domain.to_unit(self.X), self.totals, self.factors, self.noise, self.moments)

    @cached_property
    def _on_data(self) -> Conditioned:
        """Given the data alone, as far as possible by extension of what was worked out before."""
        data, base = self.observations, self.base
        if base is not None and base.is_tied == self._has_totals:
            return base.extended(data.take(slice(len(base.data), None))).at(self.now)
        return condition(self.hyperparameters, self.scopes, data, is_tied=self._has_totals).at(self.now)

    @cached_property
    def _conditioned(self) -> Conditioned:
        """Given the data and that points pending will be evaluated."""
        base = self._on_data
        if not len(self.pending):
            return base
        if base.is_tied != self.is_tied:
            base = condition(self.hyperparameters, self.scopes, base.data, is_tied=self.is_tied).at(self.now)
        U, in_sum = self.domain.to_unit(self.pending), self.outcomes == "total"
        return base.extended(Observations.pending(U, self.awaited, self.pending_moments, in_sum=in_sum))

    @cached_property
    def _prepared(self) -> dict[tuple[str, ...], StackPosterior]:
        return {}

    def _stack(self, stack: FactorStack) -> StackPosterior:
        if stack.factors not in self._prepared:
            index = [self.graph.factors.index(factor) for factor in stack.factors]
            self._prepared[stack.factors] = StackPosterior(self._conditioned, index)
        return self._prepared[stack.factors]

    def local(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Moments:
        """Posterior of each factor at points of its own.

        Args:
            stack: Factors of equal size.
            U: Points (g, m, a) of the unit cube.
            gradient: Whether gradients by U are wanted too.

        Returns:
            Mean and variance in the unit of the outcomes and its square. For a factor they do not depend, to the bit,
            on which others are in the stack.
        """
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

    def on_grid(
        self, stack: FactorStack, U: Float[np.ndarray, "g G a"], previous: GridPosterior | None = None
    ) -> GridPosterior:
        """Posterior of each factor on a grid.

        Args:
            stack: Factors of equal size.
            U: One grid each (g, G, a), in the unit cube.
            previous: On the same grids, of the belief that this one is an update of: then only what came since is
                worked in, in one pass over memory. Where more has changed it is not used.
        """
        index = tuple(self.graph.factors.index(factor) for factor in stack.factors)
        if previous is not None and previous.factors == index and np.array_equal(previous.U, U):
            return previous.after(self._conditioned)
        return GridPosterior.of(self._conditioned, index, U)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of one factor.

        Totals alone don't tell how the mean of the sum divides among factors: then each has an even share.

        Args:
            factor: Its name.
            X: Points (m, a) of its scope, physical.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        self.graph.scope(factor)  # refuses a name it does not know
        (stack,) = stacks_of(self.graph, [factor])
        columns = stack.columns[0]
        points = checked_points(X, stack.size)
        U = (points - self.domain.low[columns]) / (self.domain.high - self.domain.low)[columns]
        moments = self.local(stack, U[None])
        return moments.mean[0], moments.var[0]

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the sum at joint points (m, n), physical."""
        U = self._unit(X)
        return self._mean(U), np.maximum(self._covariance(U, full=False), 0.0)

    def posterior_mean(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Mean of the sum at joint points (m, n), physical."""
        return self._mean(self._unit(X))

    def joint_posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m m"]]:
        """Mean and covariance of the sum at joint points (m, n), physical."""
        U = self._unit(X)
        return self._mean(U), self._covariance(U, full=True)

    def posterior_gradient(
        self, X: ArrayLike
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m n"], Float[np.ndarray, " m"], Float[np.ndarray, "m n"]]:
        """Mean and variance of the sum with their gradients, physical.

        Args:
            X: Joint points (m, n), physical.

        Returns:
            Mean (m,), its gradient (m, n), variance (m,), its gradient (m, n).
        """
        U = self._unit(X)
        dmean, dvar = np.zeros(U.shape), np.zeros(U.shape)
        mean, var = self._mean(U), np.maximum(self._covariance(U, full=False), 0.0)
        conditioned, stacks = self._conditioned, stacks_of(self.graph)
        weights = None
        if conditioned.is_tied:
            cross = sum((self._stack(s).cross(s.take(U)).sum(axis=0) for s in stacks), np.zeros((1, 1)))
            weights = (cross @ conditioned.inverse[0].T @ conditioned.inverse[0])[None]
        for stack in stacks:
            own, points = self._stack(stack), stack.take(U)
            moments = own.moments(points, gradient=True)
            assert moments.dmean is not None
            assert moments.dvar is not None
            by_point = moments.dvar
            if weights is not None:
                by_point = -2.0 * own.scales[..., None] ** 2 * own.pull(own.cross_and_slopes(points), weights)
            for columns, first, second in zip(stack.columns, moments.dmean, by_point, strict=True):
                dmean[:, columns] += first
                dvar[:, columns] += second
        sides = self.domain.high - self.domain.low
        return mean, dmean / sides, var, dvar / sides

    def _unit(self, X: ArrayLike) -> Float[np.ndarray, "m n"]:
        return self.domain.to_unit(checked_points(X, self.domain.n_dims))

    def _mean(self, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
        means = [self.local(stack, stack.take(U)).mean for stack in stacks_of(self.graph)]
        return np.concatenate(means).sum(axis=0)

    def _covariance(self, U: Float[np.ndarray, "m n"], *, full: bool) -> Float[np.ndarray, "*_"]:
        """Variances (m,) of the sum, or its covariance (m, m); physical."""
        conditioned = self._conditioned
        h, shape = conditioned.hyper, (len(U), len(U)) if full else (len(U),)
        out, tied = np.zeros(shape), np.zeros((len(U), conditioned.seen.shape[1]))
        for i, scope in enumerate(self.scopes):
            square = h.scales[i] ** 2
            if full:
                own = U[:, list(scope)]
                out += square * kernel_matrix(h.kernels[i], own, own, h.lengthscale_array(i), h.outputscales[i])
            else:
                out += square * h.outputscales[i]
        for stack in stacks_of(self.graph):
            for factor, cross in zip(stack.factors, self._stack(stack).cross(stack.take(U)), strict=True):
                i = self.graph.factors.index(factor)
                if conditioned.is_tied:
                    tied += cross
                else:
                    out -= h.scales[i] ** 2 * _explained(cross @ conditioned.inverse[i].T, full=full)
        if conditioned.is_tied:
            out -= h.common_scale**2 * _explained(tied @ conditioned.inverse[0].T, full=full)
        return out

    def sample(
        self, rngs: Mapping[str, np.random.Generator], noise_rng: np.random.Generator, n_features: int = 512
    ) -> PathSample:
        """A joint draw of all factors from the posterior; see ``swarmbo.belief.gp.path_sample``.

        Args:
            rngs: One stream per factor, so that its owner can draw alone.
            noise_rng: A stream that all agents share.
            n_features: Random features of each factor's prior draw, an even number >= 2.
        """
        return draw_posterior(self.graph, self._conditioned, rngs, noise_rng, n_features)

    def log_evidence(self) -> float:
        """Log density of the standardised outcomes at the present hyper-parameters; 0 without data."""
        return float(sum(part.log_density() for part in self._on_data.parts))

    def log_evidences(self) -> tuple[float, ...]:
        """The same for each factor's own outcomes.

        Raises:
            ConfigError: If there are totals, which tie the factors together.
        """
        if self._has_totals:
            raise ConfigError("got outcomes of the sum; wanted none: they tell of all factors at once", at="$.outcomes")
        return tuple(part.log_density() for part in self._on_data.parts)


def _explained(v: Float[np.ndarray, "m T"], *, full: bool) -> Float[np.ndarray, "*_"]:
    return v @ v.T if full else (v * v).sum(axis=1)
