"""Monotone transforms of outcomes, fitted to data: what makes a few large failures stop hiding the top of a function.

    power p: z = -((best - y) / (best - median) + 0.01)^p          log: z = -log((best - y) / (best - median) + 0.1)

with the best and the median outcome so far. Both keep the order of outcomes and stretch the neighbourhood of the best.
A model of z is additive in z, not in y: that is the price.
"""

from typing import Literal

import msgspec
import numpy as np
from jaxtyping import Float

WarpKind = Literal["none", "power", "log"]

_OFFSETS = {"power": 0.01, "log": 0.1}
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)


class Warp(msgspec.Struct, frozen=True):
    """A monotone transform z(y), increasing.

    Args:
        kind: Its form.
        best: The largest outcome it was fitted to.
        spread: That less the median, > 0.
        power: Exponent in (0, 1], for ``power``.
    """

    kind: WarpKind = "none"
    best: float = 0.0
    spread: float = 1.0
    power: float = 0.5

    @classmethod
    def fitted(cls, kind: WarpKind, y: Float[np.ndarray, " t"], power: float = 0.5) -> "Warp":
        """The transform for given outcomes; ``none`` where they do not vary.

        Args:
            kind: Its form.
            y: Outcomes; NaN is left out.
            power: Exponent in (0, 1].
        """
        seen = y[np.isfinite(y)]
        if kind == "none" or not len(seen):
            return cls()
        best = float(seen.max())
        spread = best - float(np.median(seen))
        if spread <= 1e-12 * max(abs(best), 1e-300):
            return cls()
        return cls(kind, best, spread, power)

    def forward(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Outcomes to model units; an outcome above the best is taken on by the odd continuation."""
        if self.kind == "none":
            return np.asarray(y, dtype=float)
        gap = (self.best - np.asarray(y, dtype=float)) / self.spread + _OFFSETS[self.kind]
        if self.kind == "power":
            return -np.sign(gap) * np.abs(gap) ** self.power
        floor = 0.1 * _OFFSETS["log"]  # beyond it the logarithm is continued by its tangent
        return -np.where(gap > floor, np.log(np.maximum(gap, floor)), np.log(floor) + (gap - floor) / floor)

    def backward(self, z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Model units to outcomes."""
        z = np.asarray(z, dtype=float)
        if self.kind == "none":
            return z
        if self.kind == "power":
            gap = -np.sign(z) * np.abs(z) ** (1.0 / self.power)
        else:
            floor = 0.1 * _OFFSETS["log"]
            gap = np.where(-z > np.log(floor), np.exp(np.minimum(-z, 700.0)), floor + floor * (-z - np.log(floor)))
        return self.best - self.spread * (gap - _OFFSETS[self.kind])

    def log_slope(self, y: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
        """Log dz/dy, which turns an evidence of z into one of y."""
        if self.kind == "none":
            return np.zeros_like(y)
        gap = np.maximum((self.best - y) / self.spread + _OFFSETS[self.kind], 1e-12)
        power = self.power if self.kind == "power" else 0.0
        return (np.log(power) if power else 0.0) + (power - 1.0) * np.log(gap) - np.log(self.spread)

    def moments(
        self, mean: Float[np.ndarray, " m"], variance: Float[np.ndarray, " m"]
    ) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and standard deviation of y where z is normal, by Gauss-Hermite quadrature with 32 nodes."""
        std = np.sqrt(variance)
        if self.kind == "none":
            return mean, std
        y = self.backward(mean[:, None] + std[:, None] * _NODES)
        weights = _WEIGHTS / _WEIGHTS.sum()
        centre = y @ weights
        return centre, np.sqrt(np.maximum((y - centre[:, None]) ** 2 @ weights, 0.0))
