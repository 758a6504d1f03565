"""A sum of Gaussian processes over the scopes of a factor graph: the team's belief about an additive function.

   f(x) = Σ_i f_i(x_{V_i}),  f_i independent Gaussian processes, scopes V_i may overlap.

Outcomes are totals, outcomes of single factors, or both. Totals couple the factors: then means add up exactly,
variances do not, and always sigma <= Σ_i sigma_i. Without totals, the factors are independent.

Source: Duvenaud et al. 2011; Kandasamy et al. 2015, eqs. (2)-(4), for the posterior of one factor given totals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from swarmbo.belief.gp.additive_prediction import AdditivePosterior
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, domain_of, given_physical
from swarmbo.belief.gp.engine import Outcomes
from swarmbo.belief.gp.fit import fit_jointly, fit_together, prior_hyperparameters
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, TimeCorrelation
from swarmbo.belief.gp.observations import units
from swarmbo.belief.gp.spatial import checked_noise, checked_partial_outcomes, checked_points, checked_rounds
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.spaces import Domain

if TYPE_CHECKING:
    import networkx as nx


_MOST_AHEAD = 512  # largest number of pending outcomes of factors, which are in one matrix with all totals


@dataclass(frozen=True, eq=False, init=False)
class AdditiveGP(AdditivePosterior):
    """Immutable belief about an additive function: methods that learn return a new belief.

    Methods that predict are those of the base ``AdditivePosterior``. The constructor takes given hyper-parameters that
    all factors have in common; ``create`` makes a belief whose hyper-parameters will be fitted.

    Args:
        graph: Scopes.
        bounds: ``{variable: (low, high)}`` of every variable, or a ``Domain``; by default (0, 1) for each. A later
            ``fit`` measures lengthscales in shares of these sides. Points may lie outside.
        kernel: Covariance function of all factors.
        lengthscale: Lengthscale > 0 in the unit of the variables: one for all, or ``{variable: length}``.
        outputscale: Prior variance of each factor, > 0.
        noise_variance: Noise variance of each outcome, >= 0, unless ``update`` is given another.
        mean: Prior mean of the sum, divided evenly among the factors.
        time: Correlation over rounds, for all factors, by which old outcomes lose weight; None if nothing changes.
        outcomes: Outcomes that ``condition_on_pending`` expects: totals, or all factors.

    Raises:
        ConfigError: If a value is out of range, or names a factor or variable that is not in the graph.

    Example:
        >>> from swarmbo.graph import FactorGraph
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> belief = AdditiveGP(graph, lengthscale=0.5, noise_variance=1e-4)
        >>> belief = belief.update([[0.1, 0.2, 0.3], [0.5, 0.5, 0.9]], [1.0, 3.0])
        >>> mean, var = belief.posterior([[0.1, 0.2, 0.3]])
        >>> parts = [belief.factor_posterior("f", [[0.1, 0.2]]), belief.factor_posterior("g", [[0.2, 0.3]])]
        >>> bool(abs(mean[0] - 1.0) < 0.01), bool(np.isclose(sum(part[0] for part in parts), mean).all())
        (True, True)
    """

    def __init__(
        self,
        graph: "FactorGraph | nx.Graph[Any]",
        bounds: Mapping[str, tuple[float, float]] | Domain | None = None,
        *,
        kernel: str = "matern52",
        lengthscale: float | Mapping[str, float] = 0.3,
        outputscale: float = 1.0,
        noise_variance: float = 1e-2,
        mean: float = 0.0,
        time: TimeCorrelation | None = None,
        outcomes: Outcomes = "total",
    ) -> None:
        if not isinstance(graph, FactorGraph):
            bounds = {str(x): pair for x, pair in bounds.items()} if isinstance(bounds, Mapping) else bounds
            graph = FactorGraph.of_any(graph, bounds if isinstance(bounds, Mapping) else None)
        domain, variances = domain_of(graph, bounds), {"outputscale": outputscale, "noise_variance": noise_variance}
        settings, hyper = given_physical(graph, domain, lengthscale, kernel=kernel, mean=mean, time=time, **variances)
        model = {"settings": settings, "graph": graph, "domain": domain, "outcomes": outcomes}
        no_data = self._no_data(len(graph.variables), len(graph.factors))
        super().__init__(**model, hyperparameters=hyper, **no_data)  # pyright: ignore[reportArgumentType]

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> "AdditiveGP":
        belief = object.__new__(cls)
        AdditivePosterior.__init__(belief, **values)
        return belief

    def _with(self, **changes: Any) -> "AdditiveGP":
        return self._of({field.name: getattr(self, field.name) for field in fields(self)} | changes)

    @classmethod
    def create(
        cls, settings: AdditiveGPSettings, graph: FactorGraph, domain: Domain, outcomes: Outcomes = "total"
    ) -> "AdditiveGP":
        """Make a belief without data, with hyper-parameters at the mode of their prior.

        Raises:
            ShapeError: If the domain does not have one side per variable.
            ConfigError: If settings name a factor that is not in the graph.
        """
        if domain.n_dims != (n := len(graph.variables)):
            raise ShapeError(f"domain: got {domain.n_dims} sides; wanted one for each of {n} variables")
        settings.check_factors(graph, "$.factors")
        own = {"settings": settings, "graph": graph, "domain": domain, "outcomes": outcomes}
        own |= {"hyperparameters": prior_hyperparameters(settings, graph)}
        return cls._of(own | cls._no_data(n, len(graph.factors)))

    @classmethod
    def from_hyperparameters(
        cls,
        settings: AdditiveGPSettings,
        graph: FactorGraph,
        domain: Domain,
        hyperparameters: AdditiveHyperparameters,
        X: ArrayLike,
        totals: ArrayLike | None = None,
        factors: ArrayLike | None = None,
        noise_variance: ArrayLike | float | None = None,
        rounds: ArrayLike | float | None = None,
        outcomes: Outcomes = "total",
    ) -> "AdditiveGP":
        """Rebuild a belief from a record of hyper-parameters and data, which are as in ``update``, without a fit.

        The belief is at round 0 until ``at`` sets another; ``outcomes`` are as in ``create``.

        Raises:
            ShapeError: If the shapes do not fit.
        """
        belief = cls.create(settings, graph, domain, outcomes).with_hyperparameters(hyperparameters)
        belief = belief.update(X, totals=totals, factors=factors, noise_variance=noise_variance, rounds=rounds)
        return belief._with(fitted_at=belief.n_data)

    def with_hyperparameters(self, hyperparameters: AdditiveHyperparameters) -> "AdditiveGP":
        """Belief with the same data and other hyper-parameters.

        Raises:
            ShapeError: If they do not fit the scopes.
        """
        sizes = [len(lengths) for lengths in hyperparameters.lengthscales]
        if sizes != [len(scope) for scope in self.scopes]:
            raise ShapeError(f"hyperparameters: got lengthscales of sizes {sizes}; wanted those of the graph's scopes")
        return self._with(hyperparameters=hyperparameters, base=None, given=None)

    @property
    def needs_fit(self) -> bool:
        """True if a fit is due: with the first data, and then after every ``settings.refit_every`` evaluations."""
        return self.n_data - self.fitted_at >= (self.settings.refit_every if self.fitted_at else 1)

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        totals: ArrayLike | None = None,
        factors: ArrayLike | None = None,
        noise_variance: ArrayLike | float | None = None,
        rounds: ArrayLike | float | None = None,
    ) -> "AdditiveGP":
        """Learn outcomes. Hyper-parameters do not change, and pending points are removed.

        The factorisation of the data so far is extended, in time quadratic in the number of data.

        Args:
            X: New points (n, d), physical, with columns in the order of ``graph.variables``; points may repeat.
            y: Totals (n,) of the points, or their outcomes per factor (n, k).
            totals: Totals (n,), if ``factors`` are also given.
            factors: Outcomes per factor (n, k), in the order of ``graph.factors``.
            noise_variance: Known variance >= 0 of the noise, in the square of the outcome's unit. It replaces the
                fitted variance. Its shape is () for all, (n,) per point, (n, k) per outcome of a factor, or (n, 1 + k)
                with the total's variance first. NaN, the default, keeps the fitted variance. Standard deviations below
                1e-4 of the scale of outcomes, which is 1 until a fit, are raised to it.
            rounds: Round of each evaluation (n,), or one for all; by default the present round. It has an effect only
                with a time axis.

        Returns:
            The new belief. In its outcomes, NaN means that an outcome was not observed.

        Raises:
            ShapeError: If shapes do not fit, or an outcome is infinite or above 1e60 in size; the row is named.
        """
        if y is not None:
            if totals is not None or factors is not None:
                raise ShapeError("y: got it together with totals or factors; wanted either y, or totals and factors")
            totals, factors = (y, None) if np.ndim(y) == 1 else (None, y)
        points, k = checked_points(X, self.domain.n_dims), len(self.graph.factors)
        n = len(points)
        sums = checked_partial_outcomes("totals", totals, (n,))
        parts = checked_partial_outcomes("factors", factors, (n, k))
        noise, rounds = checked_noise(noise_variance, n, k), checked_rounds(self.now if rounds is None else rounds, n)
        return self._with_outcomes(points, sums, parts, noise, rounds) if n else self

    def condition_on_pending(
        self, X: ArrayLike, rounds: ArrayLike | float | None = None, awaited: ArrayLike | None = None
    ) -> "AdditiveGP":
        """Belief conditioned on pending evaluations: the variance falls, and the mean does not change.

        Source: Desautels, Krause & Burdick 2014, section 4 (hallucinated outcomes).

        Args:
            X: Points (p, n), physical, in addition to those already pending.
            rounds: Round of each point (p,), or one for all; by default the present round. Points of older rounds
                reduce the present variance less.
            awaited: Mask (p, k) of the factors whose outcome is pending, if some outcomes are known. By default, all
                are pending: as totals or one by one, according to ``outcomes``.

        Raises:
            ShapeError: If a shape does not fit, or a value is not finite.
        """
        points, k = checked_points(X, self.domain.n_dims), len(self.graph.factors)
        rounds = checked_rounds(self.now if rounds is None else rounds, len(points))
        to_come = np.ones((len(points), k), dtype=bool) if awaited is None else np.array(awaited, dtype=bool)
        if to_come.shape != (len(points), k):
            raise ShapeError(f"awaited: got shape {to_come.shape}; wanted {(len(points), k)}, one column a factor")
        return self._with_pending(points, rounds, to_come)

    @property
    def by_factor_ahead(self) -> "AdditiveGP":
        """Belief in which outcomes of all factors are pending instead of totals, if these outcomes are at most 512.

        A pending total hardly reduces the standard deviation of a single factor. So, with pending totals, the sum of
        factors' standard deviations would again be largest at a pending point.
        """
        count = len(self.scopes) * self.n_pending
        is_split = self.outcomes == "total" and len(self.scopes) > 1 and 0 < count <= _MOST_AHEAD
        return self._with(outcomes="per-factor", given=None) if is_split else self

    def fit(self, rng: np.random.Generator, *, warm: AdditiveHyperparameters | None = None) -> "AdditiveGP":
        """Refit all hyper-parameters, means and scales to all data. Pending points are removed.

        Args:
            rng: Random stream for starts.
            warm: Hyper-parameters of an earlier fit, at which the search starts; None: no earlier fit.

        Returns:
            The new belief. Degenerate data (no or one outcome, equal points or equal outcomes) give a proper belief.
            Hyper-parameters that they do not determine are at the prior's mode.
        """
        if self._has_totals:  # totals couple all factors
            return self._fitted(fit_jointly(self, rng, warm))
        return self._fitted(fit_together([self], [rng], [warm])[0])

    def with_units(self, rng: np.random.Generator) -> "AdditiveGP":
        """Belief with a fit of the factors whose outcomes vary now but not at the last fit, if there are any."""
        current, unknown = self.hyperparameters, np.flatnonzero(np.array(self.hyperparameters.scales) == 1.0)
        if not self._has_totals:
            unknown = unknown[np.isfinite(self.factors[:, unknown]).any(axis=0)]
        if not len(unknown):
            return self
        is_kept = np.full(len(current.scales), True)
        is_kept[unknown] = units(self.totals, self.factors[:, unknown])[1] == 1.0
        if self._has_totals:  # totals have one unit, so either all factors are fitted or none
            is_kept[:] = is_kept.all()
        if is_kept.all():
            return self
        return self.with_hyperparameters(current.mixed(self.fit(rng, warm=current).hyperparameters, is_kept.tolist()))

    @classmethod
    def fit_together(
        cls,
        beliefs: "Sequence[AdditiveGP]",
        rngs: Sequence[np.random.Generator],
        warm: Sequence[AdditiveHyperparameters | None],
    ) -> "list[AdditiveGP]":
        """Fit several beliefs together in compiled code; see ``swarmbo.belief.gp.fit.fit_together``."""
        fits = zip(beliefs, fit_together(beliefs, rngs, warm), strict=True)
        return [belief._fitted(hyperparameters) for belief, hyperparameters in fits]

    def _fitted(self, hyperparameters: AdditiveHyperparameters) -> "AdditiveGP":
        return self._with(hyperparameters=hyperparameters, fitted_at=self.n_data, base=None, **self._none_pending)
