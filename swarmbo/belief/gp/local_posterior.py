"""Posteriors of single factors, for stacks of factors of equal size at once, with analytic gradients.

Each slice along the leading axis is computed by operations of its own fixed shape, so what comes out for a factor does
not depend, to the bit, on which others are in the stack.

With k(u) the covariances of f_i(u) with the observations, K = L Lᵀ their covariance and alpha the mean's weights:

    mean = k · alpha,              d mean = dk · alpha
    var  = s - |v|², v = k L⁻ᵀ,    d var  = -2 dk · v L⁻¹

and for the contrast f_i(u) - f_i(v) the same with k(u) - k(v) and prior variance 2 (s - k(u, v)). Multiplying by L⁻¹
is faster than solving triangular systems, and keeps twice the digits that multiplying by K⁻¹ does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.block_rows import Wanted
from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.hyperparameters import are_many
from swarmbo.kernels import KernelName, correlation, correlation_and_slope, is_cusped

_FEW = 2  # points of each factor that are looked at one after the other
_ENTRIES = 2**13  # covariances worked on at once: a dozen arrays of that size fit into a core's own cache


@dataclass(frozen=True, eq=False)
class Marginals:
    """Mean and variance (g, m) and their gradients (g, m, a), None where not asked for."""

    mean: Float[np.ndarray, "g m"]
    var: Float[np.ndarray, "g m"]
    dmean: Float[np.ndarray, "g m a"] | None = None
    dvar: Float[np.ndarray, "g m a"] | None = None


@dataclass(frozen=True, eq=False)
class Covariances:
    """Covariances of factors at points with the observations, standardised.

    Args:
        X: The points (g, m, a), in lengthscales.
        k: Covariances (g, m, T).
        slopes: By which dk_t / du = -slopes_t (X - Z_t) / lengthscales, (g, m, T).
    """

    X: Float[np.ndarray, "g m a"]
    k: Float[np.ndarray, "g m T"]
    slopes: Float[np.ndarray, "g m T"]


class StackPosterior:
    """The posterior of some factors of equal size; what does not depend on the points is prepared once.

    Args:
        conditioned: Hyper-parameters and data.
        factors: Indices of the factors (g), all of one size a.
    """

    def __init__(self, conditioned: Conditioned, factors: Sequence[int]) -> None:
        index, hyper = list(factors), conditioned.hyper
        self._names: tuple[KernelName, ...] = tuple(hyper.kernels[i] for i in index)
        self._cusped = np.array([is_cusped(name) for name in self._names])
        self._lengths = np.array([hyper.lengthscales[i] for i in index])[:, None, :]  # (g, 1, a)
        self._outputs = np.array([hyper.outputscales[i] for i in index])[:, None]  # (g, 1)
        self._scales = np.array([hyper.scales[i] for i in index])[:, None]
        self._constants = np.array([hyper.constants[i] for i in index])[:, None]
        self._Z = conditioned.points(index) / self._lengths  # (g, T, a)
        self._Z_norms = (self._Z**2).sum(axis=-1)[:, None, :]
        self._Zt = np.ascontiguousarray(np.swapaxes(self._Z, 1, 2))
        is_run = index == list(range(index[0], index[0] + len(index)))
        rows = slice(index[0], index[0] + len(index)) if is_run else index  # of neighbours in memory no copy is made
        self._weights = (self._outputs * conditioned.seen[rows])[:, None, :]  # (g, 1, T)
        if hyper.times:
            self._weights = self._weights * conditioned.decay(index)[:, None, :]
        self._alpha = conditioned.alpha[rows][:, :, None]  # (g, T, 1)
        self._is_compiled = conditioned.is_compiled
        self._is_many = self._is_compiled and not conditioned.is_coupled and are_many(len(conditioned.scopes))
        if self._is_compiled:
            self._rows, T = conditioned.rows, conditioned.seen.shape[1]
            self._places = np.zeros(len(index), dtype=np.int64) if conditioned.is_coupled else np.array(index)
            self._counts = np.full(len(index), T) if conditioned.is_coupled else conditioned.counts[rows]
            return
        self._inverse = conditioned.inverse if conditioned.is_coupled else conditioned.inverse[rows]
        self._inverse_t = np.swapaxes(self._inverse, 1, 2)
        if conditioned.is_coupled:
            self._inverse_t = np.ascontiguousarray(self._inverse_t)  # read for every factor
        self._slices = dict[int, list[tuple[slice, StackPosterior]]]()

    def _some(self, factors: slice) -> "StackPosterior":
        """Those of some factors, without copies."""
        own = object.__new__(StackPosterior)
        for name, value in self.__dict__.items():
            is_common = isinstance(value, np.ndarray) and len(value) == 1 and name in ("_inverse", "_inverse_t")
            setattr(own, name, value if is_common or isinstance(value, dict | bool) else value[factors])
        return own

    def by_cache(self, n_points: int) -> "list[tuple[slice, StackPosterior]]":
        """The factors, as many together as one array of covariances at the points fits into cache."""
        size = max(1, _ENTRIES // max(n_points * self._Z.shape[1], 1))
        if size not in self._slices:
            starts = range(0, len(self._Z), size)
            rows = [slice(start, start + size) for start in starts]
            self._slices[size] = [(row, self._some(row)) for row in rows] if len(rows) > 1 else [(slice(None), self)]
        return self._slices[size]

    @property
    def constants(self) -> Float[np.ndarray, "g 1"]:
        """Prior means, physical."""
        return self._constants

    @property
    def scales(self) -> Float[np.ndarray, "g 1"]:
        """Physical units per standardised one."""
        return self._scales

    def mean(self, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m"]:
        """Posterior mean of f_i(u) in physical units, without the cost of a variance."""
        if self._is_compiled:
            return self._constants + self._compiled(U, None, "mean").mean
        return np.concatenate([own._mean(U[row]) for row, own in self.by_cache(U.shape[1])])

    def _mean(self, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m"]:
        return self._constants + self._scales * (self.cross(U) @ self._alpha)[..., 0]

    def marginals(self, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Marginals:
        """Posterior of f_i(u) in physical units; gradients by coordinates of the unit cube."""
        if self._is_compiled:
            found = self._compiled(U, None, "gradient" if gradient else "variance")
            return replace(found, mean=self._constants + found.mean)
        return _joined([own._marginals(U[row], gradient) for row, own in self.by_cache(U.shape[1])])

    def _marginals(self, U: Float[np.ndarray, "g m a"], gradient: bool) -> Marginals:
        at = self.cross_and_slopes(U) if gradient else None
        k = self.cross(U) if at is None else at.k
        v = k @ self._inverse_t
        mean = self._constants + self._scales * (k @ self._alpha)[..., 0]
        var = self._scales**2 * np.maximum(self._outputs - (v * v).sum(axis=-1), 0.0)
        if at is None:
            return Marginals(mean, var)
        dmean = self.pull(at, np.swapaxes(self._alpha, 1, 2))
        dcross = self.pull(at, v @ self._inverse)
        return Marginals(mean, var, self._scales[..., None] * dmean, -2.0 * self._scales[..., None] ** 2 * dcross)

    def contrast(
        self,
        U: Float[np.ndarray, "g m a"],
        reference: Float[np.ndarray, "g 1 a"],
        *,
        gradient: bool = False,
        rough: bool = False,
    ) -> Marginals:
        """Posterior of f_i(u) - f_i(reference): offsets between factors, which totals can't tell, cancel.

        Args:
            U: Points of the unit cube.
            reference: One for each factor.
            gradient: Whether gradients are wanted.
            rough: Whether three digits will do, to say where to look; it counts for many factors observed one by one.
        """
        if self._is_compiled:
            return self._compiled(U, reference, "gradient" if gradient else "variance", rough=rough)
        chunks = self.by_cache(U.shape[1])
        return _joined([own._contrast(U[row], reference[row], gradient) for row, own in chunks])

    def _contrast(
        self, U: Float[np.ndarray, "g m a"], reference: Float[np.ndarray, "g 1 a"], gradient: bool
    ) -> Marginals:
        at = self.cross_and_slopes(U) if gradient else None
        k = (self.cross(U) if at is None else at.k) - self.cross(reference)
        v = k @ self._inverse_t
        X, V = U / self._lengths, reference / self._lengths
        apart = np.sqrt(((X - V) ** 2).sum(axis=-1))
        near, slope = self._radial_and_slope(apart)
        mean = self._scales * (k @ self._alpha)[..., 0]
        var = self._scales**2 * np.maximum(2.0 * self._outputs * (1.0 - near) - (v * v).sum(axis=-1), 0.0)
        if at is None:
            return Marginals(mean, var)
        dmean = self.pull(at, np.swapaxes(self._alpha, 1, 2))
        own = (self._outputs * slope)[..., None] * (X - V) / self._lengths
        dvar = 2.0 * self._scales[..., None] ** 2 * (own - self.pull(at, v @ self._inverse))
        return Marginals(mean, var, self._scales[..., None] * dmean, dvar)

    def weighted(
        self, U: Float[np.ndarray, "g m a"], alpha: Float[np.ndarray, "g T"], *, gradient: bool = False
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Covariances with the observations, times other weights than the mean's, and their gradients; standardised.

        Args:
            U: Points of the unit cube.
            alpha: The weights.
            gradient: Whether gradients are wanted; else they are 0.
        """
        if self._is_compiled:
            from swarmbo.belief.gp.compiled_posterior import predicted  # late: numba is slow to load

            told, _, pulled, _ = predicted(
                self._names, self._counts, U, None, self._Zt, self._lengths[:, 0], self._outputs[:, 0],
                self._weights[:, 0], alpha, self._rows, self._places, "slope" if gradient else "mean",
            )  # fmt: skip
            return told, pulled
        parts = list[np.ndarray](), list[np.ndarray]()
        for row, own in self.by_cache(U.shape[1]):
            at = own.cross_and_slopes(U[row]) if gradient else None
            k = own.cross(U[row]) if at is None else at.k
            parts[0].append((k @ alpha[row][:, :, None])[..., 0])
            parts[1].append(np.zeros_like(U[row]) if at is None else own.pull(at, alpha[row][:, None, :]))
        return np.concatenate(parts[0]), np.concatenate(parts[1])

    def _compiled(
        self,
        U: Float[np.ndarray, "g m a"],
        reference: Float[np.ndarray, "g 1 a"] | None,
        wanted: Wanted,
        *,
        rough: bool = False,
    ) -> Marginals:
        """What is wanted of f_i(u), or of f_i(u) - f_i(reference), but for prior means; physical."""
        from swarmbo.belief.gp.compiled_posterior import predict, predicted  # late: numba is slow to load

        kernel: Any = predict
        rough = rough and wanted == "variance"
        if self._is_many and (rough or U.shape[1] <= _FEW):
            from swarmbo.belief.gp.compiled_few import predict_few, predict_roughly

            kernel = predict_roughly if rough else predict_few
        mean, var, dmean, dvar = predicted(
            self._names, self._counts, U, reference, self._Zt, self._lengths[:, 0], self._outputs[:, 0],
            self._weights[:, 0], self._alpha[:, :, 0], self._rows, self._places, wanted, kernel,
        )  # fmt: skip
        scales = self._scales
        if wanted != "gradient":
            return Marginals(scales * mean, scales**2 * var)
        return Marginals(scales * mean, scales**2 * var, scales[..., None] * dmean, scales[..., None] ** 2 * dvar)

    def cross(self, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m T"]:
        """Prior covariances of f_i(u) with the observations, standardised."""
        r, weights = self._distances(U / self._lengths), self._weights
        if self._names.count(self._names[0]) == len(self._names):
            return weights * correlation(self._names[0], r)
        return weights * np.array([correlation(name, part) for name, part in zip(self._names, r, strict=True)])

    def cross_and_slopes(self, U: Float[np.ndarray, "g m a"]) -> Covariances:
        """The same, with what gradients need."""
        X = U / self._lengths
        near, slope = self._radial_and_slope(self._distances(X))
        return Covariances(X, self._weights * near, self._weights * slope)

    def pull(self, at: Covariances, weights: Float[np.ndarray, "#g #m T"]) -> Float[np.ndarray, "g m a"]:
        """Gradient of k · weights by coordinates of the unit cube, the weights held fixed; standardised."""
        q = at.slopes * weights
        return (q @ self._Z - q.sum(axis=-1, keepdims=True) * at.X) / self._lengths

    def _distances(self, X: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m T"]:
        squares = (X @ self._Zt) * -2.0
        squares += (X**2).sum(axis=-1)[..., None]
        squares += self._Z_norms
        for i in np.flatnonzero(self._cusped):  # a cusp shows what the expansion above loses to cancellation
            squares[i] = ((X[i, :, None, :] - self._Z[i, None, :, :]) ** 2).sum(axis=-1)
        return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)

    def _radial_and_slope(self, r: Float[np.ndarray, "g ..."]) -> tuple[np.ndarray, np.ndarray]:
        if self._names.count(self._names[0]) == len(self._names):
            return correlation_and_slope(self._names[0], r)
        pairs = [correlation_and_slope(name, part) for name, part in zip(self._names, r, strict=True)]
        return np.array([near for near, _ in pairs]), np.array([slope for _, slope in pairs])


def _joined(parts: Sequence[Marginals]) -> Marginals:
    if len(parts) == 1:
        return parts[0]
    mean, var = np.concatenate([part.mean for part in parts]), np.concatenate([part.var for part in parts])
    dmean = [part.dmean for part in parts if part.dmean is not None]
    dvar = [part.dvar for part in parts if part.dvar is not None]
    return Marginals(mean, var, np.concatenate(dmean), np.concatenate(dvar)) if dmean else Marginals(mean, var)
