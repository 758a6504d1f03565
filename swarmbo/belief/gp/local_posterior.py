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
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.kernels import KernelName, correlation, correlation_and_slope, is_cusped


@dataclass(frozen=True, eq=False)
class Moments:
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
        self._lengths = np.array([hyper.lengthscales[i] for i in index])[:, None, :]  # (g, 1, a)
        self._outputs = np.array([hyper.outputscales[i] for i in index])[:, None]  # (g, 1)
        self._scales = np.array([hyper.scales[i] for i in index])[:, None]
        self._constants = np.array([hyper.constants[i] for i in index])[:, None]
        self._Z = np.array([conditioned.points[i] for i in index]) / self._lengths  # (g, T, a)
        self._Z_norms = (self._Z**2).sum(axis=-1)[:, None, :]
        self._Zt = np.ascontiguousarray(np.swapaxes(self._Z, 1, 2))
        self._weights = (self._outputs * conditioned.seen[index])[:, None, :]  # (g, 1, T)
        if hyper.times:
            self._weights = self._weights * conditioned.fading(index)[:, None, :]
        self._alpha = conditioned.alpha[index][:, :, None]  # (g, T, 1)
        self._inverse = conditioned.inverse if conditioned.is_tied else conditioned.inverse[index]

    @cached_property
    def _inverse_t(self) -> Float[np.ndarray, "_ T T"]:
        return np.ascontiguousarray(np.swapaxes(self._inverse, 1, 2))

    @property
    def constants(self) -> Float[np.ndarray, "g 1"]:
        """Prior means, physical."""
        return self._constants

    @property
    def scales(self) -> Float[np.ndarray, "g 1"]:
        """Physical units per standardised one."""
        return self._scales

    def moments(self, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Moments:
        """Posterior of f_i(u) in physical units; gradients by coordinates of the unit cube."""
        at = self.cross_and_slopes(U) if gradient else None
        k = self.cross(U) if at is None else at.k
        v = k @ self._inverse_t
        mean = self._constants + self._scales * (k @ self._alpha)[..., 0]
        var = self._scales**2 * np.maximum(self._outputs - (v * v).sum(axis=-1), 0.0)
        if at is None:
            return Moments(mean, var)
        dmean = self.pull(at, np.swapaxes(self._alpha, 1, 2))
        dcross = self.pull(at, v @ self._inverse)
        return Moments(mean, var, self._scales[..., None] * dmean, -2.0 * self._scales[..., None] ** 2 * dcross)

    def contrast(
        self, U: Float[np.ndarray, "g m a"], reference: Float[np.ndarray, "g 1 a"], *, gradient: bool = False
    ) -> Moments:
        """Posterior of f_i(u) - f_i(reference): offsets between factors, which totals can't tell, cancel."""
        at = self.cross_and_slopes(U) if gradient else None
        k = (self.cross(U) if at is None else at.k) - self.cross(reference)
        v = k @ self._inverse_t
        X, V = U / self._lengths, reference / self._lengths
        apart = np.sqrt(((X - V) ** 2).sum(axis=-1))
        near, slope = self._radial_and_slope(apart)
        mean = self._scales * (k @ self._alpha)[..., 0]
        var = self._scales**2 * np.maximum(2.0 * self._outputs * (1.0 - near) - (v * v).sum(axis=-1), 0.0)
        if at is None:
            return Moments(mean, var)
        dmean = self.pull(at, np.swapaxes(self._alpha, 1, 2))
        own = (self._outputs * slope)[..., None] * (X - V) / self._lengths
        dvar = 2.0 * self._scales[..., None] ** 2 * (own - self.pull(at, v @ self._inverse))
        return Moments(mean, var, self._scales[..., None] * dmean, dvar)

    def cross(self, U: Float[np.ndarray, "g m a"], first: int = 0) -> Float[np.ndarray, "g m T"]:
        """Prior covariances of f_i(u) with the observations, standardised; without those before ``first``."""
        r, weights = self._distances(U / self._lengths, first), self._weights[:, :, first:]
        if len(set(self._names)) == 1:
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

    def _distances(self, X: Float[np.ndarray, "g m a"], first: int = 0) -> Float[np.ndarray, "g m T"]:
        squares = (X @ self._Zt[:, :, first:]) * -2.0
        squares += (X**2).sum(axis=-1)[..., None]
        squares += self._Z_norms[:, :, first:]
        for i, name in enumerate(self._names):
            if is_cusped(name):  # a cusp shows what the expansion above loses to cancellation
                squares[i] = ((X[i, :, None, :] - self._Z[i, None, first:, :]) ** 2).sum(axis=-1)
        return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)

    def _radial_and_slope(self, r: Float[np.ndarray, "g ..."]) -> tuple[np.ndarray, np.ndarray]:
        if len(set(self._names)) == 1:
            return correlation_and_slope(self._names[0], r)
        pairs = [correlation_and_slope(name, part) for name, part in zip(self._names, r, strict=True)]
        return np.array([near for near, _ in pairs]), np.array([slope for _, slope in pairs])
