"""Stationary kernels: k(x, z) = s c(r) with r² = Σ_j ((x_j - z_j) / l_j)².

Everything is written through two radial functions: the correlation c(r), and its slope w(r) = -c'(r) / r, which stays
finite at r = 0 for every kernel but Matern-1/2. With them

    dk / dx_j       = -s w(r) (x_j - z_j) / l_j²
    dk / d log l_j  =  s w(r) (x_j - z_j)² / l_j²
    dk / d log s    =  k.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from swarmbo.errors import ConfigError, ShapeError
from swarmbo.kernels.registry import KERNEL_NAMES, KernelName, own_kernel

_FAR = 1e3  # exp(-1e3) is 0 in float64: larger distances are reduced to it, which prevents inf * 0
_AT_ONCE = 8192  # distances per chunk, so that intermediate results stay in the cache
Lengths = Float[np.ndarray, " d"]  # lengthscales
Values = Float[np.ndarray, "..."]


def correlation(name: KernelName, r: Values) -> Values:
    """Correlation c(r) at scaled distances r >= 0 (infinity is allowed), with c(0) = 1.

    Matern-1/2: exp(-r). Matern-3/2: (1 + √3 r) exp(-√3 r). Matern-5/2: (1 + √5 r + 5r²/3) exp(-√5 r). RBF: exp(-r²/2).

    Source: Rasmussen & Williams 2006, eqs. 4.9, 4.16, 4.17.
    """
    if name not in KERNEL_NAMES:
        return own_kernel(name).correlation(np.minimum(r, _FAR))
    if np.size(r) <= _AT_ONCE:
        return _decay(name, np.minimum(r, _FAR))[0]
    distances, values = np.ravel(r), np.empty(np.size(r))
    for start in range(0, len(values), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        values[rows] = _decay(name, np.minimum(distances[rows], _FAR))[0]
    return values.reshape(np.shape(r))


def correlation_and_slope(name: KernelName, r: Values) -> tuple[Values, Values]:
    """``correlation``, bit-identical, and the slope w(r) = -c'(r) / r, which is set to 0 at a cusp."""
    r = np.minimum(r, _FAR)
    if name not in KERNEL_NAMES:
        own = own_kernel(name)
        return own.correlation(r.copy()), own.slope(r)  # a user's function may work in place
    correlations, a, fall = _decay(name, r)
    match name:
        case "matern12":
            return correlations, np.divide(fall, r, out=np.zeros_like(r), where=r > 0.0)
        case "matern32":
            return correlations, 3.0 * fall
        case "matern52":
            return correlations, (5.0 / 3.0) * (1.0 + a) * fall
        case _:
            return correlations, fall.copy()


def _decay(name: KernelName, r: Float[np.ndarray, "*n"]) -> tuple[Float[np.ndarray, "*n"], ...]:
    if name in ("rbf", "matern12"):
        fall = np.exp(-0.5 * r * r if name == "rbf" else -r)
        return fall, r, fall
    a = np.sqrt(3.0 if name == "matern32" else 5.0) * r
    fall = np.exp(-a)
    return (1.0 + a if name == "matern32" else 1.0 + a * (1.0 + a / 3.0)) * fall, a, fall


def kernel_matrix(
    name: KernelName,
    X: Float[np.ndarray, "n d"],
    Z: Float[np.ndarray, "m d"],
    lengthscales: Lengths,
    outputscale: float,
) -> Float[np.ndarray, "n m"]:
    """Prior covariances k(X, Z), with lengthscales in the units of the coordinates and the prior variance s."""
    # by differences of scaled coordinates: |x|² - 2xz + |z|² would lose close pairs to cancellation
    r = cdist(X / lengthscales, Z / lengthscales)
    return np.multiply(outputscale, correlation(name, r), out=r)


_DEGREES_OF_FREEDOM: dict[KernelName, int] = {"matern12": 1, "matern32": 3, "matern52": 5}  # 2 nu
_CHUNK = 4096  # rows evaluated at once, which bounds the memory to rows times frequencies


def spectral_frequencies(
    rng: np.random.Generator, name: KernelName, lengthscales: Lengths, n_frequencies: int
) -> Float[np.ndarray, "k d"]:
    """Draw angular frequencies (k, d) from a kernel's spectral density, in radians per unit of the coordinate.

    RBF: v ~ N(0, I / l²). Matern-nu: v = z / (l √(g / (2 nu))), z normal, g chi² with 2 nu degrees of freedom, one g
    per vector: a multivariate t distribution.

    Source: Rahimi & Recht 2007, alg. 1; Rasmussen & Williams 2006, eq. 4.15.
    """
    shape = n_frequencies, lengthscales.size
    if name not in KERNEL_NAMES:
        if (sampler := own_kernel(name).frequencies) is None:
            got = f"got {name!r}, which was registered without frequencies"
            wanted = "frequencies, to draw functions: register_kernel(…, frequencies=…)"
            raise ConfigError(f"{got}; wanted {wanted}", at="$.kernel")
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
    """A smooth function f(X) -> values, cheap at any points: its frequencies (k, d) and coefficients (k,)."""

    frequencies: Float[np.ndarray, "k d"]
    sine_weights: Float[np.ndarray, " k"]
    cosine_weights: Float[np.ndarray, " k"]

    def __call__(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Values at n points, in the unit of the outcome."""
        values = np.empty(len(X))
        for start in range(0, len(X), _CHUNK):
            rows = slice(start, start + _CHUNK)
            phase = X[rows] @ self.frequencies.T
            values[rows] = np.sin(phase) @ self.sine_weights + np.cos(phase) @ self.cosine_weights
        return values


def draw(
    rng: np.random.Generator, name: KernelName, lengthscales: Lengths, outputscale: float, n_features: int = 1024
) -> FourierDraw:
    """Draw a function from the zero-mean Gaussian-process prior; equal generators draw equal functions.

    The number of sines and cosines, ``n_features``, is even; the covariance within one draw deviates from the kernel by
    about outputscale / √n_features.

    Source: Rahimi & Recht 2007, with the spectral densities of ``spectral_frequencies``.
    """
    n_frequencies = n_features // 2
    frequencies = spectral_frequencies(rng, name, lengthscales, n_frequencies)
    weights = np.sqrt(outputscale / n_frequencies) * rng.standard_normal((2, n_frequencies))
    return FourierDraw(frequencies, weights[0], weights[1])


@dataclass(frozen=True, eq=False)
class Covariance:
    """A covariance function and its hyper-parameters; the lengthscale of time, if any, is last. A product of kernels
    over different coordinates is a kernel (Rasmussen & Williams 2006, section 4.2.4).
    """

    kernel: KernelName
    lengthscales: Lengths
    outputscale: float
    time_kernel: KernelName | None = None

    def matrix(self, X: Float[np.ndarray, "n d"], Z: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "n m"]:
        """Prior covariances k(X, Z)."""
        if self.time_kernel is None:
            return kernel_matrix(self.kernel, X, Z, self.lengthscales, self.outputscale)
        places = kernel_matrix(self.kernel, X[:, :-1], Z[:, :-1], self.lengthscales[:-1], self.outputscale)
        return places * kernel_matrix(self.time_kernel, X[:, -1:], Z[:, -1:], self.lengthscales[-1:], 1.0)

    def frequencies(self, rng: np.random.Generator, n_frequencies: int) -> Float[np.ndarray, "k d"]:
        """Draw ``spectral_frequencies`` (k, d); the last column is over time, if there is a time kernel."""
        if self.time_kernel is None:
            return spectral_frequencies(rng, self.kernel, self.lengthscales, n_frequencies)
        over_places = spectral_frequencies(rng, self.kernel, self.lengthscales[:-1], n_frequencies)
        over_time = spectral_frequencies(rng, self.time_kernel, self.lengthscales[-1:], n_frequencies)
        return np.hstack([over_places, over_time])

    def by_row(self, X: Float[np.ndarray, "n d"]) -> Callable[[int], Float[np.ndarray, " n"]]:
        """Make a function of a point's index that returns its prior covariances with all points, as a new array."""
        scaled, d = X / self.lengthscales, X.shape[1] - (self.time_kernel is not None)
        places, times = np.ascontiguousarray(scaled[:, :d]), np.ascontiguousarray(scaled[:, d:])

        def row(point: int) -> Float[np.ndarray, " n"]:
            here = slice(point, point + 1)
            covariances = correlation(self.kernel, cdist(places[here], places)[0])
            covariances *= self.outputscale
            if self.time_kernel is not None:
                covariances *= correlation(self.time_kernel, cdist(times[here], times)[0])
            return covariances

        return row
