"""Functions drawn from a Gaussian-process prior, by random Fourier features.

A stationary kernel is the characteristic function of its spectral density (Bochner). Let frequencies v be drawn from
that density, and a and b be standard normal. Then f(x) = √(s/D) Σ_i a_i sin(v_i·x) + b_i cos(v_i·x) has the kernel as
its covariance on average over v. Each draw's covariance approaches the kernel as D grows.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError, ShapeError
from swarmbo.kernels.registry import KERNEL_NAMES, KernelName, own_kernel

_DEGREES_OF_FREEDOM: dict[KernelName, int] = {"matern12": 1, "matern32": 3, "matern52": 5}  # 2 nu
_CHUNK = 4096  # rows evaluated at once, which bounds the memory to rows times frequencies


def spectral_frequencies(
    rng: np.random.Generator, name: KernelName, lengthscales: Float[np.ndarray, " d"], n_frequencies: int
) -> Float[np.ndarray, "k d"]:
    """Draw angular frequencies (k, d) from a kernel's spectral density, in radians per unit of the coordinate.

    RBF: v ~ N(0, I / l²). Matern-nu: v = z / (l √(g / (2 nu))), z normal, g chi² with 2 nu degrees of freedom, one g
    per vector: a multivariate t distribution.

    Source: Rahimi & Recht 2007, alg. 1; Rasmussen & Williams 2006, eq. 4.15.
    """
    shape = n_frequencies, lengthscales.size
    if name not in KERNEL_NAMES:
        if (sampler := own_kernel(name).frequencies) is None:
            raise ConfigError(
                f"got {name!r}, which was registered without frequencies; wanted frequencies, to draw functions: "
                "register_kernel(…, frequencies=…)",
                at="$.kernel",
            )
        v = np.asarray(sampler(rng, *shape), dtype=float)
        if v.shape != shape or not np.isfinite(v).all():
            raise ShapeError(f"frequencies of kernel {name!r}: got shape {v.shape}; wanted {shape} finite numbers")
        return v / lengthscales
    z = rng.standard_normal(shape)
    if name != "rbf":
        dof = _DEGREES_OF_FREEDOM[name]
        z /= np.sqrt(rng.chisquare(dof, size=(n_frequencies, 1)) / dof)
    return z / lengthscales


@dataclass(frozen=True, eq=False)
class FourierDraw:
    """A smooth function f(X) -> values, cheap anywhere, held by its frequencies (k, d) and coefficients (k,)."""

    frequencies: Float[np.ndarray, "k d"]
    sine_weights: Float[np.ndarray, " k"]
    cosine_weights: Float[np.ndarray, " k"]

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Values at n points, in the unit of the outcome."""
        points = np.asarray(X, dtype=float)
        if points.ndim != 2 or points.shape[1] != self.frequencies.shape[1]:
            raise ShapeError(f"X: got shape {points.shape}; wanted (n, {self.frequencies.shape[1]})")
        values = np.empty(points.shape[0])
        for start in range(0, points.shape[0], _CHUNK):
            rows = slice(start, start + _CHUNK)
            phase = points[rows] @ self.frequencies.T
            values[rows] = np.sin(phase) @ self.sine_weights + np.cos(phase) @ self.cosine_weights
        return values


def draw(
    rng: np.random.Generator,
    name: KernelName,
    lengthscales: Float[np.ndarray, " d"],
    outputscale: float,
    n_features: int = 1024,
) -> FourierDraw:
    """Draw a function from the zero-mean Gaussian-process prior; equal generators draw equal functions.

    The number of sines and cosines, ``n_features``, is even; the covariance within one draw deviates from the kernel by
    about outputscale / √n_features.

    Source: Rahimi & Recht 2007, with the spectral densities of ``spectral_frequencies``.
    """
    lengthscales = np.asarray(lengthscales, dtype=float)
    if lengthscales.ndim != 1 or not (np.isfinite(lengthscales).all() and (lengthscales > 0.0).all()):
        raise ConfigError(
            f"got {lengthscales.tolist()}; wanted one finite number > 0 a coordinate", at="$.lengthscales"
        )
    if not (np.isfinite(outputscale) and outputscale > 0.0):
        raise ConfigError(f"got {outputscale}; wanted a finite number > 0", at="$.outputscale")
    if n_features < 2 or n_features % 2:
        raise ConfigError(f"got {n_features}; wanted an even integer >= 2", at="$.n_features")
    n_frequencies = n_features // 2
    frequencies = spectral_frequencies(rng, name, lengthscales, n_frequencies)
    weights = np.sqrt(outputscale / n_frequencies) * rng.standard_normal((2, n_frequencies))
    return FourierDraw(frequencies, weights[0], weights[1])
