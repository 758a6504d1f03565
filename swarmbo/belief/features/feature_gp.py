"""Random features of a stationary kernel, data's information about their weights, and a belief from such a summary."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from swarmbo.belief.gp.cholesky import factorise, solve_lower
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.belief.gp.observations import standardised_noise
from swarmbo.belief.gp.spatial import CHUNK, FieldGP, to_unit
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.kernels import Covariance
from swarmbo.spaces import Domain

_LARGEST = 2**16  # largest number of features, whose Gram matrix takes 32 GiB
Vector = Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class FeatureBasis:
    """Sines and cosines whose random sums f(u) = features(u)·w, w ~ N(0, I), approximate a kernel's covariance, up to
    about outputscale / √n_features; the variance is exact. Agents with equal arguments of ``create`` have equal bases.
    Frequencies are in radians per side of the unit cube. Source: Rahimi & Recht 2007, alg. 1.
    """

    frequencies: Float[np.ndarray, "k d"]
    outputscale: float

    def __post_init__(self) -> None:
        self.frequencies.flags.writeable = False

    @classmethod
    def create(cls, seed: int, prior: Covariance, n_features: int) -> "FeatureBasis":
        """Draw the frequencies. Bases with the same seed, size and kernel differ in their scaling only."""
        if not 2 <= n_features <= _LARGEST or n_features % 2:
            raise ConfigError(f"got {n_features}; wanted an even integer from 2 to {_LARGEST}", at="$.n_features")
        return cls(prior.frequencies(stream(seed, "feature basis"), n_features // 2), prior.outputscale)

    @property
    def n_features(self) -> int:
        """Sines and cosines together, 2k."""
        return 2 * self.frequencies.shape[0]

    def features(self, U: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m p"]:
        """Features (m, 2k) of points (m, d) in the unit cube: all sines, then all cosines."""
        phase = U @ self.frequencies.T
        waves = np.concatenate([np.sin(phase), np.cos(phase)], axis=1)
        return np.sqrt(2.0 * self.outputscale / self.n_features) * waves


@dataclass(frozen=True, eq=False)
class Information:
    """The likelihood of weights w up to a constant: exp(shift·w - ½ wᵀ precision w).

    With outcomes z = Φ w + noise of variance s², precision = ΦᵀΦ / s² and shift = Φᵀz / s². The posterior under the
    prior N(0, I) has precision I + precision and mean (I + precision)⁻¹ shift. Information does not contain the prior,
    so a sum of information does not add up priors. ``count`` is the number of outcomes, or a fraction after ``scaled``.
    """

    precision: Float[np.ndarray, "p p"]
    shift: Float[np.ndarray, " p"]
    count: float

    def __post_init__(self) -> None:
        self.precision.flags.writeable = False
        self.shift.flags.writeable = False

    @classmethod
    def none(cls, n_features: int) -> "Information":
        """Information about ``n_features`` weights from no outcome."""
        return cls(np.zeros((n_features, n_features)), np.zeros(n_features), 0.0)

    @classmethod
    def of(cls, Phi: Float[np.ndarray, "n p"], z: Vector, noise_variance: float | Vector) -> "Information":
        """Information of outcomes."""
        if isinstance(noise_variance, np.ndarray):  # in units of its own noise each outcome has a noise of 1
            std = np.sqrt(noise_variance)
            Phi, z, noise_variance = Phi / std[:, None], z / std, 1.0
        return cls(Phi.T @ Phi / noise_variance, Phi.T @ z / noise_variance, float(len(z)))

    def __add__(self, other: "Information") -> "Information":
        return Information(self.precision + other.precision, self.shift + other.shift, self.count + other.count)

    def scaled(self, factor: float) -> "Information":
        """Information multiplied by ``factor`` >= 0."""
        return Information(factor * self.precision, factor * self.shift, factor * self.count)

    @property
    def n_features(self) -> int:
        """Number of weights p."""
        return self.shift.size

    def packed(self) -> Float[np.ndarray, " q"]:
        """All of it as one vector of q = 1 + p + p(p + 1)/2 numbers: count, shift, upper triangle by rows."""
        return np.concatenate([[self.count], self.shift, self.precision[np.triu_indices(self.n_features)]])

    @classmethod
    def unpacked(cls, vector: Float[np.ndarray, " q"], n_features: int) -> "Information":
        """Inverse of ``packed``."""
        if vector.shape != (size := packed_size(n_features),):
            raise ShapeError(f"information: got shape {vector.shape}; wanted ({size},) for {n_features} features")
        upper, shift = np.triu_indices(n_features), vector[1 : 1 + n_features].copy()
        precision = np.zeros((n_features, n_features))
        precision[upper] = vector[1 + n_features :]
        precision.T[upper] = vector[1 + n_features :]
        return cls(precision, shift, float(vector[0]))


def packed_size(n_features: int) -> int:
    """Length of ``Information.packed`` for p features: 1 + p + p(p + 1)/2."""
    return 1 + n_features + n_features * (n_features + 1) // 2


def information_of(
    basis: FeatureBasis,
    hyperparameters: Hyperparameters,
    domain: Domain,
    X: Float[np.ndarray, "n c"],
    y: Vector,
    noise: Vector | None = None,
) -> Information:
    """Information of physical outcomes about weights of a basis; ``noise`` variances are NaN if unknown."""
    h = hyperparameters
    variance: float | Vector = h.noise_variance
    if noise is not None and np.isfinite(noise).any():
        variance = np.where(np.isnan(noise), variance, standardised_noise(noise, h.scale))
    return Information.of(basis.features(to_unit(domain, X)), (y - h.offset) / h.scale - h.mean, variance)


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
    """The posterior of y = offset + scale (mean + features(u)·w + noise), w ~ N(0, I), given a summary of data, so that
    beliefs can be fused without the data. There are only ``n_features`` degrees of freedom: with about as many data or
    more, the variance far from the data is too small. Source: Rasmussen & Williams 2006, eq. 2.11.
    """

    basis: FeatureBasis
    information: Information
    pending: Float[np.ndarray, "q d"] | None = None

    @cached_property
    def _root(self) -> Float[np.ndarray, "p p"]:
        precision = self.information.precision
        if self.pending is not None:
            Phi = self.basis.features(to_unit(self.domain, self.pending))
            precision = precision + Phi.T @ Phi / self.hyperparameters.noise_variance
        return factorise(precision + np.eye(precision.shape[0]))[0]

    @cached_property
    def weights(self) -> Float[np.ndarray, " p"]:
        """Posterior mean of the weights; pending points do not change it."""
        L = self._root if self.pending is None else replace(self, pending=None)._root
        return solve_lower(L, solve_lower(L, self.information.shift), transposed=True)

    @property
    def n_data(self) -> int:
        """Number of outcomes in the summary, rounded if fractions of summaries were added."""
        return round(self.information.count)

    def condition_on_pending(self, X: Float[np.ndarray, "q d"]) -> "FeatureGP":
        """Belief whose variance includes pending measurements with the usual noise (Desautels et al. 2014, sec. 4)."""
        points = self._points(X)
        if points.shape[0] == 0:
            return self
        return replace(self, pending=points if self.pending is None else np.concatenate([self.pending, points]))

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Mean (m,) of the field at physical points (m, d), without the cost of a variance."""
        points = self._points(X)
        starts = range(0, max(len(points), 1), CHUNK)
        return np.concatenate([self._mean(self._features(points[start : start + CHUNK])) for start in starts])

    def posterior_cache(self, X: ArrayLike) -> FeatureCache:
        """Posterior at fixed physical points (m, d), with fast covariances between subsets."""
        Phi, scale = self._features(X), self.hyperparameters.scale
        V = solve_lower(self._root, Phi.T)
        return FeatureCache(self._mean(Phi), scale**2 * np.einsum("pm,pm->m", V, V), V, scale)

    def _features(self, X: ArrayLike) -> Float[np.ndarray, "m p"]:
        return self.basis.features(to_unit(self.domain, self._points(X)))

    def _mean(self, Phi: Float[np.ndarray, "m p"]) -> Float[np.ndarray, " m"]:
        h = self.hyperparameters
        return h.offset + h.scale * (h.mean + Phi @ self.weights)
