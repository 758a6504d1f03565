"""Predictions of a Gaussian process whose covariance is factorised."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.cache import PosteriorCache
from swarmbo.belief.cholesky import extend, solve_lower, solve_lower_transposed
from swarmbo.belief.data import checked_points
from swarmbo.belief.gradient import covariance_gradient, posterior_gradient
from swarmbo.belief.hyperparameters import Hyperparameters
from swarmbo.spaces import Domain

_CHUNK = 4096  # points predicted at once: bounds the memory of a whole map to _CHUNK times the number of data


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorisedGP:
    """What predictions need: hyper-parameters, points, and the factorised covariance of their outcomes.

    Source: Rasmussen & Williams 2006, alg. 2.1.

    With a time axis, data points carry the round of their measurement as a last coordinate. Predictions and new data
    are of the belief's own moment ``now``, unless points state theirs; ``at`` moves it.

    Args:
        domain: The box of physical points.
        hyperparameters: At present.
        X: Data points (n, d), physical; (n, d + 1) with a time axis.
        pending: Points (p, d), physical, whose outcomes are still to come.
        L: Lower Cholesky factor (t, t), t = n + p, of the covariance of standardised outcomes, pending ones last.
        whitened: L⁻¹ times the standardised outcomes less their mean (t,); 0 for pending ones.
        jitter: Variance (t,) added to the diagonal where it was singular in float64; standardised, mostly 0.
        now: The moment of points that don't state theirs, in rounds; of no meaning without a time axis.
    """

    domain: Domain
    hyperparameters: Hyperparameters
    X: Float[np.ndarray, "n d"]
    pending: Float[np.ndarray, "p d"]
    L: Float[np.ndarray, "t t"]
    whitened: Float[np.ndarray, " t"]
    jitter: Float[np.ndarray, " t"]
    now: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.X, self.pending, self.L, self.whitened, self.jitter):
            array.flags.writeable = False

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
        """Whether data fade."""
        return self.hyperparameters.time is not None

    def at(self, moment: float) -> Self:
        """The same belief at another moment; itself where nothing fades.

        Args:
            moment: In rounds.
        """
        return replace(self, now=float(moment)) if self.has_time else self

    def _points(self, X: ArrayLike) -> Float[np.ndarray, "m c"]:
        """Points checked, with their moments where the belief has a time axis."""
        d, given = self.domain.n_dims, np.array(X, dtype=float)
        if not self.has_time:
            return checked_points(given, d)
        if given.ndim == 2 and given.shape[1] == d + 1:
            return checked_points(given, d + 1)
        return np.insert(checked_points(given, d), d, self.now, axis=1)

    def _to_unit(self, X: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "m c"]:
        """Checked points in the unit cube; moments stay as they are."""
        d = self.domain.n_dims
        return self.domain.to_unit(X) if not self.has_time else np.hstack([self.domain.to_unit(X[:, :d]), X[:, d:]])

    def _per_physical(self, gradient: Float[np.ndarray, "*m c"], X: ArrayLike) -> Float[np.ndarray, "*m c"]:
        """A gradient per unit of the unit cube as one per physical unit, of the coordinates that were given."""
        sides = self.domain.high - self.domain.low
        n_given = np.shape(X)[1]
        return gradient[..., :n_given] / np.append(sides, 1.0)[:n_given]

    def _prior_cov(self, U: Float[np.ndarray, "n c"], Z: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "n m"]:
        """Standardised prior covariances between points of the unit cube."""
        return self.hyperparameters.prior.matrix(U, Z)

    def _conditioned_on(self) -> Float[np.ndarray, "t c"]:
        """Data and pending points, in the unit cube."""
        return self._to_unit(np.concatenate([self.X, self.pending]))

    def _extended(
        self, X_old: Float[np.ndarray, "n c"], L: Float[np.ndarray, "n n"], X_new: Float[np.ndarray, "k c"]
    ) -> tuple[Float[np.ndarray, "n+k n+k"], float]:
        U = self._to_unit(X_new)
        noise = self.hyperparameters.noise_variance * np.eye(U.shape[0])
        return extend(L, self._prior_cov(U, self._to_unit(X_old)), self._prior_cov(U, U) + noise)

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
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
        for start in range(0, points.shape[0], _CHUNK):
            rows = slice(start, start + _CHUNK)
            part = self.posterior_cache(points[rows])
            mean[rows], var[rows] = part.mean, part.var
        return mean, var

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Mean of the field, without the cost of a variance.

        Args:
            X: Points (m, d), physical.

        Returns:
            Means (m,) in the unit of the outcome.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        points, h = self._points(X), self.hyperparameters
        weights = solve_lower_transposed(self.L, self.whitened)
        mean = np.full(points.shape[0], h.mean)
        for start in range(0, points.shape[0], _CHUNK):
            U = self._to_unit(points[start : start + _CHUNK])
            mean[start : start + _CHUNK] += self._prior_cov(U, self._conditioned_on()) @ weights
        return h.offset + h.scale * mean

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> PosteriorCache:
        """The posterior at fixed points, from which covariances between subsets are cheap.

        Args:
            X: Points (m, d), physical.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        U, h = self._to_unit(self._points(X)), self.hyperparameters
        V = solve_lower(self.L, self._prior_cov(self._conditioned_on(), U))
        mean = h.offset + h.scale * (h.mean + V.T @ self.whitened)
        var = h.scale**2 * np.maximum(h.outputscale - np.einsum("nm,nm->m", V, V), 0.0)
        return PosteriorCache(mean, var, V, U, h.prior, h.scale)

    def joint_posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m m"]]:
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

    def posterior_gradient(
        self, X: Float[np.ndarray, "m d"]
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m d"], Float[np.ndarray, " m"], Float[np.ndarray, "m d"]]:
        """Mean and variance of the field with their gradients.

        Args:
            X: Points (m, d), physical. Exactly at a data point the gradients of Matern-1/2, which has cusps there, take
                the middle of the one-sided ones.

        Returns:
            Means (m,), their gradients (m, d), variances (m,), their gradients (m, d); physical, per physical unit of
            each coordinate.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        cache = self.posterior_cache(X)
        mean_gradient, var_gradient = posterior_gradient(cache, self._conditioned_on(), self.L, self.whitened)
        return cache.mean, self._per_physical(mean_gradient, X), cache.var, self._per_physical(var_gradient, X)

    def joint_posterior_gradient(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m m d"]:
        """Gradient of the joint covariance: how cov[i, j] changes when point i moves.

        Args:
            X: Points (m, d), physical.

        Returns:
            Entry [i, j, a] is d cov[i, j] / d X[i, a] with all other points at rest; [i, i] is the gradient of the
            variance. The derivative with respect to X[j] is entry [j, i], because cov is symmetric. In the square of
            the outcome's unit per physical unit of the coordinate.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        gradient = covariance_gradient(self.posterior_cache(X), self._conditioned_on(), self.L)
        return self._per_physical(gradient, X)
