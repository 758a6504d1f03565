"""Posteriors of single factors, for stacks of factors of equal size at once, with analytic gradients. Import it late.

Each factor has its own compiled pass, so its result is bit-identical whatever other factors are in the stack. With k(u)
the covariances of f_i(u) with the observations, K = L Lᵀ their covariance and alpha the mean's weights:

    mean = k · alpha,              d mean = dk · alpha
    var  = s - |v|², v = k L⁻ᵀ,    d var  = -2 dk · v L⁻¹

and for the contrast f_i(u) - f_i(v) the same with k(u) - k(v) and prior variance 2 (s - k(u, v)). Multiplying by L⁻¹ is
faster than solving triangular systems, and keeps twice as many digits as multiplying by K⁻¹. Vector instructions
process eight points, and read each block of rows of L⁻¹ once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numba.core import types
from scipy.spatial.distance import cdist

from swarmbo.belief.gp.cholesky import ROWS
from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.stack import Marginals
from swarmbo.belief.gp.triangular_steps import POINTS, block
from swarmbo.boundary.compiling import LANES, compiled, inner, read_only
from swarmbo.kernels import correlation_and_slope
from swarmbo.kernels.compiled import CODES, GIVEN, radial
from swarmbo.kernels.threads import in_threads

Points = Float[np.ndarray, "g m a"]
Rows = Float[np.ndarray, "g a"]
Weights = Float[np.ndarray, "g T"]  # of observations
Reference = Float[np.ndarray, "g 1 a"] | None
Eight = Float[np.ndarray, "T 8"]  # a column for each of eight points
Blocks = Int[np.ndarray, " n"]  # addresses of blocks of rows of all L⁻¹
_ADDRESSES = read_only(1, types.uint64)
_unsigned: Any = np.uint64
Workspace = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # see ``workspace_for``
_ROWS, _BYTES, _NONE = _unsigned(ROWS), _unsigned(8), _unsigned(0)
_NOWHERE = np.zeros(0, dtype=np.uint64)
MEAN, SLOPE, VARIANCE, GRADIENT = range(4)  # requested output; SLOPE: the mean and its gradient only


class Stack(NamedTuple):
    """Factors of equal size, for compiled code: codes of their kernels, and their data in lengthscales.

    After ``counts`` observations comes padding. ``weights`` convert correlations with observations to covariances.
    ``given`` holds correlations and slopes of ``GIVEN`` kernels, points by observations, the reference last in both.
    ``places`` are the indices of the factors' L⁻¹ in the blocks.
    """

    kernels: Int[np.ndarray, " g"]
    counts: Int[np.ndarray, " g"]
    Zt: Float[np.ndarray, "g a T"]
    lengths: Float[np.ndarray, "g a"]
    outputs: Float[np.ndarray, " g"]
    weights: Weights
    alpha: Weights
    given: Float[np.ndarray, "g 2 m1 T1"]
    places: Int[np.ndarray, " g"]


class Out(NamedTuple):
    """Mean minus the prior mean, and variance, with their gradients in the unit cube; all standardised."""

    mean: Float[np.ndarray, "g m"]
    var: Float[np.ndarray, "g m"]
    dmean: Points
    dvar: Points


_ONE_AXIS, _TWO, _THREE, _FOUR = (types.Array(types.float64, n, "C") for n in (1, 2, 3, 4))
_INDEX = types.int64[::1]
_STACK = types.NamedTuple((_INDEX, _INDEX, _THREE, _TWO, _ONE_AXIS, _TWO, _TWO, _FOUR, _INDEX), Stack)
_OUT = types.NamedTuple((_TWO, _TWO, _THREE, _THREE), Out)
_WORK = types.Tuple((_THREE, _TWO, _TWO, _TWO, _ONE_AXIS))
_SIGNATURE = types.void(types.int64, _STACK, read_only(3), read_only(2), types.boolean, _ADDRESSES, _OUT, _WORK)


@inner()
def _solved(
    blocks: Blocks, place: int, n_rows: int, K: Eight, squares: Float[np.ndarray, " 8"], W: Eight, has_gradient: bool
) -> None:
    """Put |L⁻¹ k|² of eight points and, with ``has_gradient``, L⁻ᵀ L⁻¹ k; L⁻¹ has the index ``place`` in the blocks."""
    squares[:], W[:n_rows] = 0.0, 0.0
    k, s, w = _unsigned(K.ctypes.data), _unsigned(squares.ctypes.data), _unsigned(W.ctypes.data)
    width = _NONE
    for b in range(n_rows // ROWS):
        width += _ROWS
        block(blocks[b] + _unsigned(place) * _ROWS * width * _BYTES, width, k, s, w, has_gradient)


@inner(fastmath=LANES)
def _at_reference(
    stack: Stack,
    f: int,
    reference: Float[np.ndarray, "g a"],
    v: Float[np.ndarray, " a"],
    long: Float[np.ndarray, "3 T"],
) -> None:
    """Put a factor's covariances between its reference point and the observations into the first row of ``long``, and
    the point, in lengthscales, into ``v``.
    """
    T, weight, Zt = stack.counts[f], stack.weights[f], stack.Zt[f]
    out, away, unused = long[0, :T], long[1, :T], long[2, :T]
    away[:] = 0.0
    for d in range(len(v)):
        v[d] = reference[f, d] / stack.lengths[f, d]
        for t in range(T):
            away[t] += (v[d] - Zt[d, t]) ** 2
    if stack.kernels[f] == GIVEN:
        given = stack.given[f, 0, stack.given.shape[2] - 1]
        for t in range(T):
            out[t] = given[t] * weight[t]
        return
    radial(stack.kernels[f], away, 1.0, out, unused)
    for t in range(T):
        out[t] *= weight[t]


@compiled(_SIGNATURE, fastmath=LANES)
def predict(
    wanted: int, stack: Stack, U: Points, reference: Rows, is_contrast: bool, blocks: Blocks, out: Out, work: Workspace
) -> None:
    """Standardised posterior of each factor at its own points, or of the difference from its reference point.

    ``wanted`` is the requested output: ``MEAN``, ``SLOPE``, ``VARIANCE`` or ``GRADIENT``. ``blocks`` holds the
    addresses of the rows of all L⁻¹.
    """
    kernels, counts, Zt, lengths, outputs, weights, alpha, given, places = stack
    mean, var, dmean, dvar = out
    g, m, a = U.shape
    tall, long, short, x, v = work
    K, S, W, apart = tall[0], tall[1], tall[2], tall[3]
    at_reference, squares, pulls = long[0], short[0], short[1:3]
    one, near_one, slope_one = short[3], short[4], short[5]
    for f in range(g):
        kernel, T, weight, own_alpha = kernels[f], counts[f], weights[f], alpha[f]
        n_rows = (T + ROWS - 1) // ROWS * ROWS
        K[T:n_rows] = 0.0
        if is_contrast:
            _at_reference(stack, f, reference, v, long)
        for start in range(0, m, POINTS):
            apart[:] = 0.0
            for d in range(a):
                for p in range(POINTS):  # the last point is repeated as padding
                    x[d, p] = U[f, min(start + p, m - 1), d] / lengths[f, d]
                for t in range(T):
                    for p in range(POINTS):
                        apart[t, p] += (x[d, p] - Zt[f, d, t]) ** 2
            if kernel == GIVEN:
                for p in range(POINTS):
                    for t in range(T):
                        K[t, p], S[t, p] = given[f, 0, min(start + p, m - 1), t], given[f, 1, min(start + p, m - 1), t]
            else:
                radial(kernel, apart.reshape(-1)[: T * POINTS], 1.0, K.reshape(-1), S.reshape(-1))
            pulls[0] = 0.0
            for t in range(T):
                for p in range(POINTS):
                    K[t, p] = weight[t] * K[t, p] - at_reference[t]
                    pulls[0, p] += own_alpha[t] * K[t, p]
            n_points = min(POINTS, m - start)
            for p in range(n_points):  # copies between slices take seconds to compile, as they check shapes
                mean[f, start + p] = pulls[0, p]
            if wanted == MEAN:
                continue
            if wanted == SLOPE:
                W[:T] = 0.0
            else:
                _solved(blocks, places[f], n_rows, K, squares, W, wanted == GRADIENT)
            if is_contrast:
                one[:] = 0.0
                for d in range(a):
                    for p in range(POINTS):
                        one[p] += (x[d, p] - v[d]) ** 2
                if kernel == GIVEN:
                    for p in range(n_points):
                        near_one[p] = outputs[f] * given[f, 0, start + p, alpha.shape[1]]
                        slope_one[p] = outputs[f] * given[f, 1, start + p, alpha.shape[1]]
                else:
                    radial(kernel, one, outputs[f], near_one, slope_one)
            if wanted != SLOPE:
                for p in range(n_points):
                    prior = 2.0 * (outputs[f] - near_one[p]) if is_contrast else outputs[f]
                    var[f, start + p] = max(prior - squares[p], 0.0)
            if wanted == VARIANCE:
                continue
            for d in range(a):
                pulls[:] = 0.0
                for t in range(T):
                    for p in range(POINTS):
                        pull = weight[t] * S[t, p] * (Zt[f, d, t] - x[d, p])
                        pulls[0, p] += pull * own_alpha[t]
                        pulls[1, p] += pull * W[t, p]
                for p in range(n_points):
                    own = slope_one[p] * (x[d, p] - v[d]) if is_contrast else 0.0
                    dmean[f, start + p, d] = pulls[0, p] / lengths[f, d]
                    dvar[f, start + p, d] = 2.0 * (own - pulls[1, p]) / lengths[f, d]


def workspace_for(T: int, a: int) -> Workspace:
    """Workspace for points with a coordinates each, and for T observations."""
    most = (T + ROWS - 1) // ROWS * ROWS
    return np.empty((4, most, POINTS)), np.zeros((3, most)), np.zeros((6, POINTS)), np.empty((a, POINTS)), np.zeros(a)


class StackPosterior:
    """Posterior of factors of equal size, with their physical prior means and units."""

    def __init__(self, conditioned: Conditioned, factors: Sequence[int]) -> None:
        index, hyper = list(factors), conditioned.hyper
        self._names = [hyper.kernels[i] for i in index]
        self._codes = np.array([CODES.get(name, GIVEN) for name in self._names])
        self._of_users = np.flatnonzero(self._codes == GIVEN).tolist()
        self._lengths = np.array([hyper.lengthscales[i] for i in index])
        self._outputs = np.array([hyper.outputscales[i] for i in index])
        self.scales = np.array([hyper.scales[i] for i in index])[:, None]
        self.constants = np.array([hyper.constants[i] for i in index])[:, None]
        self._Z = conditioned.points(index) / self._lengths[:, None]  # (g, T, a)
        self._Zt = np.ascontiguousarray(np.swapaxes(self._Z, 1, 2))
        is_run = index == list(range(index[0], index[0] + len(index)))
        rows = slice(index[0], index[0] + len(index)) if is_run else index  # a slice makes no copy
        self._weights = self._outputs[:, None] * conditioned.seen[rows]
        if hyper.times:
            self._weights = self._weights * conditioned.decay(index)
        self._alpha, self._rows, is_coupled = conditioned.alpha[rows], conditioned.parts.inverse, conditioned.is_coupled
        self._places = np.zeros(len(index), dtype=np.int64) if is_coupled else np.array(index)
        self._counts = conditioned.parts.counts[self._places]

    def mean(self, U: Points) -> Float[np.ndarray, "g m"]:
        """Posterior mean of f_i(u) in physical units, without the cost of a variance."""
        return self.constants + self.scales * self._standardised(U, None, MEAN, self._alpha).mean

    def posterior(self, U: Points, reference: Reference = None, *, gradient: bool = False) -> Marginals:
        """Posterior of f_i(u), or of f_i(u) - f_i(reference), in physical units."""
        wanted, scales = GRADIENT if gradient else VARIANCE, self.scales
        mean, var, dmean, dvar = self._standardised(U, reference, wanted, self._alpha)
        mean = scales * mean if reference is not None else self.constants + scales * mean
        if not gradient:
            return Marginals(mean, scales**2 * var)
        return Marginals(mean, scales**2 * var, scales[..., None] * dmean, scales[..., None] ** 2 * dvar)

    def weighted(self, U: Points, alpha: Weights, *, gradient: bool = False) -> tuple[Float[np.ndarray, "g m"], Points]:
        """Covariances with the observations times weights (g, T), and gradients, which are 0 unless requested."""
        mean, _, slope, _ = self._standardised(U, None, SLOPE if gradient else MEAN, alpha)
        return mean, slope

    def _standardised(self, U: Points, reference: Reference, wanted: int, alpha: Weights) -> Out:
        """Standardised posterior; outputs that are not ``wanted`` are 0."""
        (g, m, a), whole = U.shape, np.ascontiguousarray
        out = Out(np.zeros((g, m)), np.zeros((g, m)), np.zeros((g, m, a)), np.zeros((g, m, a)))
        away = np.zeros((g, a)) if reference is None else whole(reference[:, 0])
        # looking up the addresses takes as long as computing a few means
        blocks = self._rows.addresses if wanted >= VARIANCE else _NOWHERE
        stack = Stack(
            self._codes, self._counts, self._Zt, self._lengths, self._outputs, whole(self._weights), whole(alpha),
            self._given(U, reference), self._places,
        )  # fmt: skip
        points = whole(U)

        def put(rows: slice) -> None:
            own, into = Stack(*(part[rows] for part in stack)), Out(*(part[rows] for part in out))
            work = workspace_for(alpha.shape[1], a)
            predict(wanted, own, points[rows], away[rows], reference is not None, blocks, into, work)

        in_threads(g, put)
        return out

    def _given(self, U: Points, reference: Float[np.ndarray, "g 1 a"] | None) -> Float[np.ndarray, "g 2 _m1 _T1"]:
        """Correlations and slopes of users' kernels; empty if there are none."""
        if not self._of_users:
            return np.zeros((len(U), 0, 0, 0))
        away = U[:, :1] if reference is None else reference
        X, V = (np.concatenate(parts, axis=1) for parts in ((U, away), (self._Z, away / self._lengths[:, None])))
        out = np.zeros((len(U), 2, X.shape[1], V.shape[1]))
        for f in self._of_users:
            out[f] = correlation_and_slope(self._names[f], cdist(X[f] / self._lengths[f], V[f]))
        return out
