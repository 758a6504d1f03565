"""Lower triangular matrices: Cholesky factors that grow by blocks, and many of equal size stored by blocks of rows.

A covariance matrix of nearly equal points can be positive definite in theory but not in float64. The jitter that is
then added to its diagonal is returned and stored, never silent.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import blas, lapack

NO_COVARIANCE = "the matrix is not a covariance matrix: its negative eigenvalues are larger than rounding errors"
EPSILON = float(np.finfo(float).eps)  # pivots up to this share of the variance, times the number of rows, are rounding
Square = Float[np.ndarray, "n n"]
Vector = Float[np.ndarray, " n"]


def solve_lower(
    L: Square, B: Float[np.ndarray, " n *m"], *, transposed: bool = False, in_place: bool = False
) -> Float[np.ndarray, " n *m"]:
    """L⁻¹ B, or L⁻ᵀ B, fastest with L in Fortran order; ``in_place`` may overwrite a B in Fortran order."""
    if B.size == 0:
        return np.zeros_like(B)
    solution, info = lapack.dtrtrs(L, B, lower=1, trans=int(transposed), overwrite_b=int(in_place))
    assert info == 0, f"triangular solve failed with info {info}"
    return solution


def solve_rows(L: Square, B: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m n"]:
    """B L⁻ᵀ in Fortran order, 1.5 times faster than by columns for small n; B in that order is overwritten."""
    return B if B.size == 0 else blas.dtrsm(1.0, L, B, side=1, lower=1, trans_a=1, overwrite_b=1)


def factorise(K: Square) -> tuple[Square, float]:
    """Lower Cholesky factor, in Fortran order, of K + jitter I, and the jitter: 0 unless K is singular in float64."""
    return _factorise_above(K, K.shape[0] * EPSILON * float(K.diagonal().max(initial=0.0)))


def factorise_noisy(K: Square) -> tuple[Square, float]:
    """Cholesky factor as by ``factorise``, with jitter relative to each row's diagonal, as noise may differ greatly."""
    units = _units(K)
    L, jitter = factorise(K / (units[:, None] * units))
    return np.asfortranarray(L * units[:, None]), jitter


def root_of(C: Square) -> Square:
    """A root R of a posterior covariance, R Rᵀ = C; if rounding makes C indefinite, of a nearby definite matrix."""
    try:
        return factorise(C)[0]
    except ValueError:  # where much is known, C is a small difference with rounding errors as large as the prior's
        if not np.isfinite(C).all():
            raise
        values, vectors = np.linalg.eigh(C)
        return vectors * np.sqrt(np.maximum(values, -values[0]))


def _factorise_above(K: Square, noise_level: float) -> tuple[Square, float]:
    if not np.isfinite(K).all():
        raise ValueError("covariance matrix holds values that are not finite; check lengthscales and outputscale")
    n = K.shape[0]
    if n == 0:
        return np.zeros((0, 0), order="F"), 0.0
    for jitter in (0.0, *(noise_level * 10.0**k for k in range(12))):
        L, info = lapack.dpotrf(K + jitter * np.eye(n) if jitter else K, lower=1, clean=1)
        if info == 0 and (L.diagonal() ** 2 > noise_level).all():
            return L, jitter
    raise ValueError(NO_COVARIANCE)


def extend(
    L: Square, K_new_old: Float[np.ndarray, "k n"], K_new_new: Float[np.ndarray, "k k"]
) -> tuple[Float[np.ndarray, "n+k n+k"], float]:
    """Append k rows to a lower Cholesky factor, in O(k n²) instead of O((n + k)³); jitter is added to new rows only.

    The new rows are B = K_new_old L⁻ᵀ and the factor of the Schur complement K_new_new - B Bᵀ. Rounding noise is
    measured relative to K_new_new, not to the complement, which may be nothing but noise.
    """
    n, k = L.shape[0], K_new_new.shape[0]
    B = solve_lower(L, K_new_old.T)
    noise_level = (n + k) * EPSILON * float(K_new_new.diagonal().max(initial=0.0))
    corner, jitter = _factorise_above(K_new_new - B.T @ B, noise_level)
    extended = np.empty((n + k, n + k), order="F")
    extended[:n, :n] = L
    extended[:n, n:] = 0.0
    extended[n:, :n] = B.T
    extended[n:, n:] = corner
    return extended, jitter


ROWS = 8  # number of rows in a block


@dataclass(frozen=True, eq=False)
class BlockRows:
    """k lower triangular matrices of equal size, by blocks of rows. Block b is an array (k, 8, 8 (b + 1)): rows 8 b to
    8 b + 7 of all matrices, zeros above the diagonal. Matrices that are larger by some rows share all full blocks.
    """

    blocks: tuple[Float[np.ndarray, "k 8 _w"], ...]

    @classmethod
    def of(cls, squares: Float[np.ndarray, "k T T"]) -> "BlockRows":
        """Block rows of whole matrices."""
        rows = cls.empty(len(squares), squares.shape[1])
        rows.put(np.arange(len(squares)), squares)
        return rows

    @classmethod
    def empty(cls, k: int, n_rows: int, base: "BlockRows | None" = None, n_common: int = 0) -> "BlockRows":
        """Rows of 0. Full blocks of the first ``n_common`` rows of a base are shared, its other blocks copied."""
        n_blocks, n_shared = -(-n_rows // ROWS), n_common // ROWS
        shared = () if base is None else base.blocks[:n_shared]
        rows = cls((*shared, *(np.zeros((k, ROWS, ROWS * (b + 1))) for b in range(len(shared), n_blocks))))
        if base is not None:
            for old, new in zip(base.blocks[n_shared:], rows.blocks[n_shared:], strict=False):
                new[:] = old
        return rows

    @property
    def addresses(self) -> Int[np.ndarray, " n"]:
        """Address of each block in memory, for compiled code; not cached, because copies have other addresses."""
        return np.array([block.ctypes.data for block in self.blocks], dtype=np.uint64)

    def put(self, matrices: Int[np.ndarray, " g"], squares: Float[np.ndarray, "g T T"], first: int = 0) -> None:
        """Write rows of some matrices, beginning with the block of row ``first``."""
        T = squares.shape[1]
        for b in range(first // ROWS, -(-T // ROWS)):
            start, end = ROWS * b, min(ROWS * (b + 1), T)
            self.blocks[b][matrices, : end - start, :end] = squares[:, start:end, :end]

    def squares(self, matrices: Int[np.ndarray, " g"], n_rows: int) -> Float[np.ndarray, "g T T"]:
        """Whole matrices (g, T, T) of ``n_rows`` = T rows, for some of the k; missing rows are 0."""
        out = np.zeros((len(matrices), n_rows, n_rows))
        for b, block in enumerate(self.blocks[: -(-n_rows // ROWS)]):
            start, end = ROWS * b, min(ROWS * (b + 1), n_rows)
            out[:, start:end, :end] = block[matrices, : end - start, :end]
        return out


@dataclass(frozen=True, eq=False)
class Factorised:
    """Factorisation K = L Lᵀ of a posterior's covariance matrix, and solutions; pending observations come last."""

    L: Square  # in Fortran order
    residual: Vector  # that of a pending observation is its expectation, so it has no effect on means
    whitened: Vector  # L⁻¹ residual, 0 where pending
    alpha: Vector  # K⁻¹ residual of known observations, 0 where pending
    jitter: float  # largest number added to an entry of K's diagonal, relative to the entry
    kept_inverse: Square | None  # L⁻¹; None: computed when needed

    @classmethod
    def of(cls, K: Square, residual: Vector, *, keeps_inverse: bool = True) -> "Factorised":
        """Factorise the covariance of known outcomes, noise included."""
        L, jitter = factorise_noisy(K)
        return cls.restored(L, inverted(L) if keeps_inverse else None, residual, jitter)

    @classmethod
    def restored(cls, L: Square, inverse: Square | None, residual: Vector, jitter: float) -> "Factorised":
        """Factorisation from a factor and its inverse (None: computed when needed)."""
        whitened = solve_lower(L, residual)
        return cls(L, residual, whitened, solve_lower(L, whitened, transposed=True), jitter, inverse)

    @cached_property
    def inverse(self) -> Square:
        """L⁻¹ (r, r)."""
        return inverted(self.L) if self.kept_inverse is None else self.kept_inverse

    def extended(
        self,
        K_new_old: Float[np.ndarray, "p r"],
        K_new_new: Float[np.ndarray, "p p"],
        residual: Float[np.ndarray, " p"] | None,
    ) -> "Factorised":
        """Factorisation with p more observations, in O(p r²). Without ``residual`` they are pending: alpha stays."""
        r, p = len(self.residual), len(K_new_new)
        if p == 0:
            return self
        units = _units(K_new_new)
        L, jitter = extend(self.L, K_new_old / units[:, None], K_new_new / (units[:, None] * units))
        L[r:] *= units[:, None]
        inverse = None
        if self.kept_inverse is not None:
            corner = solve_lower(L[r:, r:], np.eye(p))
            inverse = np.zeros((r + p, r + p))
            inverse[:r, :r] = self.kept_inverse
            inverse[r:, :r] = -corner @ (L[r:, :r] @ self.kept_inverse)
            inverse[r:, r:] = corner
        jitter = max(self.jitter, jitter)
        if residual is None:
            return self.awaiting(L, inverse, jitter)
        return Factorised.restored(L, inverse, np.concatenate([self.residual, residual]), jitter)

    def awaiting(self, L: Square, inverse: Square | None, jitter: float) -> "Factorised":
        """Factorisation with pending points, the last rows of the larger factor ``L``; they reduce variances only."""
        r = len(self.residual)
        nothing = np.zeros(len(L) - r)
        expected = np.concatenate([self.residual, L[r:, :r] @ self.whitened])
        whitened, alpha = np.concatenate([self.whitened, nothing]), np.concatenate([self.alpha, nothing])
        return Factorised(L, expected, whitened, alpha, jitter, inverse)

    def solve(self, residual: Float[np.ndarray, " s"]) -> Vector:
        """K⁻¹ times other residuals of the s known observations, which are the first; 0 for pending observations."""
        s = len(residual)
        known = np.asfortranarray(self.L[:s, :s])
        alpha = np.zeros(len(self.residual))
        alpha[:s] = solve_lower(known, solve_lower(known, residual), transposed=True)
        return alpha

    def log_density(self) -> float:
        """Log density of the residuals under N(0, K). Source: Rasmussen & Williams 2006, eq. 2.30."""
        constant = 0.5 * len(self.residual) * float(np.log(2.0 * np.pi))
        return -0.5 * float(self.whitened @ self.whitened) - float(np.log(self.L.diagonal()).sum()) - constant


def inverted(L: Square) -> Square:
    """The inverse of a lower triangular matrix, zeros above its diagonal included."""
    if not len(L):
        return np.zeros((0, 0))
    inverse, info = lapack.dtrtri(L, lower=1)
    assert info == 0, f"inverting a Cholesky factor failed with info {info}"
    return np.ascontiguousarray(np.tril(inverse))


def _units(K: Square) -> Vector:
    """Powers of two that scale the diagonal to about 1, without rounding: then rounding is measured row by row."""
    diagonal = K.diagonal()
    return np.exp2(np.round(0.5 * np.log2(np.where(diagonal > 0.0, diagonal, 1.0))))
