"""Posteriors of factors on grids that stay where they are while observations come in one by one.

With V = L⁻¹ k(data, grid) kept, a further observation costs one pass over V, 2 t G operations instead of t² G, and the
speed is that at which memory is read. A refit changes L, and V is worked out again.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import blas

from swarmbo.belief.cholesky import solve_lower
from swarmbo.belief.conditioning import Conditioned
from swarmbo.belief.factorised import Factorised
from swarmbo.belief.local_posterior import StackPosterior

_GROWTH = 1.25


class _Rows:
    """An array (G, capacity) whose columns are filled one after the other; readers of the first few see no change."""

    def __init__(self, filled: Float[np.ndarray, "G t"]) -> None:
        self.array, self.used = filled, filled.shape[1]

    def extended(self, t: int, columns: Float[np.ndarray, "G p"]) -> "_Rows":
        """With columns written behind the first t: in place if nobody did so before, else in a copy."""
        end = t + columns.shape[1]
        rows = self
        if self.used != t or end > self.array.shape[1]:
            array = np.empty((len(self.array), int(_GROWTH * end) + 8))
            array[:, :t] = self.array[:, :t]
            rows = _Rows(array)
        rows.array[:, t:end] = columns
        rows.used = end
        return rows


@dataclass(frozen=True, eq=False)
class GridPosterior:
    """Mean and variance of some factors of equal size on a grid each. Made by ``AdditiveGP.on_grid``.

    Args:
        factors: Indices of the factors (g).
        U: Their grids (g, G, a) in the unit cube.
        conditioned: The data.
        whitened: For each factor Vᵀ (G, t), in a buffer with room to grow.
        means: Standardised, without the prior mean (g, G).
        variances: Standardised (g, G).
    """

    factors: tuple[int, ...]
    U: Float[np.ndarray, "g G a"]
    conditioned: Conditioned
    whitened: tuple[_Rows, ...]
    means: Float[np.ndarray, "g G"]
    variances: Float[np.ndarray, "g G"]

    @classmethod
    def of(cls, conditioned: Conditioned, factors: tuple[int, ...], U: Float[np.ndarray, "g G a"]) -> "GridPosterior":
        """Work all of it out."""
        cross = StackPosterior(conditioned, factors).cross(U)
        rows: list[_Rows] = []
        means, variances = np.empty(U.shape[:2]), np.empty(U.shape[:2])
        for g, factor in enumerate(factors):
            part = _part(conditioned, factor)
            V = whiten(part, cross[g][:, : len(part.alpha)])
            means[g] = V @ part.whitened
            variances[g] = conditioned.hyper.outputscales[factor] - np.einsum("gt,gt->g", V, V)
            rows.append(_Rows(V))
        return cls(factors, U, conditioned, tuple(rows), means, variances)

    def after(self, conditioned: Conditioned) -> "GridPosterior":
        """The same grids, given data that extend those so far, or others."""
        if not self._is_extended_by(conditioned):
            return GridPosterior.of(conditioned, self.factors, self.U)
        whitened, means, variances = list(self.whitened), self.means.copy(), self.variances.copy()
        for g, factor in enumerate(self.factors):
            part, t = _part(conditioned, factor), len(_part(self.conditioned, factor).alpha)
            if len(part.alpha) == t:
                continue
            ahead = StackPosterior(conditioned, [factor]).cross(self.U[g][None], first=t)[0]
            V = ahead[:, : len(part.alpha) - t] - whitened[g].array[:, :t] @ part.L[t:, :t].T
            V = solve_lower(part.L[t:, t:], V.T).T
            means[g] += V @ part.whitened[t:]
            variances[g] -= (V * V).sum(axis=1)
            whitened[g] = whitened[g].extended(t, V)
        return GridPosterior(self.factors, self.U, conditioned, tuple(whitened), means, variances)

    def _is_extended_by(self, conditioned: Conditioned) -> bool:
        old = self.conditioned
        if old.hyper != conditioned.hyper or old.is_tied != conditioned.is_tied:
            return False
        for one, other in zip(old.parts, conditioned.parts, strict=True):
            t = len(one.alpha)
            if len(other.alpha) < t or not np.array_equal(one.residual, other.residual[:t]):
                return False
            if not np.array_equal(one.L, other.L[:t, :t]):
                return False
        return True

    @property
    def mean(self) -> Float[np.ndarray, "g G"]:
        """Posterior means in the unit of the outcomes."""
        hyper, index = self.conditioned.hyper, list(self.factors)
        return np.array(hyper.constants)[index, None] + np.array(hyper.scales)[index, None] * self.means

    @property
    def var(self) -> Float[np.ndarray, "g G"]:
        """Posterior variances in the square of the unit of the outcomes."""
        scales = np.array(self.conditioned.hyper.scales)[list(self.factors), None]
        return scales**2 * np.maximum(self.variances, 0.0)


def whiten(part: Factorised, cross: Float[np.ndarray, "G t"]) -> Float[np.ndarray, "G t"]:
    """(L⁻¹ crossᵀ)ᵀ: as a product with the triangular inverse, which takes half the operations of a full one."""
    if cross.size == 0:
        return np.zeros(cross.shape)
    product = blas.dtrmm(1.0, np.asfortranarray(part.inverse), np.ascontiguousarray(cross).T, lower=1, overwrite_b=1)
    return product.T


def _part(conditioned: Conditioned, factor: int) -> Factorised:
    return conditioned.parts[0 if conditioned.is_tied else factor]
