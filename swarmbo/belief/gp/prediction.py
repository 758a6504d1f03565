"""Predictions of a Gaussian process whose covariance is factorised."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.cache import PosteriorCache
from swarmbo.belief.gp.cholesky import extend, solve_lower, solve_lower_transposed
from swarmbo.belief.gp.gradient import covariance_gradient, posterior_gradient
from swarmbo.belief.gp.placed import CHUNK, PlacedGP


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorisedGP(PlacedGP):
    """What predictions need: hyper-parameters, points, and the factorised covariance of their outcomes.

    Source: Rasmussen & Williams 2006, alg. 2.1.

    Its place and time, and the fields not listed here, are those of its base, ``PlacedGP``.

    Args:
        X: Data points (n, d), physical; (n, d + 1) with a time axis.
        pending: Points (p, d), physical, whose outcomes are still to come.
        L: Lower Cholesky factor (t, t), t = n + p, of the covariance of standardised outcomes, pending ones last.
        whitened: L⁻¹ times the standardised outcomes less their mean (t,); 0 for pending ones.
        jitter: Variance (t,) added to the diagonal where it was singular in float64; standardised, mostly 0.
    """

    X: Float[np.ndarray, "n d"]
    pending: Float[np.ndarray, "p d"]
    L: Float[np.ndarray, "t t"]
    whitened: Float[np.ndarray, " t"]
    jitter: Float[np.ndarray, " t"]

    def __post_init__(self) -> None:
        for array in (self.X, self.pending, self.L, self.whitened, self.jitter):
            array.flags.writeable = False

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
        for start in range(0, points.shape[0], CHUNK):
            U = self._to_unit(points[start : start + CHUNK])
            mean[start : start + CHUNK] += self._prior_cov(U, self._conditioned_on()) @ weights
        return h.offset + h.scale * mean

    @staticmethod
    def posterior_means(
        beliefs: "Sequence[FactorisedGP]", X: Float[np.ndarray, "m d"]
    ) -> list[Float[np.ndarray, " m"]]:
        """Means of several beliefs at the same points; of data that they have in common, covariances are taken once.

        Args:
            beliefs: At least one, of one domain, with equal hyper-parameters and at one moment.
            X: Points (m, d), physical.

        Returns:
            Means (m,) of each, in the unit of the outcome: those of ``posterior_mean``, to rounding.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        first, counts = beliefs[0], [len(belief.L) for belief in beliefs]
        data = np.concatenate([belief._conditioned_on() for belief in beliefs])
        union, places = np.unique(data, axis=0, return_inverse=True)
        weights = np.zeros((len(union), len(beliefs)))
        columns = np.repeat(np.arange(len(beliefs)), counts)
        every = np.concatenate([solve_lower_transposed(belief.L, belief.whitened) for belief in beliefs])
        np.add.at(weights, (places.ravel(), columns), every)
        points, h = first._points(X), first.hyperparameters
        means = np.full((points.shape[0], len(beliefs)), h.mean)
        for start in range(0, points.shape[0], CHUNK):
            U = first._to_unit(points[start : start + CHUNK])
            means[start : start + CHUNK] += first._prior_cov(U, union) @ weights
        return list((h.offset + h.scale * means).T)

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
