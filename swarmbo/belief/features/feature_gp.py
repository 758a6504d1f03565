"""A Gaussian process in the weights of random features: a belief from a summary of data, not from the data."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from swarmbo.belief.features.feature_basis import FeatureBasis
from swarmbo.belief.features.information import Information
from swarmbo.belief.gp.cholesky import factorise, solve_lower, solve_lower_transposed
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.belief.gp.spatial import CHUNK, FieldGP


@dataclass(frozen=True, eq=False)
class FeatureCache:
    """Posterior at m points, in physical units; V is L⁻¹ features(points)ᵀ, L Lᵀ the precision of the weights."""

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    V: Float[np.ndarray, "p m"]
    scale: float

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets, given as indices or slices."""
        return self.scale**2 * (self.V[:, rows].T @ self.V[:, cols])


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureGP(FieldGP):
    """The posterior of y = offset + scale (mean + features(u)·w + noise), w ~ N(0, I), given a summary of data.

    It needs the data's information about w only, so beliefs can be fused without the data. It has the predictions of an
    ``ExactGP`` up to the deviation of the basis from the kernel; p features have p degrees of freedom, so with about p
    data or more its variance is too small far from them.

    Source: Rasmussen & Williams 2006, eq. 2.11, with the features of Rahimi & Recht 2007.
    """

    basis: FeatureBasis
    information: Information
    pending: Float[np.ndarray, "q d"] | None = None

    @cached_property
    def _root(self) -> Float[np.ndarray, "p p"]:
        precision = self.information.precision
        if self.pending is not None:
            Phi = self.basis.features(self._to_unit(self.pending))
            precision = precision + Phi.T @ Phi / self.hyperparameters.noise_variance
        return factorise(precision + np.eye(precision.shape[0]))[0]

    @cached_property
    def weights(self) -> Float[np.ndarray, " p"]:
        """Posterior mean of the weights; pending points do not change it."""
        L = self._root if self.pending is None else replace(self, pending=None)._root
        return solve_lower_transposed(L, solve_lower(L, self.information.shift))

    @property
    def n_data(self) -> int:
        """Number of outcomes in the summary, rounded if fractions of summaries were added."""
        return round(self.information.count)

    def condition_on_pending(self, X: Float[np.ndarray, "q d"]) -> "FeatureGP":
        """A belief whose variance includes pending measurements with the usual noise, and whose mean does not change.

        Source: Desautels, Krause & Burdick 2014, section 4.
        """
        points = self._points(X)
        if points.shape[0] == 0:
            return self
        return replace(self, pending=points if self.pending is None else np.concatenate([self.pending, points]))

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Mean (m,) of the field at physical points (m, d), without the cost of a variance."""
        points, mean = self._points(X), np.empty(np.shape(X)[0])
        for start in range(0, points.shape[0], CHUNK):
            rows = slice(start, start + CHUNK)
            mean[rows] = self._mean(self._features(points[rows]))
        return mean

    def posterior_cache(self, X: ArrayLike) -> FeatureCache:
        """Posterior at fixed physical points (m, d), with fast covariances between subsets."""
        Phi, scale = self._features(X), self.hyperparameters.scale
        V = solve_lower(self._root, Phi.T)
        return FeatureCache(self._mean(Phi), scale**2 * np.einsum("pm,pm->m", V, V), V, scale)

    def _features(self, X: ArrayLike) -> Float[np.ndarray, "m p"]:
        return self.basis.features(self._to_unit(self._points(X)))

    def _mean(self, Phi: Float[np.ndarray, "m p"]) -> Float[np.ndarray, " m"]:
        h = self.hyperparameters
        return h.offset + h.scale * (h.mean + Phi @ self.weights)


def basis_of(hyperparameters: Hyperparameters, n_features: int, seed: int) -> FeatureBasis:
    """Basis drawn for hyper-parameters: over locations, or over locations and times."""
    h = hyperparameters
    time = None if h.time is None else (h.time.kernel, h.time.lengthscale)
    return FeatureBasis.create(seed, h.kernel, np.array(h.lengthscales), h.outputscale, n_features, time)
