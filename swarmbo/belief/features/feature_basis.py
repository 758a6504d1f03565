"""Random features of a stationary kernel: a Gaussian process as a linear model with independent standard weights."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.kernels import KernelName, spectral_frequencies

_LARGEST = 2**16  # features; beyond it a Gram matrix of them alone takes 32 GiB


@dataclass(frozen=True, eq=False)
class FeatureBasis:
    """Sines and cosines whose random sums f(u) = features(u)·w, w ~ N(0, I), approximate a kernel's covariance.

    Immutable, and a function of the arguments of ``create``: agents with equal arguments have equal bases without
    exchanging frequencies. The variance features(u)·features(u) is the outputscale everywhere, exactly; the covariance
    of two points deviates from the kernel by about outputscale / √n_features. Frequencies are in radians per side of
    the unit cube.

    Source: Rahimi & Recht 2007, alg. 1, with the spectral densities of ``swarmbo.kernels.spectral_frequencies``.
    """

    frequencies: Float[np.ndarray, "k d"]
    outputscale: float

    def __post_init__(self) -> None:
        self.frequencies.flags.writeable = False

    @classmethod
    def create(
        cls,
        seed: int,
        kernel: KernelName,
        lengthscales: Float[np.ndarray, " d"],
        outputscale: float,
        n_features: int,
        time: tuple[KernelName, float] | None = None,
    ) -> "FeatureBasis":
        """Draw the frequencies. Bases of one seed and size differ by the scaling with lengthscales only.

        With a kernel over ``time`` and its lengthscale, points have a round as last coordinate, and the kernel of the
        sums is the product of both: so is its spectral density.
        """
        scales = np.array(lengthscales, dtype=float)
        if scales.ndim != 1 or scales.size == 0 or not (np.isfinite(scales).all() and (scales > 0.0).all()):
            raise ConfigError(f"got {scales.tolist()}; wanted one finite number > 0 a coordinate", at="$.lengthscales")
        if not (np.isfinite(outputscale) and outputscale > 0.0):
            raise ConfigError(f"got {outputscale}; wanted a finite number > 0", at="$.outputscale")
        if not 2 <= n_features <= _LARGEST or n_features % 2:
            raise ConfigError(f"got {n_features}; wanted an even integer from 2 to {_LARGEST}", at="$.n_features")
        rng = stream(seed, "feature basis")
        frequencies = spectral_frequencies(rng, kernel, scales, n_features // 2)
        if time is not None:
            over_time = spectral_frequencies(rng, time[0], np.array([time[1]]), n_features // 2)
            frequencies = np.hstack([frequencies, over_time])
        return cls(frequencies, float(outputscale))

    @property
    def n_features(self) -> int:
        """Sines and cosines together, 2k."""
        return 2 * self.frequencies.shape[0]

    @property
    def n_dims(self) -> int:
        """Number of coordinates d of a point."""
        return self.frequencies.shape[1]

    def features(self, U: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m p"]:
        """Features (m, 2k) of points (m, d) in the unit cube: all sines, then all cosines."""
        points = np.asarray(U, dtype=float)
        if points.ndim != 2 or points.shape[1] != self.n_dims:
            raise ShapeError(f"U: got shape {points.shape}; wanted (m, {self.n_dims})")
        phase = points @ self.frequencies.T
        waves = np.concatenate([np.sin(phase), np.cos(phase)], axis=1)
        return np.sqrt(2.0 * self.outputscale / self.n_features) * waves
