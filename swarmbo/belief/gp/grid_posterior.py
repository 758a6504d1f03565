"""Posteriors of factors on grids that stay where they are while observations come in one by one.

With V = L⁻¹ k(data, grid) kept, a further observation costs one pass over V, 2 t G operations instead of t² G, and the
speed is that at which memory is read. A refit changes L, and V is worked out again.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import blas

from swarmbo.belief.gp.cholesky import solve_lower
from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.factorised import Factorised
from swarmbo.belief.gp.local_posterior import StackPosterior

_GROWTH = 1.25
_CHUNK = 512  # grid points whitened at once, so that they stay in cache


class _Rows:
    """An array (capacity, G) that is filled row after row; readers of the first few rows see no change."""

    def __init__(self, filled: Float[np.ndarray, "t G"]) -> None:
        self.array, self.used = filled, len(filled)

    def extended(self, t: int, new: Float[np.ndarray, "p G"]) -> "_Rows":
        """With rows written behind the first t: in place if nobody did so before, else in a copy."""
        end, rows = t + len(new), self
        if self.used != t or end > len(self.array):
            array = np.empty((int(_GROWTH * end) + 8, self.array.shape[1]))
            array[:t] = self.array[:t]
            rows = _Rows(array)
        rows.array[t:end] = new
        rows.used = end
        return rows


@dataclass(frozen=True, eq=False)
class GridPosterior:
    """Mean and variance of some factors of equal size on a grid each. Made by ``AdditiveGP.on_grid``.

    Args:
        factors: Indices of the factors (g).
        U: Their grids (g, G, a) in the unit cube.
        conditioned: The data.
        whitened: For each factor V (t, G), in a buffer with room to grow.
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
            means[g] = part.whitened @ V
            variances[g] = conditioned.hyper.outputscales[factor] - np.einsum("tg,tg->g", V, V)
            rows.append(_Rows(V))
        return cls(factors, U, conditioned, tuple(rows), means, variances)

    def after(self, conditioned: Conditioned) -> "GridPosterior":
        """The same grids, given data that extend those so far, or others."""
        if not self._is_extended_by(conditioned):
            return GridPosterior.of(conditioned, self.factors, self.U)
        whitened, means, variances = list(self.whitened), self.means.copy(), self.variances.copy()
        first = min(len(_part(self.conditioned, factor).alpha) for factor in self.factors)
        ahead = StackPosterior(conditioned, self.factors).cross(self.U, first)
        for g, factor in enumerate(self.factors):
            part, t = _part(conditioned, factor), len(_part(self.conditioned, factor).alpha)
            if len(part.alpha) == t:
                continue
            V = ahead[g, :, t - first : len(part.alpha) - first].T - part.L[t:, :t] @ whitened[g].array[:t]
            V = V / part.L[t, t] if len(V) == 1 else solve_lower(part.L[t:, t:], V)
            means[g] += part.whitened[t:] @ V
            variances[g] -= np.einsum("pg,pg->g", V, V)
            whitened[g] = whitened[g].extended(t, V)
        return GridPosterior(self.factors, self.U, conditioned, tuple(whitened), means, variances)

    def _is_extended_by(self, conditioned: Conditioned) -> bool:
        old = self.conditioned
        if old.hyper != conditioned.hyper or old.is_coupled != conditioned.is_coupled:
            return False
        if old.hyper.times and old.now != conditioned.now:  # what was observed has faded since
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


def whiten(part: Factorised, cross: Float[np.ndarray, "G t"]) -> Float[np.ndarray, "t G"]:
    """L⁻¹ crossᵀ, as a product with the triangular inverse: half the operations of a product with a full matrix."""
    V = np.empty(cross.shape[::-1])
    if V.size == 0:
        return V
    inverse = np.asfortranarray(part.inverse)
    for start in range(0, len(cross), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        V[:, chunk] = blas.dtrmm(1.0, inverse, np.array(cross[chunk]).T, lower=1, overwrite_b=1)
    return V


def _part(conditioned: Conditioned, factor: int) -> Factorised:
    return conditioned.parts[0 if conditioned.is_coupled else factor]
