"""The logarithm of the expected improvement of a normal variable over zero, accurate for all arguments.

With z = mean / std, h(z) = phi(z) + z Phi(z): E[max(Y, 0)] = std h(z). For z -> -inf both terms of h cancel; there
h(z) = phi(z) (1 + z R(z)) with the Mills ratio R = Phi/phi, and far out the series of 1 + z R in 1/z².
"""

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, ndtr

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
_FAR = -20.0  # below it the series is the more accurate, above it the cancellation is bearable
_SERIES = np.cumprod([1.0, *(-(2.0 * k + 1.0) for k in range(1, 10))])  # 1, -3, 15, -105, …


def log_improvement(
    mean: Float[np.ndarray, "..."], std: Float[np.ndarray, "..."]
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Logarithm of E[max(Y, 0)] for normal Y, and its derivatives by mean and by standard deviation.

    Args:
        mean: Of Y.
        std: Of Y, > 0.

    Source:
        Ament et al. 2023, section 4, for the use of the logarithm.

    Example:
        >>> value, by_mean, by_std = log_improvement(np.array([0.0, -40.0]), np.array([1.0, 1.0]))
        >>> value.round(3).tolist()
        [-0.919, -808.299]
    """
    z = mean / std
    log_h, cdf_ratio, pdf_ratio = _ratios(z)
    return log_h + np.log(std), cdf_ratio / std, pdf_ratio / std


def _ratios(z: Float[np.ndarray, "..."]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log h(z), Phi(z)/h(z) and phi(z)/h(z)."""
    right = np.maximum(z, -1.0)
    density = np.exp(-0.5 * right**2 - _LOG_SQRT_2PI)
    h = density + right * ndtr(right)
    left = np.clip(z, _FAR, -1.0)
    mills = np.sqrt(0.5 * np.pi) * erfcx(-np.minimum(z, -1.0) / np.sqrt(2.0))
    square = np.minimum(z, _FAR) ** -2.0
    share = np.where(
        z < _FAR,
        square * np.polynomial.polynomial.polyval(square, _SERIES),
        1.0 + left * np.sqrt(0.5 * np.pi) * erfcx(-left / np.sqrt(2.0)),
    )
    is_right = z > -1.0
    log_h = np.where(is_right, np.log(h), -0.5 * np.minimum(z, -1.0) ** 2 - _LOG_SQRT_2PI + np.log(share))
    return log_h, np.where(is_right, ndtr(right) / h, mills / share), np.where(is_right, density / h, 1.0 / share)
