"""Monotone transforms of outcomes, fitted to data, so that a few large failures do not hide the top of a function.

    power p: z = -((best - y) / (best - median) + 0.01)^p          log: z = -log((best - y) / (best - median) + 0.1)

with the best and the median outcome so far; if most outcomes equal the best, the median is that of the others. Both
keep the order of outcomes and stretch the neighbourhood of the best. A model of z is additive in z, not in y.
"""

from typing import Literal

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

WarpKind = Literal["none", "power", "log"]
Numbers = Float[np.ndarray, " m"]

_OFFSETS = {"power": 0.01, "log": 0.1}
# smallest argument of the logarithm in ``log``; for smaller ones, above the best outcome, its tangent replaces it
_FLOOR = 0.01
_SMALL = 0.1  # largest known noise, as a share of the gap at which a transform is steepest
_LARGEST_EXPONENT = 300.0  # squares of outcomes stay within float64
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_REACH = 9.0  # range of the quadrature in standard deviations; less than 1e-18 of the probability is outside


class Warp(msgspec.Struct, frozen=True):
    """An increasing transform z(y) of outcomes.

    Args:
        kind: Form of the transform.
        best: Largest outcome of the data to which the transform was fitted.
        spread: Best minus median outcome, > 0.
        power: Exponent in (0, 1], for ``power``.

    Example:
        >>> y = np.array([-1000.0, -3.0, -2.0, -1.0, -0.5])  # one large failure
        >>> warp = Warp.fitted("log", y)
        >>> steps = np.diff(warp.forward(y))
        >>> bool((steps > 0.0).all()), bool(steps[0] < 3.0 * steps[1:].sum())  # same order, the best ones stretched
        (True, True)
        >>> bool(np.allclose(warp.backward(warp.forward(y)), y))
        True
    """

    kind: WarpKind = "none"
    best: float = 0.0
    spread: float = 1.0
    power: float = 0.5

    @classmethod
    def fitted(cls, kind: WarpKind, y: Float[np.ndarray, " t"], power: float = 0.5) -> "Warp":
        """Fit a transform to outcomes; ``none`` if they are constant."""
        seen = y[np.isfinite(y)]
        if kind == "none" or not len(seen):
            return cls()
        best = float(seen.max())
        spread, least = best - float(np.median(seen)), 1e-12 * max(abs(best), 1e-300)
        if spread <= least:  # most outcomes equal the best one
            seen = seen[best - seen > least]
            if not len(seen):
                return cls()
            spread = best - float(np.median(seen))
        return cls(kind, best, spread, power)

    def is_comparable(self, y: Float[np.ndarray, " t"], noise_std: Float[np.ndarray, " t"]) -> bool:
        """True if the evidence of these outcomes can be compared with that of untransformed ones.

        It is a density, which a steep transform raises without bound if good outcomes are equal. The transformed noise
        is known only if the known noise is small where the transform is steepest.
        """
        if self.kind == "none":
            return True
        seen = np.isfinite(y)
        good, noises = y[seen & (y > self.best - self.spread)], noise_std[seen & np.isfinite(noise_std)]
        is_exact = noises.max(initial=0.0) <= _SMALL * _OFFSETS[self.kind] * self.spread
        return is_exact and 2 * len(np.unique(good)) > len(good)

    def forward(self, y: ArrayLike) -> Float[np.ndarray, "..."]:
        """Transform outcomes. Above the best one, ``power`` continues as an odd function and ``log`` as its tangent."""
        if self.kind == "none":
            return np.asarray(y, dtype=float)
        gap = (self.best - np.asarray(y, dtype=float)) / self.spread + _OFFSETS[self.kind]
        if self.kind == "power":
            return -np.sign(gap) * np.abs(gap) ** self.power
        return -np.where(gap > _FLOOR, np.log(np.maximum(gap, _FLOOR)), np.log(_FLOOR) + (gap - _FLOOR) / _FLOOR)

    def backward(self, z: ArrayLike) -> Float[np.ndarray, "..."]:
        """Transform model values back to outcomes."""
        z = np.asarray(z, dtype=float)
        if self.kind == "none":
            return z
        if self.kind == "power":
            gap = -np.sign(z) * np.abs(z) ** (1.0 / self.power)
        else:
            near = _FLOOR + _FLOOR * (-z - np.log(_FLOOR))
            gap = np.where(-z > np.log(_FLOOR), np.exp(np.minimum(-z, _LARGEST_EXPONENT)), near)
        return self.best - self.spread * (gap - _OFFSETS[self.kind])

    def log_slope(self, y: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
        """Log dz/dy, which converts a density of z to a density of y."""
        if self.kind == "none":
            return np.zeros_like(y)
        gap = (self.best - y) / self.spread + _OFFSETS[self.kind]
        if self.kind == "log":
            return -np.log(np.maximum(gap, _FLOOR)) - np.log(self.spread)
        steepness = np.log(np.maximum(np.abs(gap), 1e-300))
        return np.log(self.power) + (self.power - 1.0) * steepness - np.log(self.spread)

    def noise_std(self, y: Float[np.ndarray, " t"], noise_std: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
        """Noise of z(y) to first order (delta method): the standard deviation of y (or NaN) times dz/dy."""
        return noise_std * np.exp(self.log_slope(y))

    def marginals(self, mean: Numbers, variance: Numbers) -> tuple[Numbers, Numbers]:
        """Mean and standard deviation of y for normal z, by Gauss-Legendre quadrature on both sides of the kink."""
        std = np.sqrt(variance)
        if self.kind == "none":
            return mean, std
        # for small z, y is exponentially large: half of E[y²] lies two standard deviations of log y further down
        low, high = -_REACH - (2.0 * std if self.kind == "log" else 0.0 * std), np.full(std.shape, _REACH)
        kink = 0.0 if self.kind == "power" else -np.log(_FLOOR)
        at_kink = np.divide(kink - mean, std, out=np.zeros_like(std), where=std > 0.0)
        middle = np.clip(at_kink, low, high)
        halves = np.array([(middle - low) / 2.0, (high - middle) / 2.0])  # (2, m)
        centres = np.array([(middle + low) / 2.0, (high + middle) / 2.0])
        nodes = centres[..., None] + halves[..., None] * _NODES  # (2, m, 64)
        weights = halves[..., None] * _WEIGHTS * np.exp(-0.5 * nodes**2)
        weights /= weights.sum(axis=(0, 2))[:, None]
        below = self.best - self.backward(mean[:, None] + std[:, None] * nodes)
        centre = (weights * below).sum(axis=(0, 2))
        share = (below - centre[:, None]) / self.spread
        deviation = self.spread * np.sqrt((weights * share**2).sum(axis=(0, 2)))
        return self.best - centre, np.where(std > 0.0, deviation, 0.0)
