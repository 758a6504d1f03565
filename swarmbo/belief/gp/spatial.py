"""Belief about physical places, perhaps with a time axis, and the unit cube in which it computes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp.data import checked_points
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.belief.views import PosteriorCache
from swarmbo.spaces import Domain

CHUNK = 4096  # points predicted at once: bounds the memory of a whole map to CHUNK times the number of data or features


@dataclass(frozen=True, eq=False, kw_only=True)
class SpatialGP(ABC):
    """A Gaussian process over a box, which predicts from what it says of points jointly.

    With a time axis, points may carry the round that they are of as a last coordinate. Predictions and new data are of
    the belief's own round ``now``, unless points state theirs; ``at`` moves it.
    """

    domain: Domain
    now: float = 0.0

    @property
    @abstractmethod
    def has_time(self) -> bool:
        """True if the belief has a time axis."""

    @abstractmethod
    def posterior_cache(self, X: ArrayLike) -> PosteriorCache:
        """The posterior at fixed points (m, d), physical, from which covariances between subsets are cheap."""

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the field (without measurement noise).

        Args:
            X: Points (m, d), physical.

        Returns:
            Means (m,) in the unit of the outcome, and variances (m,) >= 0 in its square.

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
        """Mean and joint covariance of the field.

        Args:
            X: Points (m, d), physical.

        Returns:
            Means (m,) in the unit of the outcome, and covariances (m, m) in its square.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        cache = self.posterior_cache(X)
        everything = np.arange(cache.mean.size)
        return cache.mean, cache.cov(everything, everything)

    def _points(self, X: ArrayLike) -> Float[np.ndarray, "m c"]:
        return checked_places(X, self.domain, self.has_time, self.now)

    def _to_unit(self, X: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "m c"]:
        return to_unit(self.domain, X)


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
        """The same belief at another round; itself without a time axis."""
        return replace(self, now=float(now)) if self.has_time else self


def checked_places(X: ArrayLike, domain: Domain, has_time: bool, now: float) -> Float[np.ndarray, "m c"]:
    """Points (m, d) checked, with their rounds last where there is a time axis: their own, or ``now``."""
    d, given = domain.n_dims, np.array(X, dtype=float)
    if not has_time:
        return checked_points(given, d)
    if given.ndim == 2 and given.shape[1] == d + 1:
        return checked_points(given, d + 1)
    return np.insert(checked_points(given, d), d, now, axis=1)


def to_unit(domain: Domain, X: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "m c"]:
    """Physical points in the unit cube; rounds, the coordinate after those of the domain, stay as they are."""
    d = domain.n_dims
    return domain.to_unit(X) if X.shape[1] == d else np.hstack([domain.to_unit(X[:, :d]), X[:, d:]])
