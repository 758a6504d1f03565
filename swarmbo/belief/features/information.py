"""Information of outcomes about the weights of a linear model; independent outcomes add up."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.belief.features.feature_basis import FeatureBasis
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.belief.gp.observations import standardised_noise
from swarmbo.belief.gp.spatial import to_unit
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain


@dataclass(frozen=True, eq=False)
class Information:
    """The likelihood of weights w up to a constant: exp(shift·w - ½ wᵀ precision w).

    With outcomes z = Φ w + noise of variance s², precision = ΦᵀΦ / s² and shift = Φᵀz / s². The posterior under the
    prior N(0, I) has precision I + precision and mean (I + precision)⁻¹ shift; the prior is in none of the parts, so
    that adding parts does not add priors. ``count`` of outcomes is a fraction if one of a summary was added.
    """

    precision: Float[np.ndarray, "p p"]
    shift: Float[np.ndarray, " p"]
    count: float

    def __post_init__(self) -> None:
        self.precision.flags.writeable = False
        self.shift.flags.writeable = False

    @classmethod
    def none(cls, n_features: int) -> "Information":
        """Information of no outcomes about ``n_features`` weights."""
        return cls(np.zeros((n_features, n_features)), np.zeros(n_features), 0.0)

    @classmethod
    def of(
        cls, Phi: Float[np.ndarray, "n p"], z: Float[np.ndarray, " n"], noise_variance: float | Float[np.ndarray, " n"]
    ) -> "Information":
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
    y: Float[np.ndarray, " n"],
    noise: Float[np.ndarray, " n"] | None = None,
) -> Information:
    """Information of physical outcomes y at physical points X, rounds last, about weights of a basis.

    Outcomes without a known variance in ``noise`` (NaN) have that of the hyper-parameters.
    """
    h = hyperparameters
    variance: float | Float[np.ndarray, " n"] = h.noise_variance
    if noise is not None and np.isfinite(noise).any():
        variance = np.where(np.isnan(noise), variance, standardised_noise(noise, h.scale))
    return Information.of(basis.features(to_unit(domain, X)), (y - h.offset) / h.scale - h.mean, variance)
