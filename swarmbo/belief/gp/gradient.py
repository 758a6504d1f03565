"""Derivatives of a posterior with respect to the points where it is asked for.

With A = K⁻¹ k(data, X) and D_j = dk(X, data) / dX_j, the mean has gradient D_j K⁻¹(z - m) and the covariance
cov(x, x') = k(x, x') - k(x)ᵀ K⁻¹ k(x') has gradient dk(x, x')/dx_j - D_j A in its first point.
"""

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.cache import PosteriorCache
from swarmbo.belief.gp.cholesky import solve_lower_transposed


def posterior_gradient(
    cache: PosteriorCache,
    U: Float[np.ndarray, "n d"],
    L: Float[np.ndarray, "n n"],
    whitened: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m d"]]:
    """Gradients of mean and variance, per unit of the unit cube.

    Args:
        cache: The posterior at the points.
        U: Data points in the unit cube.
        L: Lower Cholesky factor of their covariance.
        whitened: L⁻¹ times the standardised outcomes less their mean.

    Returns:
        Gradients of the mean (m, d) and of the variance (m, d), in the unit of the outcome and its square.
    """
    D = cache.prior.gradient(cache.U, U)
    A = solve_lower_transposed(L, cache.V)
    mean_gradient = D @ solve_lower_transposed(L, whitened)
    var_gradient = -2.0 * np.einsum("jmn,nm->jm", D, A)
    return cache.scale * mean_gradient.T, cache.scale**2 * var_gradient.T


def covariance_gradient(
    cache: PosteriorCache, U: Float[np.ndarray, "n d"], L: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, "m m d"]:
    """Gradient of the joint covariance, per unit of the unit cube.

    Args:
        cache: The posterior at the points.
        U: Data points in the unit cube.
        L: Lower Cholesky factor of their covariance.

    Returns:
        Entry [i, j, a] is the derivative of cov[i, j] when coordinate a of point i moves and all other points stay. On
        the diagonal point i is both arguments, so the entry is the gradient of the variance.
    """
    D = cache.prior.gradient(cache.U, U)
    prior = cache.prior.gradient(cache.U, cache.U)
    gradient = prior - D @ solve_lower_transposed(L, cache.V)
    every = np.arange(cache.mean.size)
    gradient[:, every, every] *= 2.0  # both arguments move together, and the covariance is symmetric in them
    return cache.scale**2 * np.moveaxis(gradient, 0, -1)
