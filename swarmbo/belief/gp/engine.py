"""Exact inference over channels: the common engine of beliefs about a field and about a sum.

A channel is a sum of latents, independent Gaussian processes that are each read at a projection of the point. A field
is one latent and one channel; a sum over a factor graph has a latent and a channel for each factor, and one more
channel, the total, which reads them all. Outcomes of the total couple the latents; others leave them independent.

Inside, points live in the unit cube and outcomes are standardised; outside, everything is physical.

Source: Rasmussen & Williams 2006, alg. 2.1; Duvenaud et al. 2011 for sums; Desautels, Krause & Burdick 2014, section 4,
for pending points.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp.conditioning import Conditioned, JointPosterior, OneMatrix
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.observations import TOTAL, Observations
from swarmbo.belief.gp.spatial import CHUNK, SpatialGP, checked_rounds
from swarmbo.belief.gp.stack import StackedParts
from swarmbo.errors import ConfigError

Outcomes = Literal["total", "per-factor"]
Table = Float[np.ndarray, "n _"]
Column = Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ChannelGP(SpatialGP):
    """Immutable belief about channels: methods that learn return a new belief. Joint predictions are of ``channel``.

    An outcome is NaN if it was not observed. A noise variance (the total's is first) is NaN if it is fitted.
    ``pending`` points are conditioned on without an outcome; ``awaited`` marks the factors whose outcomes are pending.
    If all factors of a point are pending, ``outcomes`` is the form of their outcomes: a total, or one per factor.

    Each posterior extends the one before: ``base`` (first data), ``_on_data`` (all data), ``_conditioned`` (data and
    pending points). A belief passes the second on as ``base``, and the third as ``given``; None if it has none.
    ``barred`` marks points that may not be incumbents; None if there are none.
    """

    channel: ClassVar[int] = TOTAL
    is_one_latent: ClassVar[bool] = False  # True: only the Cholesky factor is kept, and no inverse

    points: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    factors: Float[np.ndarray, "t k"]
    noise: Float[np.ndarray, "t c"]
    rounds: Float[np.ndarray, " t"]
    pending: Float[np.ndarray, "p n"]
    pending_rounds: Float[np.ndarray, " p"]
    awaited: Bool[np.ndarray, "p k"]
    outcomes: Outcomes
    base: Conditioned | None = None
    given: Conditioned | None = None
    barred: Bool[np.ndarray, " t"] | None = None

    def __post_init__(self) -> None:
        if self.outcomes not in get_args(Outcomes):
            raise ConfigError(f"got {self.outcomes!r}; wanted 'total' or 'per-factor'", at="$.outcomes")
        for name in self._no_data(0, 0):
            getattr(self, name).flags.writeable = False

    @cached_property
    @abstractmethod
    def channels(self) -> AdditiveHyperparameters:
        """Hyper-parameters of latents and channels."""

    @property
    @abstractmethod
    def scopes(self) -> Sequence[Sequence[int]]:
        """Coordinates of a point that each latent depends on."""

    @staticmethod
    def _no_data(n: int, k: int) -> dict[str, Any]:
        none, points = np.zeros(0), np.zeros((0, n))
        data = {"points": points, "totals": none, "factors": np.zeros((0, k)), "noise": np.zeros((0, 1 + k))}
        ahead = {"pending": points, "pending_rounds": none, "awaited": np.zeros((0, k), dtype=bool)}
        return {**data, "rounds": none, **ahead}

    def extended_from(self, earlier: "ChannelGP") -> Self:
        """Bit-identical belief; it extends the earlier belief's factorisation if the earlier data come first here."""
        on_data: Conditioned | None = earlier.__dict__.get("_on_data")
        if on_data is None or on_data.is_coupled or self._is_coupled_by_data:
            return self
        data = self.observations
        if on_data.hyper != self.channels or on_data.scopes != self.scopes or not data.begin_with(on_data.data):
            return self
        parts = on_data.parts
        if len(data) > len(on_data.data):
            parts = parts.extended(on_data.hyper, on_data.scopes, data)
        if parts.jitters.any():
            return self  # jitter depends on the order in which rows are added
        return self._with(base=replace(on_data, data=data, parts=parts))

    def drop_cache(self) -> None:
        """Free most memory of many latents: results computed from known data, which are computed again on demand."""
        cached = vars(self)
        on_data = cached.get("_on_data")
        if on_data is not None and not on_data.is_coupled and self.given is None:
            for name in ("_on_data", "_conditioned", "_prepared", "observations", "means_at_data"):
                cached.pop(name, None)
            object.__setattr__(self, "base", None)

    def _with(self, **changes: Any) -> Self:
        return replace(self, **changes)

    @property
    def X(self) -> Float[np.ndarray, "t c"]:  # noqa: N802
        """Evaluated points (t, n), physical."""
        return self.points

    @property
    def n_data(self) -> int:
        """Number of evaluated points with at least one outcome."""
        return int(self.known.sum())

    @cached_property
    def known(self) -> Bool[np.ndarray, " t"]:
        """Mask of evaluated points with at least one outcome."""
        known = ~np.isnan(self.totals) | (~np.isnan(self.factors)).any(axis=1)
        known.flags.writeable = False  # all callers get this one array
        return known

    @property
    def eligible(self) -> Bool[np.ndarray, " t"]:
        """Mask of known points that may be incumbents."""
        return self.known if self.barred is None else self.known & ~self.barred

    @property
    def n_pending(self) -> int:
        """Number of pending points."""
        return len(self.pending)

    @property
    def is_coupled(self) -> bool:
        """True if all latents share one covariance matrix of known and pending outcomes."""
        return self._is_coupled_by_data or (self.outcomes == "total" and bool(self.awaited.all(axis=1).any()))

    @cached_property
    def _has_totals(self) -> bool:
        return bool((~np.isnan(self.totals)).any())

    @property
    def is_tiled(self) -> bool:
        """True if the belief has no covariance matrix of all outcomes."""
        return False

    @property
    def _is_coupled_by_data(self) -> bool:
        """True if the data alone couple all latents in one covariance matrix."""
        return self.is_one_latent or self._has_totals

    @property
    def _is_coupled_by_pending(self) -> bool:
        """True if only pending totals couple the latents; then ``_conditioned`` does not extend ``_on_data``."""
        return self.is_coupled and not self._is_coupled_by_data

    @property
    def jitter(self) -> float:
        """Largest number added to diagonals of covariance matrices to factorise them, relative to them; usually 0."""
        return float(self._conditioned.parts.jitters.max())

    @cached_property
    def observations(self) -> Observations:
        """All outcomes, with one entry each, at points of the unit cube."""
        return Observations.of(self.domain.to_unit(self.points), self.totals, self.factors, self.noise, self.rounds)

    @cached_property
    def ahead(self) -> Observations:
        """Pending outcomes, with one entry each, at points of the unit cube."""
        U, in_sum = self.domain.to_unit(self.pending), self.outcomes == "total"
        return Observations.pending(U, self.awaited, self.pending_rounds, in_sum=in_sum)

    @cached_property
    def _on_data(self) -> Conditioned:
        """Posterior given the data alone; if possible, it extends an earlier factorisation."""
        data, base = self.observations, self.base
        data = data.floored(self.channels) if self._has_totals else data
        if base is not None and base.is_coupled == self._is_coupled_by_data:
            return base.extended(data.take(slice(len(base.data), None))).at(self.now)
        return self._condition_on(data, is_coupled=self._is_coupled_by_data)

    @cached_property
    def _conditioned(self) -> Conditioned:
        """Posterior given the data and pending points."""
        if self.given is not None:
            return self.given
        on_data = self._on_data
        if self._is_coupled_by_pending:
            on_data = self._condition_on(on_data.data.floored(self.channels), is_coupled=True)
        return on_data.extended(self.ahead)

    def _condition_on(self, data: Observations, *, is_coupled: bool) -> Conditioned:
        """Posterior given known outcomes, in one matrix if latents are coupled (by a total)."""
        if not is_coupled:
            parts = StackedParts.of(self.channels, self.scopes, data)
            return Conditioned(self.channels, self.scopes, data, parts, self.now)
        hyper = self.channels.in_one_unit()
        matrix = OneMatrix.of(hyper, self.scopes, data, keeps_inverse=not self.is_one_latent)
        return Conditioned(hyper, self.scopes, data, matrix, self.now)

    @property
    def _next_base(self) -> Conditioned | None:
        """Posterior that later beliefs extend by more data; None if there are no data, or with tiles."""
        return self._on_data if len(self.points) and not self.is_tiled else None

    @property
    def _next_given(self) -> Conditioned | None:
        """Posterior that later beliefs with the same data extend; None if there is none, or ``_next_base`` does."""
        is_apart = self.is_tiled or self._is_coupled_by_pending or not len(self.pending)
        return None if is_apart else self._conditioned

    def _with_outcomes(
        self, points: Table, totals: Column, factors: Table, noise: Table, rounds: Column, **changes: Any
    ) -> Self:
        """Belief with more outcomes, already checked; it extends the factorisation, and drops pending points."""
        new = {"points": points, "totals": totals, "factors": factors, "noise": noise, "rounds": rounds}
        return self._with(**self._appended(new), base=self._next_base, barred=None, **self._none_pending, **changes)

    def _appended(self, new: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: np.concatenate([getattr(self, name), rows]) for name, rows in new.items()}

    def _with_pending(self, points: Table, rounds: Column, awaited: Bool[np.ndarray, "n k"]) -> Self:
        """Belief with more pending points; it extends the posterior, unless pending totals newly couple the latents."""
        if not len(points):
            return self
        new = {"pending": points, "pending_rounds": rounds, "awaited": awaited}
        base = self._on_data if self.given is None and not self.is_tiled else self.base
        more = self._with(**self._appended(new), base=base, given=None)
        if self.is_tiled or more._is_coupled_by_pending:
            return more
        ahead = Observations.pending(self.domain.to_unit(points), awaited, rounds, in_sum=self.outcomes == "total")
        return more._with(given=self._conditioned.extended(ahead))

    @property
    def _none_pending(self) -> dict[str, Any]:
        return {name: getattr(self, name)[:0] for name in ("pending", "pending_rounds", "awaited")} | {"given": None}

    @property
    def without_pending(self) -> Self:
        """Belief from known outcomes only."""
        return self._with(**self._none_pending, base=self._next_base) if len(self.pending) else self

    def at(self, now: float) -> Self:
        """Belief for another (finite) round; this belief if there is no time axis.

        Predictions, and new or pending points without a stated round, are of that round.
        """
        (now,) = checked_rounds(now, 1)
        if not self.has_time or now == self.now:
            return self
        given = self._next_given
        return self._with(now=float(now), base=self._next_base, given=None if given is None else given.at(float(now)))

    def barring(self, X: Table, barred: Bool[np.ndarray, " n"]) -> Self:
        """Belief with the same data, in which these of the points ``X`` of a history may not be incumbents."""
        if not np.array_equal(self.points, X):  # a user's own belief may have some of the rows
            barred = (self.points[:, None] == X[barred]).all(axis=2).any(axis=1)
        return self._with(barred=barred, base=self._next_base, given=self._next_given)

    def log_evidence(self) -> float:
        """Log density of the standardised outcomes at the present hyper-parameters; 0 without data.

        Source: Rasmussen & Williams 2006, eq. 2.30.
        """
        return float(sum(self._on_data.parts.log_densities))

    def posterior_cache(self, X: ArrayLike) -> JointPosterior:
        """Posterior at fixed points, which gives covariances between subsets cheaply."""
        return JointPosterior.of(self._conditioned, self.channel, self._query(self._points(X)))

    def posterior_mean(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Means (m,) at points (m, n), physical, without the cost of a variance."""
        conditioned, points = self._conditioned, self._points(X)
        hyper = conditioned.hyper
        mean = np.full(len(points), hyper.constant_of(self.channel))
        for start in range(0, len(points), CHUNK):
            query = self._query(points[start : start + CHUNK])
            for place in conditioned.parts_of(self.channel):
                scale = hyper.scale_of(self.channel if conditioned.is_coupled else place)
                cross = conditioned.covariance(place, query, conditioned.part_data[place])
                weights = conditioned.parts.alpha[place, : conditioned.parts.counts[place]]
                mean[start : start + CHUNK] += scale * (cross @ weights)
        return mean

    def _query(self, points: Float[np.ndarray, "m c"]) -> Observations:
        """Checked points, with their rounds if there is a time axis, as outcomes of the channel."""
        m, n = len(points), self.domain.n_dims
        rounds = points[:, n] if self.has_time else np.zeros(m)
        channel, nothing = np.full(m, self.channel), np.zeros(m)
        return Observations(self.domain.to_unit(points[:, :n]), np.arange(m), channel, nothing, nothing, rounds)
