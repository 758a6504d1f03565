"""Posteriors of single factors, for stacks of factors of equal size at once, with analytic gradients.

Each slice along the leading axis is computed by operations of its own fixed shape, so what comes out for a factor does
not depend, to the bit, on which others are in the stack.

With k(u) the covariances of f_i(u) with the observations, A their inverse covariance and alpha the mean's weights:

    mean = k · alpha,        d mean = dk · alpha
    var  = s - k A k,        d var  = -2 dk A k

and for the contrast f_i(u) - f_i(v) the same with k(u) - k(v) and prior variance 2 (s - k(u, v)).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.belief.additive_settings import AdditiveHyperparameters
from swarmbo.belief.conditioning import Conditioned
from swarmbo.kernels import KernelName, correlation, correlation_slope


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance (g, m) and their gradients (g, m, a), None where not asked for."""

    mean: Float[np.ndarray, "g m"]
    var: Float[np.ndarray, "g m"]
    dmean: Float[np.ndarray, "g m a"] | None = None
    dvar: Float[np.ndarray, "g m a"] | None = None


class StackPosterior:
    """The posterior of some factors of equal size; what does not depend on the points is prepared once.

    Args:
        hyper: Hyper-parameters of all factors.
        conditioned: The data.
        factors: Indices of the factors (g), all of one size a.
    """

    def __init__(self, hyper: AdditiveHyperparameters, conditioned: Conditioned, factors: Sequence[int]) -> None:
        index = list(factors)
        self._names: tuple[KernelName, ...] = tuple(hyper.kernels[i] for i in index)
        self._lengths = np.array([hyper.lengthscales[i] for i in index])[:, None, :]  # (g, 1, a)
        self._outputs = np.array([hyper.outputscales[i] for i in index])[:, None]  # (g, 1)
        self._scales = np.array([hyper.scales[i] for i in index])[:, None]
        self._constants = np.array([hyper.constants[i] for i in index])[:, None]
        self._Z = np.array([conditioned.points[i] for i in index]) / self._lengths  # (g, T, a)
        self._Z_norms = (self._Z**2).sum(axis=-1)[:, None, :]
        self._Zt = np.ascontiguousarray(np.swapaxes(self._Z, 1, 2))
        self._weights = (self._outputs * conditioned.seen[index])[:, None, :]  # (g, 1, T)
        self._alpha = conditioned.alpha[index][:, :, None]  # (g, T, 1)
        self._A = conditioned.inverse if conditioned.is_tied else conditioned.inverse[index]

    def moments(self, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Moments:
        """Posterior of f_i(u) in physical units; gradients by coordinates of the unit cube."""
        X = U / self._lengths
        r = self._distances(X)
        k = self._weights * self._radial(correlation, r)
        v = k @ self._A
        mean = self._constants + self._scales * (k @ self._alpha)[..., 0]
        var = self._scales**2 * np.maximum(self._outputs - (v * k).sum(axis=-1), 0.0)
        if not gradient:
            return Moments(mean, var)
        slopes = self._weights * self._radial(correlation_slope, r)
        dmean, dcross = self._pull(X, slopes, v)
        return Moments(mean, var, self._scales[..., None] * dmean, -2.0 * self._scales[..., None] ** 2 * dcross)

    def contrast(
        self, U: Float[np.ndarray, "g m a"], reference: Float[np.ndarray, "g 1 a"], *, gradient: bool = False
    ) -> Moments:
        """Posterior of f_i(u) - f_i(reference): offsets between factors, which totals can't tell, cancel."""
        X, V = U / self._lengths, reference / self._lengths
        r = self._distances(X)
        k = self._weights * (self._radial(correlation, r) - self._radial(correlation, self._distances(V)))
        v = k @ self._A
        apart = np.sqrt(((X - V) ** 2).sum(axis=-1))
        prior = 2.0 * self._outputs * (1.0 - self._radial(correlation, apart))
        mean = self._scales * (k @ self._alpha)[..., 0]
        var = self._scales**2 * np.maximum(prior - (v * k).sum(axis=-1), 0.0)
        if not gradient:
            return Moments(mean, var)
        slopes = self._weights * self._radial(correlation_slope, r)
        dmean, dcross = self._pull(X, slopes, v)
        own = (self._outputs * self._radial(correlation_slope, apart))[..., None] * (X - V) / self._lengths
        dvar = 2.0 * self._scales[..., None] ** 2 * (own - dcross)
        return Moments(mean, var, self._scales[..., None] * dmean, dvar)

    def covariances(self, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m T"]:
        """Prior covariances of f_i(u) with the observations, standardised."""
        return self._weights * self._radial(correlation, self._distances(U / self._lengths))

    def weighted(
        self, U: Float[np.ndarray, "g m a"], weights: Float[np.ndarray, "g T 1"]
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """k_i(u) · weights, standardised, and its gradient."""
        X = U / self._lengths
        r = self._distances(X)
        k = self._weights * self._radial(correlation, r)
        q = self._weights * self._radial(correlation_slope, r) * np.swapaxes(weights, 1, 2)
        return (k @ weights)[..., 0], (q @ self._Z - q.sum(axis=-1, keepdims=True) * X) / self._lengths

    def _pull(
        self, X: Float[np.ndarray, "g m a"], slopes: Float[np.ndarray, "g m T"], v: Float[np.ndarray, "g m T"]
    ) -> tuple[Float[np.ndarray, "g m a"], Float[np.ndarray, "g m a"]]:
        """Dk · alpha and dk · v: with slopes w, dk_j = -w (x_j - z_j) / l_j in scaled coordinates."""
        q = slopes * np.swapaxes(self._alpha, 1, 2)
        first = (q @ self._Z - q.sum(axis=-1, keepdims=True) * X) / self._lengths
        q = slopes * v
        second = (q @ self._Z - q.sum(axis=-1, keepdims=True) * X) / self._lengths
        return first, second

    def _distances(self, X: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m T"]:
        if "matern12" in self._names:  # its cusp shows what the expansion below loses to cancellation
            return np.sqrt(((X[:, :, None, :] - self._Z[:, None, :, :]) ** 2).sum(axis=-1))
        squares = (X @ self._Zt) * -2.0
        squares += (X**2).sum(axis=-1)[..., None]
        squares += self._Z_norms
        return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)

    def _radial(self, function: Callable[[KernelName, np.ndarray], np.ndarray], r: np.ndarray) -> np.ndarray:
        if len(set(self._names)) == 1:
            return function(self._names[0], r)
        return np.array([function(name, part) for name, part in zip(self._names, r, strict=True)])
