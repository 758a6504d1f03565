"""Stationary kernels: k(x, z) = s c(r) with r² = Σ_j ((x_j - z_j) / l_j)².

Everything is written through two radial functions: the correlation c(r), and its slope w(r) = -c'(r) / r, which stays
finite at r = 0 for every kernel but Matern-1/2. With them

    dk / dx_j       = -s w(r) (x_j - z_j) / l_j²
    dk / d log l_j  =  s w(r) (x_j - z_j)² / l_j²
    dk / d log s    =  k.
"""

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from swarmbo.kernels.registry import KernelName, own_kernel

_FAR = 1e3  # exp(-1e3) is 0 in float64: cutting distances here changes nothing and keeps inf * 0 out
_AT_ONCE = 8192  # distances per chunk, so that intermediate results stay in the cache


def correlation(name: KernelName, r: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Correlation c(r) at scaled distances r >= 0 (infinity is allowed), with c(0) = 1.

    Matern-1/2: exp(-r). Matern-3/2: (1 + √3 r) exp(-√3 r). Matern-5/2: (1 + √5 r + 5r²/3) exp(-√5 r). RBF: exp(-r²/2).

    Source: Rasmussen & Williams 2006, eqs. 4.9, 4.16, 4.17.
    """
    if name not in _PARTS:
        return own_kernel(name).correlation(np.minimum(r, _FAR))
    part_of = _PARTS[name]
    if np.ndim(r) > 0 and np.size(r) <= _AT_ONCE:
        values = np.minimum(r, _FAR)
        part_of(values)
        return values
    distances, values = np.ravel(r), np.empty(np.shape(r))
    flat = values.reshape(-1)
    for start in range(0, len(flat), _AT_ONCE):
        part = flat[start : start + _AT_ONCE]
        part_of(np.minimum(distances[start : start + _AT_ONCE], _FAR, out=part))
    return values[()]  # a number for one distance


def _matern12(r: Float[np.ndarray, "*n"]) -> None:
    np.exp(np.negative(r, out=r), out=r)


def _matern32(r: Float[np.ndarray, "*n"]) -> None:
    r *= np.sqrt(3.0)
    grows = 1.0 + r
    _matern12(r)
    r *= grows


def _matern52(r: Float[np.ndarray, "*n"]) -> None:
    r *= np.sqrt(5.0)
    grows = r / 3.0
    grows += 1.0
    grows *= r
    grows += 1.0
    _matern12(r)
    r *= grows


def _rbf(r: Float[np.ndarray, "*n"]) -> None:
    half = -0.5 * r
    half *= r
    np.exp(half, out=r)


# each replaces distances by correlations in place
_PARTS = {"matern12": _matern12, "matern32": _matern32, "matern52": _matern52, "rbf": _rbf}


def correlation_and_slope(
    name: KernelName, r: Float[np.ndarray, "..."]
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """``correlation``, bit-identical, and the slope w(r) = -c'(r) / r, with one exponential.

    Matern-1/2: exp(-r) / r. Matern-3/2: 3 exp(-√3 r). Matern-5/2: (5/3)(1 + √5 r) exp(-√5 r). RBF: exp(-r²/2).
    Matern-1/2 has a cusp at r = 0, where no derivative exists. w is set to 0 there, so that every derivative of the
    kernel at zero distance is 0, the middle of its subdifferential.
    """
    r = np.minimum(r, _FAR)
    match name:
        case "matern12":
            fall = np.exp(-r)
            return fall, np.divide(fall, r, out=np.zeros_like(r), where=r > 0.0)
        case "matern32":
            a = np.sqrt(3.0) * r
            fall = np.exp(-a)
            return (1.0 + a) * fall, 3.0 * fall
        case "matern52":
            a = np.sqrt(5.0) * r
            fall = np.exp(-a)
            return (1.0 + a * (1.0 + a / 3.0)) * fall, (5.0 / 3.0) * (1.0 + a) * fall
        case "rbf":
            fall = np.exp(-0.5 * r * r)
            return fall, fall.copy()
        case _:
            own = own_kernel(name)
            return own.correlation(r), own.slope(r)


def scaled_distance(
    X: Float[np.ndarray, "n d"], Z: Float[np.ndarray, "m d"], lengthscales: Float[np.ndarray, " d"]
) -> Float[np.ndarray, "n m"]:
    """Distances (n, m) in lengthscales, from differences of coordinates: equal points are at distance exactly 0.

    The expansion |x|² - 2xz + |z|² would be faster in many dimensions, but it loses close pairs to cancellation.
    """
    if X.shape[0] == 0 or Z.shape[0] == 0:
        return np.zeros((X.shape[0], Z.shape[0]))
    # differences of scaled coordinates: equal points are at distance exactly 0
    return cdist(X / lengthscales, Z / lengthscales)


def kernel_matrix(
    name: KernelName,
    X: Float[np.ndarray, "n d"],
    Z: Float[np.ndarray, "m d"],
    lengthscales: Float[np.ndarray, " d"],
    outputscale: float,
) -> Float[np.ndarray, "n m"]:
    """Prior covariances k(X, Z), with lengthscales in the units of the coordinates and the prior variance s."""
    r = scaled_distance(X, Z, lengthscales)
    return np.multiply(outputscale, correlation(name, r), out=r)
