"""Lower Cholesky factors that grow by blocks.

A covariance matrix of nearly equal points can be positive definite on paper and not in float64. What is added to its
diagonal then is returned and kept, never silent.
"""

import numpy as np
from jaxtyping import Float
from scipy.linalg import blas, lapack

_EPSILON = float(np.finfo(float).eps)


def solve_lower(
    L: Float[np.ndarray, "n n"], B: Float[np.ndarray, "n *m"], *, in_place: bool = False
) -> Float[np.ndarray, "n *m"]:
    """L⁻¹ B by forward substitution.

    Args:
        L: Lower triangular with a diagonal > 0; fastest in Fortran order.
        B: One or more right-hand sides.
        in_place: Whether B, in Fortran order, is of no further use.

    Returns:
        The solution, of B's shape.
    """
    return _solve(L, B, transposed=False, in_place=in_place)


def solve_lower_transposed(L: Float[np.ndarray, "n n"], B: Float[np.ndarray, "n *m"]) -> Float[np.ndarray, "n *m"]:
    """L⁻ᵀ B by back substitution; with ``solve_lower`` before it, K⁻¹ B for K = L Lᵀ.

    Args:
        L: Lower triangular with a diagonal > 0; fastest in Fortran order.
        B: One or more right-hand sides.

    Returns:
        The solution, of B's shape.
    """
    return _solve(L, B, transposed=True)


def _solve(
    L: Float[np.ndarray, "n n"], B: Float[np.ndarray, "n *m"], *, transposed: bool, in_place: bool = False
) -> Float[np.ndarray, "n *m"]:
    if B.size == 0:
        return np.zeros_like(B)
    solution, info = lapack.dtrtrs(L, B, lower=1, trans=int(transposed), overwrite_b=int(in_place))
    assert info == 0, f"triangular solve failed with info {info}"
    return solution


def solve_rows(L: Float[np.ndarray, "n n"], B: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m n"]:
    """B L⁻ᵀ: forward substitution of each row, half as quick again as ``solve_lower`` of columns where n is small.

    Args:
        L: Lower triangular with a diagonal > 0; fastest in Fortran order.
        B: Right-hand sides; in Fortran order they are of no further use.

    Returns:
        The solutions, in Fortran order.
    """
    return B if B.size == 0 else blas.dtrsm(1.0, L, B, side=1, lower=1, trans_a=1, overwrite_b=1)


def factorise(K: Float[np.ndarray, "n n"]) -> tuple[Float[np.ndarray, "n n"], float]:
    """Lower Cholesky factor of a covariance matrix, robust to one that is singular in float64.

    A squared pivot that is not above n eps max(diag K) is rounding noise. Then that much is added to the diagonal, ten
    times more at every further attempt, until all pivots are sound.

    Args:
        K: Symmetric and finite; only its lower triangle is used.

    Returns:
        L in Fortran order with L Lᵀ = K + jitter I, and the jitter (0 for a matrix that needs none).

    Raises:
        ValueError: If K is not finite, or so indefinite that it is no covariance matrix.
    """
    return _factorise_above(K, K.shape[0] * _EPSILON * float(K.diagonal().max(initial=0.0)))


def _factorise_above(K: Float[np.ndarray, "n n"], noise_level: float) -> tuple[Float[np.ndarray, "n n"], float]:
    if not np.isfinite(K).all():
        raise ValueError("covariance matrix holds values that are not finite; check lengthscales and outputscale")
    n = K.shape[0]
    if n == 0:
        return np.zeros((0, 0), order="F"), 0.0
    for jitter in (0.0, *(noise_level * 10.0**k for k in range(12))):
        L, info = lapack.dpotrf(K + jitter * np.eye(n) if jitter else K, lower=1, clean=1)
        if info == 0 and (L.diagonal() ** 2 > noise_level).all():
            return L, jitter
    raise ValueError("the matrix is no covariance matrix: its negative eigenvalues are larger than rounding errors")


def extend(
    L: Float[np.ndarray, "n n"], K_new_old: Float[np.ndarray, "k n"], K_new_new: Float[np.ndarray, "k k"]
) -> tuple[Float[np.ndarray, "n+k n+k"], float]:
    """Append k rows to a lower Cholesky factor, in O(k n²) instead of O((n + k)³).

    With K = [[L Lᵀ, ·], [K_new_old, K_new_new]] the new rows are B = K_new_old L⁻ᵀ and the factor of the Schur
    complement K_new_new - B Bᵀ. Where that is not positive definite in float64 (a duplicate without noise), jitter is
    added to its diagonal as in ``factorise``; rounding noise is measured by K_new_new, not by the complement, which may
    be nothing but noise.

    Args:
        L: The factor so far.
        K_new_old: Covariances of the new points with the old ones.
        K_new_new: Covariances of the new points among themselves, noise included.

    Returns:
        The factor of the whole matrix in Fortran order, and the jitter that was added to each new diagonal entry.

    Raises:
        ValueError: If the new block is not finite, or no covariance.

    Example:
        >>> K = np.array([[4.0, 2.0], [2.0, 5.0]])
        >>> L, jitter = extend(np.array([[2.0]]), K[1:, :1], K[1:, 1:])
        >>> bool(np.allclose(L @ L.T, K)), jitter
        (True, 0.0)
    """
    n, k = L.shape[0], K_new_new.shape[0]
    B = solve_lower(L, K_new_old.T)
    noise_level = (n + k) * _EPSILON * float(K_new_new.diagonal().max(initial=0.0))
    corner, jitter = _factorise_above(K_new_new - B.T @ B, noise_level)
    extended = np.empty((n + k, n + k), order="F")
    extended[:n, :n] = L
    extended[:n, n:] = 0.0
    extended[n:, :n] = B.T
    extended[n:, n:] = corner
    return extended, jitter
