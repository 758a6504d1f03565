"""One covariance matrix of observations, factorised, growing by blocks."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.linalg import lapack

from swarmbo.belief.gp.cholesky import extend, factorise, solve_lower, solve_lower_transposed


@dataclass(frozen=True, eq=False)
class Factorised:
    """K = L Lᵀ and what a posterior needs of it; observations that are pending come last."""

    L: Float[np.ndarray, "r r"]  # in Fortran order
    residual: Float[np.ndarray, " r"]  # where pending as expected, so that they bring no news
    whitened: Float[np.ndarray, " r"]  # L⁻¹ residual, 0 where pending
    alpha: Float[np.ndarray, " r"]  # K⁻¹ residual of those known, 0 where pending
    jitter: float  # largest share of its diagonal that was added to an entry of K
    kept_inverse: Float[np.ndarray, "r r"] | None  # L⁻¹, if it is kept up to date

    @classmethod
    def of(
        cls, K: Float[np.ndarray, "r r"], residual: Float[np.ndarray, " r"], *, keeps_inverse: bool = True
    ) -> "Factorised":
        """Factorise the covariance of known outcomes, noise included."""
        units = _units(K)
        L, jitter = factorise(K / (units[:, None] * units))
        inverse = inverted(L) / units if keeps_inverse else None
        return cls.restored(np.asfortranarray(L * units[:, None]), inverse, residual, jitter)

    @classmethod
    def restored(
        cls,
        L: Float[np.ndarray, "r r"],
        inverse: Float[np.ndarray, "r r"] | None,
        residual: Float[np.ndarray, " r"],
        jitter: float,
    ) -> "Factorised":
        """From a factor and its inverse, if that is kept."""
        whitened = solve_lower(L, residual)
        return cls(L, residual, whitened, solve_lower_transposed(L, whitened), jitter, inverse)

    @cached_property
    def inverse(self) -> Float[np.ndarray, "r r"]:
        """L⁻¹ (r, r)."""
        return inverted(self.L) if self.kept_inverse is None else self.kept_inverse

    def extended(
        self,
        K_new_old: Float[np.ndarray, "p r"],
        K_new_new: Float[np.ndarray, "p p"],
        residual: Float[np.ndarray, " p"] | None,
    ) -> "Factorised":
        """With p more observations, in O(p r²). Without ``residual`` they are to come: alpha stays, to the bit."""
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

    def awaiting(
        self, L: Float[np.ndarray, "s s"], inverse: Float[np.ndarray, "s s"] | None, jitter: float
    ) -> "Factorised":
        """With points pending, whose rows come last in a larger factor: they take variance and bring no news."""
        r = len(self.residual)
        nothing = np.zeros(len(L) - r)
        expected = np.concatenate([self.residual, L[r:, :r] @ self.whitened])
        whitened, alpha = np.concatenate([self.whitened, nothing]), np.concatenate([self.alpha, nothing])
        return Factorised(L, expected, whitened, alpha, jitter, inverse)

    def solve(self, residual: Float[np.ndarray, " s"]) -> Float[np.ndarray, " r"]:
        """K⁻¹ of other residuals of the first s observations, those known; 0 for the rest."""
        s = len(residual)
        known = np.asfortranarray(self.L[:s, :s])
        alpha = np.zeros(len(self.residual))
        alpha[:s] = solve_lower_transposed(known, solve_lower(known, residual))
        return alpha

    def log_density(self) -> float:
        """Log density of the residuals under N(0, K). Source: Rasmussen & Williams 2006, eq. 2.30."""
        constant = 0.5 * len(self.residual) * float(np.log(2.0 * np.pi))
        return -0.5 * float(self.whitened @ self.whitened) - float(np.log(self.L.diagonal()).sum()) - constant


def inverted(L: Float[np.ndarray, "r r"]) -> Float[np.ndarray, "r r"]:
    """The inverse of a lower triangular matrix, zeros above its diagonal included."""
    if not len(L):
        return np.zeros((0, 0))
    inverse, info = lapack.dtrtri(L, lower=1)
    assert info == 0, f"inverting a Cholesky factor failed with info {info}"
    return np.ascontiguousarray(np.tril(inverse))


def _units(K: Float[np.ndarray, "r r"]) -> Float[np.ndarray, " r"]:
    """Powers of two that bring the diagonal near 1.

    Scaling by them is exact, and what counts as a rounding error in one row is then not measured by another row that
    has far more noise.
    """
    diagonal = K.diagonal()
    return np.exp2(np.round(0.5 * np.log2(np.where(diagonal > 0.0, diagonal, 1.0))))
