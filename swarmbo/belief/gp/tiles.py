"""Posterior given many measurements of a field: each tile of the box conditions on the nearest measurements only.

Given the nearest measurements, others add little information, so a tile conditions on some hundreds. Time is
then linear in the numbers of measurements and locations. The box is halved until tiles are small compared with the
distances to their measurements. So they are small where measurements are dense, and depend on nothing else.

Source: Vecchia 1988; Katzfuss & Guinness 2021 for predictions by nearest neighbours, of blocks of locations.
"""

from collections.abc import Iterator
from copy import copy

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree
from scipy.special import comb

from swarmbo.belief.gp.cholesky import factorise_noisy, solve_lower
from swarmbo.belief.gp.conditioning import JointPosterior, Term
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.observations import LEAST_NOISE, Observations, projection
from swarmbo.kernels import KernelName, correlation
from swarmbo.records import Neglected

TILED_FROM = 2000  # number of measurements above which a field's posterior is by tiles
NEIGHBOURS = 400  # number of measurements for a tile
JOINTLY = 256  # number of measurements for the correlations of a joint posterior
_REACH = 0.6  # largest half diagonal of a tile, as a share of the distance to its farthest measurement
_SHARED = 4  # neighbours searched per point, as a multiple of its share of ``jointly``: points have common neighbours
_CELL_VARIANCE = 3e-4  # bound of ``_cell``'s variance, relative to the noise variance of merged measurements
_IN_TIME = 4.0  # the same bound for cells of close rounds, as a multiple of it
_CHECKED = 8  # number of measured locations, and of some between them, for the effect of neglected measurements
_SAME = 1e-6  # side in lengthscales of cells whose measurements count as repeats of one location
_FARTHEST = 40.0  # distance in lengthscales beyond which no correlation is left


class Tiles:
    """Known measurements of one field, ``merged``. Posteriors use the nearest: at most ``neighbours`` for a tile,
    and at most ``jointly`` for correlations.
    """

    def __init__(
        self, hyper: AdditiveHyperparameters, data: Observations, neighbours: int = NEIGHBOURS, jointly: int = JOINTLY
    ) -> None:
        self.hyper, self.data, self.neighbours, self.jointly = hyper, merged(hyper, data), neighbours, jointly
        self._lengthscales = np.array(hyper.lengthscales[0])
        self._scope = range(len(self._lengthscales))
        self._prior, self._points = hyper.covariance(0), projection(hyper, self._scope, self.data)
        self._residuals, self._noise = self.data.residuals(hyper), self.data.noise_variances(hyper)
        self._tree: tuple[float, cKDTree] | None = None  # last queried round, and the tree for it

    def marginals(self, query: Observations) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means and variances (m,), in the unit of the outcome, at points of the query."""
        scale, (mean, var) = self.hyper.scales[0], np.empty((2, len(query)))
        points = projection(self.hyper, self._scope, query)
        for members, rows in self._tiles(query):
            whitened = self._whitened(rows, points[members])
            mean[members] = whitened[:, -1] @ whitened[:, :-1]
            var[members] = self._prior.outputscale - np.einsum("nm,nm->m", whitened[:, :-1], whitened[:, :-1])
        return self.hyper.constants[0] + scale * mean, scale**2 * np.maximum(var, 0.0)

    def _whitened(self, rows: Int[np.ndarray, " r"], points: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "r m+1"]:
        """L⁻¹ times the covariances of some measurements with points, and times their residuals, the last column."""
        at = self._points[rows]
        K = self._prior.matrix(at, at)
        K.flat[:: len(K) + 1] += self._noise[rows]
        sides = np.concatenate([self._prior.matrix(points, at), self._residuals[rows][None]])
        return solve_lower(factorise_noisy(K)[0], sides.T, in_place=True)

    def joint(self, query: Observations, mean: Float[np.ndarray, " m"], var: Float[np.ndarray, " m"]) -> JointPosterior:
        """Joint posterior with given marginals; correlations are those given the measurements nearest to the points."""
        rows = np.arange(len(self.data) if len(query) else 0)
        if len(rows) > self.jointly:
            sample = query.take(slice(None, None, -(-len(query) // self.jointly)))
            each = self.jointly // len(sample)
            most = min(_SHARED * each, len(rows))
            by_round = ((now, sample.take(own).U / self._lengthscales) for now, own in _by_round(sample))
            near = np.concatenate([self._nearest(now, at, most)[1] for now, at in by_round])
            unions = (np.unique(near[:, :count]) for count in (most, 3 * each, 2 * each, each))
            rows = next(union for union in unions if len(union) <= self.jointly)
        points, unit = projection(self.hyper, self._scope, query), self.hyper.scales[0]
        V = self._whitened(rows, points)[:, :-1]
        data_var = unit**2 * np.maximum(self._prior.outputscale - np.einsum("nm,nm->m", V, V), 0.0)
        return JointPosterior(mean, data_var, V, (Term(self._prior, points),), unit).scaled(mean, var)

    def neglected(self, now: float) -> Neglected:
        """Differences from a posterior with four times as many neighbours, also merged, at and between measurements."""
        U = self.data.U[:: -(-len(self.data) // _CHECKED)]
        U = np.concatenate([U, 0.5 * (U + np.roll(U, 1, axis=0))])
        sample = Observations.pending(U, np.ones((len(U), 1), bool), np.full(len(U), now), in_sum=False)
        mean, var = self.marginals(sample)
        wider = copy(self)  # a copy, because merging the measurements again would change them
        wider.neighbours *= 4
        further, further_var = wider.marginals(sample)
        std = np.sqrt(np.maximum(further_var, np.finfo(float).tiny))
        mean_error, std_ratio = float((np.abs(further - mean) / std).max()), float((np.sqrt(var) / std).max())
        return Neglected(len(sample), self.neighbours, mean_error, max(std_ratio - 1.0, 0.0))

    def _tiles(self, query: Observations) -> Iterator[tuple[Int[np.ndarray, " s"], Int[np.ndarray, " r"]]]:
        """Rows of a query's points and rows of the measurements, tile by tile."""
        n, sides = min(self.neighbours, len(self.data)), 1.0 / self._lengthscales
        for now, rows_left in _by_round(query):
            counts = np.ones(len(sides), dtype=int)
            while len(rows_left):
                cell = np.floor(query.U[rows_left] * counts).astype(int)  # points may lie outside the box, too
                cells, tile = np.unique(cell, axis=0, return_inverse=True)
                far, neighbours = self._nearest(now, (cells + 0.5) * (sides / counts), n)
                half = 0.5 * float(np.linalg.norm(sides / counts))
                done = (half <= _REACH * far[:, -1]) | (n == len(self.data))
                order = np.argsort(tile.ravel(), kind="stable")
                members = np.split(rows_left[order], np.cumsum(np.bincount(tile.ravel()))[:-1])
                yield from ((members[i], np.sort(neighbours[i])) for i in np.flatnonzero(done))
                rows_left = np.sort(np.concatenate([rows_left[:0], *(members[i] for i in np.flatnonzero(~done))]))
                counts[int(np.argmax(sides / counts))] *= 2

    def _nearest(
        self, now: float, at: Float[np.ndarray, "m d"], count: int
    ) -> tuple[Float[np.ndarray, "m k"], Int[np.ndarray, "m k"]]:
        """Distances (m, k) of places, in lengthscales, to the nearest measurements in a round, and their rows."""
        now = now if self.hyper.times else 0.0  # without a time axis, all rounds have the same tree
        cached = self._tree  # beliefs at other rounds share this object, and may predict in other threads
        if cached is None or cached[0] != now:
            scaled = self.data.U / self._lengthscales
            if self.hyper.times:
                # One more coordinate: the distance with the same correlation as the time apart. Repeats of a location
                # have more, or they alone would be the neighbours in a field that changes slowly.
                left = self.hyper.times[0].between(self.data.rounds, np.array(now))
                distances = np.linspace(0.0, _FARTHEST, 4096)
                falls = np.minimum.accumulate(correlation(self.hyper.kernels[0], distances))
                apart = np.minimum(np.interp(-left, -falls, distances), _FARTHEST)  # infinite next to denormal numbers
                scaled = np.column_stack([scaled, np.maximum(apart, _repeats(scaled, apart))])
            cached = self._tree = now, cKDTree(scaled)
        _, tree = cached
        far, near = tree.query(np.pad(at, ((0, 0), (0, tree.m - at.shape[1]))), k=range(1, count + 1))
        return np.asarray(far), np.asarray(near)


def merged(hyper: AdditiveHyperparameters, data: Observations) -> Observations:
    """Measurements after merging those of the same round at the same location, or in the same cell, into their mean.

    In a cell, the field's mean differs from its value in the centre with a variance of at most 6e-4 of the noise
    variance of the merged measurement; otherwise, measurements of a cell are not merged. There are no cells if they
    would have fewer than two measured locations on average. With a time axis, there are cells of close rounds, whose
    bound is four times as large, divided by the usual number of near measurements in a round.
    """
    noise = np.maximum(data.noise_variances(hyper), LEAST_NOISE)
    typical, scaled = float(np.median(noise)) / hyper.outputscales[0], data.U / np.array(hyper.lengthscales[0])
    keys, cell_variances = np.column_stack([scaled, np.zeros(len(data)), data.rounds]), np.zeros(len(data))
    side, off = _cell(hyper.kernels[0], typical, np.unique(scaled, axis=0))
    place = np.floor(scaled / side) if side else scaled
    cells = [(place, data.rounds, off)]
    for time in hyper.times:  # one, or none
        # near measurements of the same rounds have about the same error, which therefore counts that many times
        share = _IN_TIME * len(np.unique(np.column_stack([np.floor(scaled), data.rounds]), axis=0)) / len(data)
        span, late = _cell(time.kernel, share * typical, np.unique(data.rounds / time.lengthscale)[:, None])
        if span:
            when = np.floor(data.rounds / (span * time.lengthscale))
            cells += [(scaled, when, late / share), (place, when, off + late / share)]
    for level, (place, when, variance) in enumerate(cells, start=1):  # coarser cells replace finer cells
        coarse = np.column_stack([place, np.full(len(data), level), when])
        cell = np.unique(coarse, axis=0, return_inverse=True)[1].ravel()
        fits = variance * hyper.outputscales[0] * np.bincount(cell, 1.0 / noise)[cell] <= 2.0 * _CELL_VARIANCE
        keys[fits], cell_variances[fits] = coarse[fits], variance * hyper.outputscales[0]
    _, first, cell = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    m, cell = len(first), cell.ravel()
    if m == len(data):
        return data
    weights, columns = np.bincount(cell, 1.0 / noise, m), (*data.U.T, data.outcome)
    *places, outcome = (np.bincount(cell, column / noise, m) / weights for column in columns)
    later = data.rounds - data.rounds[first][cell]  # exactly 0 if all rounds of a cell are equal
    rounds = data.rounds[first] + np.bincount(cell, later / noise, m) / weights
    left = (1.0 / weights + np.where(np.bincount(cell) > 1, cell_variances[first], 0.0)) * hyper.scales[0] ** 2
    return Observations(np.column_stack(places), np.arange(m), np.zeros(m, int), outcome, left, rounds)


def _cell(kernel: KernelName, noise: float, places: Float[np.ndarray, "n d"]) -> tuple[float, float]:
    """Side of cells in lengthscales (0: no cells), and variance of the mean of the field in a cell minus its centre.

    Variances are shares of the prior variance.
    """
    d, side = places.shape[1], 1.0
    steps = np.arange(d + 1)
    share = comb(d, steps) / 2.0**d
    while (each := len(places) / len(np.unique(np.floor(places / side), axis=0))) >= 2.0:
        between = share @ correlation(kernel, side * np.sqrt(steps / 3.0))
        apart = 1.0 + between - 2.0 * float(correlation(kernel, np.array([side * np.sqrt(d / 12.0)]))[0])
        if apart <= _CELL_VARIANCE * noise / each:
            return side, max(float(apart), 0.0)
        side *= np.sqrt(0.5)
    return 0.0, 0.0


def _repeats(placed: Float[np.ndarray, "n d"], apart: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Number of measurements at the same location that are nearer in time, in half distances of locations."""
    cells, cell, counts = np.unique(np.floor(placed / _SAME), axis=0, return_inverse=True, return_counts=True)
    nearer, order = np.empty(len(placed)), np.lexsort((apart, cell.ravel()))
    nearer[order] = np.arange(len(placed)) - np.repeat(np.cumsum(counts) - counts, counts)
    return nearer * (0.5 * np.ptp(placed, axis=0).max() / len(cells) ** (1.0 / placed.shape[1]))


def _by_round(query: Observations) -> Iterator[tuple[float, Int[np.ndarray, " s"]]]:
    """Rounds of a query, and the indices of the points of each round."""
    for now in np.unique(query.rounds):
        yield float(now), np.flatnonzero(query.rounds == now)
