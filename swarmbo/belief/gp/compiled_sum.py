"""The evidence of totals of many factors, one after the other, compiled. Import it late: numba is slow to load.

All that is kept are the pairs of outcomes, whatever the number of factors: a first pass adds up their covariances, and
a second, once it is known how the evidence depends on each pair, works out what each factor has to do with it.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int
from numba.core import types

from swarmbo.belief.gp.evidence import LogPosterior
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.boundary.compiling import compiled
from swarmbo.kernels import KernelName
from swarmbo.kernels.compiled import CODES, radial

_LANES: Any = {"contract", "reassoc", "nsz"}  # sums may be taken in lanes
_CODES = types.Array(types.int64, 1, "C", readonly=True)
_VECTOR, _MATRIX = (types.Array(types.float64, n, "C", readonly=True) for n in (1, 2))
_OUT = types.float64[::1]


@numba.njit(nogil=True, fastmath=_LANES)
def _squares(X: Float[np.ndarray, "a t"], column: int, out: Float[np.ndarray, " rows"]) -> None:
    """Squared distances of an outcome's point from those of all later ones."""
    out[:] = 0.0
    for d in range(len(X)):
        at, x = X[d, column], X[d, column + 1 :]
        for i in range(len(out)):
            out[i] += (at - x[i]) ** 2


@compiled(types.void(_CODES, _CODES, _MATRIX, _VECTOR, _OUT), nogil=True, fastmath=_LANES)
def add_covariances(
    kernels: Int[np.ndarray, " k"],
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "d t"],
    outputs: Float[np.ndarray, " k"],
    pairs: Float[np.ndarray, " pairs"],
) -> None:
    """Add the covariances of all factors to the pairs of outcomes.

    Args:
        kernels: Codes, see ``swarmbo.kernels.compiled``.
        ends: Where the coordinates of each factor end.
        X: Points, in lengthscales, factor after factor and coordinate by coordinate.
        outputs: Outputscales.
        pairs: Those with the first outcome, in the order of the others; then those of the second with all later ones.
    """
    t, first = X.shape[1], 0
    squares, near, slope = np.empty(t), np.empty(t), np.empty(t)
    for f in range(len(ends)):
        own, place = X[first : ends[f]], 0
        for column in range(t - 1):
            n = t - 1 - column
            _squares(own, column, squares[:n])
            radial(kernels[f], squares[:n], outputs[f], near, slope)
            summed = pairs[place : place + n]
            for i in range(n):
                summed[i] += near[i]
            place += n
        first = ends[f]


@compiled(types.void(types.int64, _CODES, _MATRIX, _OUT, _OUT), nogil=True, fastmath=_LANES)
def add_correlations(
    kernel: int,
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "d t"],
    nears: Float[np.ndarray, " pairs"],
    falls: Float[np.ndarray, " pairs"],
) -> None:
    """Add the correlations of factors alike to the pairs of outcomes, and what these gain with longer lengthscales.

    Args:
        kernel: Its code.
        ends: Like the next as in ``add_covariances``.
        X: As there.
        nears: Correlations of all factors are added here, in the order of pairs of ``add_covariances``.
        falls: Their derivatives by the logarithm of a lengthscale that all coordinates have in common.
    """
    t, first = X.shape[1], 0
    squares, near, slope = np.empty(t), np.empty(t), np.empty(t)
    for f in range(len(ends)):
        own, place = X[first : ends[f]], 0
        for column in range(t - 1):
            n = t - 1 - column
            _squares(own, column, squares[:n])
            radial(kernel, squares[:n], 1.0, near, slope)
            by_near, by_slope = nears[place : place + n], falls[place : place + n]
            for i in range(n):
                by_near[i] += near[i]
                by_slope[i] += slope[i] * squares[i]
            place += n
        first = ends[f]


@compiled(types.void(_CODES, _CODES, _MATRIX, _VECTOR, _VECTOR, _OUT, _OUT), nogil=True, fastmath=_LANES)
def put_derivatives(
    kernels: Int[np.ndarray, " k"],
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "d t"],
    outputs: Float[np.ndarray, " k"],
    W: Float[np.ndarray, " pairs"],
    by_output: Float[np.ndarray, " k"],
    by_length: Float[np.ndarray, " d"],
) -> None:
    """Derivatives of the weighted sum of all covariances.

    Args:
        kernels: Like the next three as in ``add_covariances``.
        ends: As there.
        X: As there.
        outputs: As there.
        W: Weights of the pairs.
        by_output: By the logarithms of outputscales; put here.
        by_length: By those of lengthscales; put here.
    """
    t, first = X.shape[1], 0
    squares, near, slope = np.empty(t), np.empty(t), np.empty(t)
    for f in range(len(ends)):
        own, place, by_own = X[first : ends[f]], 0, 0.0
        by_length[first : ends[f]] = 0.0
        for column in range(t - 1):
            n = t - 1 - column
            _squares(own, column, squares[:n])
            radial(kernels[f], squares[:n], outputs[f], near, slope)
            weights = W[place : place + n]
            for i in range(n):
                by_own += near[i] * weights[i]
                slope[i] *= weights[i]
            for d in range(first, ends[f]):
                at, x, by = X[d, column], X[d, column + 1 :], 0.0
                for i in range(n):
                    by += slope[i] * (at - x[i]) ** 2
                by_length[d] += by
            place += n
        by_output[f] = by_own
        first = ends[f]


def covariances(
    hyper: AdditiveHyperparameters, scopes: Sequence[Sequence[int]], U: Float[np.ndarray, "t n"]
) -> Float[np.ndarray, " pairs"]:
    """Prior covariances of totals without noise: of the first point with all later ones, of the second, and so on.

    Args:
        hyper: Hyper-parameters; all scales equal, kernels swarmbo's own, nothing fades.
        scopes: Columns of U that each factor sees.
        U: Points in the unit cube.
    """
    columns, lengths = np.concatenate([np.array(scope) for scope in scopes]), np.concatenate(hyper.lengthscales)
    kernels, ends = np.array([CODES[kernel] for kernel in hyper.kernels]), np.cumsum([len(scope) for scope in scopes])
    pairs = np.zeros(len(U) * (len(U) - 1) // 2)
    add_covariances(kernels, ends, U.T[columns] / lengths[:, None], np.array(hyper.outputscales), pairs)
    return pairs


class CompiledSumPosterior(LogPosterior):
    """What ``LogPosterior`` is, of totals alone and with kernels that are swarmbo's own, but for rounding."""

    def _covariances(
        self, lengthscales: Float[np.ndarray, " d"], outputscales: Float[np.ndarray, " k"]
    ) -> tuple[Float[np.ndarray, " pairs"], Any]:
        pairs, X = np.zeros(len(self._rows)), self._U / lengthscales[:, None]
        kernels = np.array([CODES[kernel] for kernel in self.kernels])
        ends = np.array([own.stop for own in self._slices])
        add_covariances(kernels, ends, X, outputscales, pairs)
        return pairs, (kernels, ends, X)

    def _derivatives(
        self,
        lengthscales: Float[np.ndarray, " d"],
        outputscales: Float[np.ndarray, " k"],
        radial: Any,
        W: Float[np.ndarray, " pairs"],
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " d"]]:
        by_output, by_length = np.empty(len(outputscales)), np.empty(len(lengthscales))
        kernels, ends, X = radial
        put_derivatives(kernels, ends, X, outputscales, W, by_output, by_length)
        return by_output / outputscales, by_length


class TiedSumPosterior(LogPosterior):
    """The same of factors that have one lengthscale and one outputscale by groups: few passes, and one for each theta.

    Correlations of factors alike add up before anything else is worked out, so two numbers for each pair of outcomes
    stand for a group, whatever the number of its factors.

    Args:
        prior: As of ``LogPosterior``, like all that follow. Factors that its ties hold together are a group; without
            ties each is one, and one lengthscale is shared by all.
        kernels: Alike within a group.
        scopes: Columns of U.
        U: Points.
        z: Totals.
        known_noise: Of them.
        fading: The kernel over time, and rounds.
    """

    def __init__(
        self,
        prior: HyperparameterPrior,
        kernels: Sequence[KernelName],
        scopes: Sequence[Sequence[int]],
        U: Float[np.ndarray, "t n"],
        z: Float[np.ndarray, " t"],
        known_noise: Float[np.ndarray, " t"],
        *,
        decay: tuple[KernelName, Float[np.ndarray, " t"]] | None = None,
    ) -> None:
        super().__init__(prior, kernels, scopes, U, z, known_noise, decay=decay)
        latents = np.arange(len(scopes)) if prior.ties is None else prior.ties.latents
        self._groups = list[tuple[int, int, Any, Any]]()  # first factor and coordinate of each, ends, points
        for group in range(len(prior.sizes)):
            own = np.flatnonzero(latents == group).tolist()
            points = np.concatenate([self._U[self._slices[i]] for i in own])
            ends = np.cumsum([len(scopes[i]) for i in own])
            self._groups.append((own[0], self._slices[own[0]].start, ends, points))

    def _covariances(
        self, lengthscales: Float[np.ndarray, " d"], outputscales: Float[np.ndarray, " k"]
    ) -> tuple[Float[np.ndarray, " pairs"], Any]:
        pairs, parts = np.zeros(len(self._rows)), list[tuple[np.ndarray, np.ndarray]]()
        for factor, coordinate, ends, points in self._groups:
            nears, falls = np.zeros(len(pairs)), np.zeros(len(pairs))
            add_correlations(CODES[self.kernels[factor]], ends, points / lengthscales[coordinate], nears, falls)
            pairs += outputscales[factor] * nears
            parts.append((nears, falls))
        return pairs, parts

    def _derivatives(
        self,
        lengthscales: Float[np.ndarray, " d"],
        outputscales: Float[np.ndarray, " k"],
        radial: Any,
        W: Float[np.ndarray, " pairs"],
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " d"]]:
        by_output, by_length = np.zeros(len(outputscales)), np.zeros(len(lengthscales))
        for (factor, coordinate, _, _), (nears, falls) in zip(self._groups, radial, strict=True):
            by_output[factor] = nears @ W  # the first of a group stands for all: the prior adds up what is in common
            by_length[coordinate] = outputscales[factor] * (falls @ W)
        return by_output, by_length
