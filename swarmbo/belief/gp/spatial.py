"""Beliefs about a field: their protocol, local beliefs of agents, and a base of processes over a box and time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.boundary.values import LARGEST_OUTCOME, real_array, short
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.records import Neglected
from swarmbo.spaces import Domain


@runtime_checkable
class PosteriorCache(Protocol):
    """A posterior at m points: means (m,), variances (m,), and covariances between subsets, in the outcome's unit."""

    @property
    def mean(self) -> Float[np.ndarray, " m"]:
        """Posterior means (m,)."""
        ...

    @property
    def var(self) -> Float[np.ndarray, " m"]:
        """Latent posterior variances (m,), >= 0."""
        ...

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets of the points."""
        ...


@runtime_checkable
class PlaceBelief(Protocol):
    """Belief as acquisitions read it, such as an ``ExactGP`` or a ``FeatureGP``."""

    @property
    def n_data(self) -> int:
        """Number of outcomes."""
        ...

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise, in the square of the outcome's unit."""
        ...

    @property
    def prior_variance(self) -> float:
        """Variance of the field before any data, in the square of the outcome's unit."""
        ...

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means and variances at physical points."""
        ...

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means at physical points."""
        ...

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> PosteriorCache:
        """Posterior at fixed points, with fast covariances."""
        ...

    def at(self, now: float) -> "PlaceBelief":
        """Belief at another round; unchanged without a time axis."""
        ...

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "PlaceBelief":
        """Belief whose variance includes pending measurements at ``X``; the mean is unchanged."""
        ...


class Delegating(ABC):
    """Base of beliefs that delegate predictions to another belief."""

    @property
    @abstractmethod
    def delegate(self) -> PlaceBelief:
        """Belief that predicts."""

    @property
    def n_data(self) -> int:
        """Number of outcomes of the delegate."""
        return self.delegate.n_data

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise by the delegate, in the square of the outcome's unit."""
        return self.delegate.noise_variance

    @property
    def prior_variance(self) -> float:
        """Variance of the field before any data by the delegate, in the square of the outcome's unit."""
        return self.delegate.prior_variance

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means and variances of the delegate at physical points."""
        return self.delegate.posterior(X)

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means of the delegate at physical points."""
        return self.delegate.posterior_mean(X)

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> PosteriorCache:
        """Posterior of the delegate at fixed points, with fast covariances."""
        return self.delegate.posterior_cache(X)


@dataclass(frozen=True, eq=False)
class Views(Delegating):
    """Local beliefs by agent; the team's is that of ``representative`` ("": beliefs of other agents are not known)."""

    by_agent: Mapping[str, PlaceBelief]
    representative: str

    @property
    def delegate(self) -> PlaceBelief:
        """Belief of the representative."""
        if not self.representative:
            raise ConfigError(f"got the beliefs of {list(self.by_agent)}; wanted all, or one: view_of(belief, agent)")
        return self.by_agent[self.representative]

    def at(self, now: float) -> "Views":
        """Beliefs at another round."""
        return self._changed(lambda belief: belief.at(now))

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "Views":
        """Beliefs whose variances include pending measurements."""
        return self._changed(lambda belief: belief.condition_on_pending(X))

    def _changed(self, change: Callable[[PlaceBelief], PlaceBelief]) -> "Views":
        """Changed beliefs; beliefs that agents share stay shared."""
        distinct = {id(belief): belief for belief in self.by_agent.values()}
        changed = {key: change(belief) for key, belief in distinct.items()}
        return Views({name: changed[id(belief)] for name, belief in self.by_agent.items()}, self.representative)


def view_of(belief: PlaceBelief, agent: str) -> PlaceBelief:
    """Local belief of an agent, or the shared one."""
    return belief.by_agent[agent] if isinstance(belief, Views) else belief


def has_view(belief: PlaceBelief, agent: str) -> bool:
    """True if an agent's belief is known here: where beliefs are local, an agent knows only its own."""
    return not isinstance(belief, Views) or agent in belief.by_agent


def checked_points(X: ArrayLike, n_dims: int) -> Float[np.ndarray, "m d"]:
    """A copy of points (m, d) as finite floats."""
    points = _floats("X", X)
    if points.ndim != 2 or points.shape[1] != n_dims:
        raise ShapeError(f"X: got shape {points.shape}; wanted (m, {n_dims}), one point a row")
    if not (finite := np.isfinite(points).all(axis=1)).all():
        row = int(np.argmin(finite))
        raise ShapeError(f"X[{row}]: got {points[row].tolist()}; wanted finite coordinates")
    return points


def checked_outcomes(y: ArrayLike, n_points: int) -> Float[np.ndarray, " n"]:
    """A copy of outcomes as finite floats below 1e60 in size, one a point."""
    outcomes = _floats("y", y)
    if outcomes.shape != (n_points,):
        raise ShapeError(f"y: got shape {outcomes.shape} for {n_points} points; wanted ({n_points},)")
    wanted = f"a finite number below {LARGEST_OUTCOME:g} in size; leave failed measurements out"
    _refuse("y", outcomes, ~(np.abs(outcomes) < LARGEST_OUTCOME), wanted)  # a NaN compares false
    return outcomes


def checked_partial_outcomes(name: str, y: ArrayLike | None, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """A copy of outcomes as floats, NaN where there is none; all NaN for None."""
    if y is None:
        return np.full(shape, np.nan)
    outcomes = _floats(name, y)
    if outcomes.shape != shape:
        raise ShapeError(f"{name}: got shape {outcomes.shape}; wanted {shape}")
    wanted = f"a number below {LARGEST_OUTCOME:g} in size, or NaN where a measurement failed"
    _refuse(name, outcomes, ~np.isnan(outcomes) & ~(np.abs(outcomes) < LARGEST_OUTCOME), wanted)
    return outcomes


def checked_noise(
    noise_variance: ArrayLike | float | None, n_points: int, n_factors: int | None = None
) -> Float[np.ndarray, "n c"]:
    """Known noise variances (n, 1 + k) of each point's total and k factors (None: a field, as one factor); NaN where
    unknown. One may be given for everything, or one per point (n,), per factor (n, k), or, except in a field, per total
    and factor (n, 1 + k); None: all unknown. With one factor, a column (n, 1) is also the total's.
    """
    noise = _floats("noise_variance", np.nan if noise_variance is None else noise_variance)
    n, k = n_points, n_factors or 1
    if noise.shape not in ((), (n,), (n, k), (n, 1 + k if n_factors else k)):
        wanted = f"({n},) or ({n}, 1)" if k == 1 else f"({n},), ({n}, {k}) or ({n}, {1 + k})"
        raise ShapeError(f"noise_variance: got shape {noise.shape} for {n} points; wanted {wanted}")
    refused = ~np.isnan(noise) & ~((noise >= 0.0) & (noise < LARGEST_OUTCOME**2))
    _refuse("noise_variance", noise, refused, "a finite number >= 0, or NaN for the fitted one")
    if noise.ndim < 2 or noise.shape == (n, 1):
        return np.broadcast_to(noise.reshape(-1, 1), (n, 1 + k)).copy()
    return noise if noise.shape[1] == 1 + k else np.column_stack([np.full(n, np.nan), noise])


def checked_rounds(rounds: ArrayLike | float, n_points: int) -> Float[np.ndarray, " n"]:
    """A copy of rounds as finite floats, one a point; one may be given for all."""
    rounds = _floats("rounds", rounds)
    if rounds.shape not in ((), (n_points,)):
        raise ShapeError(f"rounds: got shape {rounds.shape} for {n_points} points; wanted ({n_points},)")
    rounds = np.full(n_points, rounds)
    _refuse("rounds", rounds, ~np.isfinite(rounds), "a finite number of rounds")
    return rounds


def _floats(name: str, given: object) -> Float[np.ndarray, "..."]:
    """A copy as floats; masked entries become NaN."""
    if (floats := real_array(given)) is None:
        raise ShapeError(f"{name}: got {short(given)}; wanted an array of numbers")
    return floats


def _refuse(name: str, given: Float[np.ndarray, "..."], refused: Bool[np.ndarray, "..."], wanted: str) -> None:
    if refused.any():
        place = tuple(np.argwhere(refused)[0].tolist())
        at = "".join(f"[{index}]" for index in place)
        raise ShapeError(f"{name}{at}: got {given[place]}; wanted {wanted}")


CHUNK = 4096  # points predicted at once: bounds the memory of a whole map to CHUNK times the number of data or features


@dataclass(frozen=True, eq=False, kw_only=True)
class SpatialGP(ABC):
    """Base of Gaussian processes over a box, whose predictions are those of ``posterior_cache``.

    With a time axis, points may have their round as a last coordinate. Points without a round are of the belief's round
    ``now``, which ``at`` changes.
    """

    domain: Domain
    now: float = 0.0

    @property
    @abstractmethod
    def has_time(self) -> bool:
        """True if the belief has a time axis."""

    @abstractmethod
    def posterior_cache(self, X: ArrayLike) -> PosteriorCache:
        """Posterior at fixed points (m, d), physical, which gives covariances between subsets cheaply."""

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means (m,) and variances (m,) >= 0 of the field, without noise, at points (m, d), physical.

        They are in the unit of the outcome and in its square.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        points = self._points(X)
        mean, var = np.empty(points.shape[0]), np.empty(points.shape[0])
        for start in range(0, points.shape[0], CHUNK):
            rows = slice(start, start + CHUNK)
            part = self.posterior_cache(points[rows])
            mean[rows], var[rows] = part.mean, part.var
        return mean, var

    def joint_posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m m"]]:
        """Means (m,) and covariances (m, m), without noise as in ``posterior``, at points (m, d), physical."""
        cache = self.posterior_cache(X)
        everything = np.arange(cache.mean.size)
        return cache.mean, cache.cov(everything, everything)

    def _points(self, X: ArrayLike) -> Float[np.ndarray, "m c"]:
        return checked_places(X, self.domain, self.has_time, self.now)


@dataclass(frozen=True, eq=False, kw_only=True)
class FieldGP(SpatialGP):
    """A Gaussian process of one field."""

    hyperparameters: Hyperparameters

    @property
    def noise_variance(self) -> float:
        """Variance of the measurement noise, in the square of the outcome's unit."""
        return self.hyperparameters.noise_variance * self.hyperparameters.scale**2

    @property
    def prior_variance(self) -> float:
        """Variance of the field before any data, in the square of the outcome's unit."""
        return self.hyperparameters.outputscale * self.hyperparameters.scale**2

    @property
    def has_time(self) -> bool:
        """True if the belief has a time axis."""
        return self.hyperparameters.time is not None

    def at(self, now: float) -> Self:
        """Belief for another round; this belief if there is no time axis."""
        return replace(self, now=float(now)) if self.has_time else self

    def neglected(self) -> Neglected | None:
        """Effect of the measurements that the belief leaves out; None if it leaves none out, as here."""
        return None


def checked_places(X: ArrayLike, domain: Domain, has_time: bool, now: float) -> Float[np.ndarray, "m c"]:
    """Checked points (m, d). With a time axis (m, d + 1), the last coordinate is the round: their own, or ``now``."""
    d, given = domain.n_dims, _floats("X", X)
    if not has_time:
        return checked_points(given, d)
    if given.ndim == 2 and given.shape[1] == d + 1:
        return checked_points(given, d + 1)
    return np.insert(checked_points(given, d), d, now, axis=1)


def to_unit(domain: Domain, X: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "m c"]:
    """Physical points in the unit cube; rounds, the coordinate after those of the domain, stay as they are."""
    d = domain.n_dims
    return domain.to_unit(X) if X.shape[1] == d else np.hstack([domain.to_unit(X[:, :d]), X[:, d:]])
