"""A posterior given many measurements of a field: each tile of the box has its own, given the nearest of them.

Far measurements tell little that nearer ones do not tell, so a tile conditions on some hundreds of them. Time is then
linear in the measurements and in the locations. Tiles halve the box until they are small beside the reach of their
measurements; so they are small where measurements are dense, and depend on nothing else.

Source: Vecchia 1988; Katzfuss & Guinness 2021 for predictions by nearest neighbours, of blocks of locations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from swarmbo.belief.gp.conditioning import JointPosterior, condition
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.observations import LEAST_NOISE, Observations
from swarmbo.kernels import correlation

TILED_FROM = 2000  # measurements, above which a field's posterior is by tiles
NEIGHBOURS = 400  # measurements of a tile, and of a joint posterior beyond the marginals
_REACH = 0.5  # half the diagonal of a tile, as a share of the distance to its farthest measurement
_FARTHEST = 40.0  # lengthscales, at which nothing is left of any correlation


@dataclass(frozen=True, eq=False)
class Tiles:
    """Measurements of one field, ready for posteriors by the nearest; those of one place and round count as one.

    Args:
        hyper: Hyper-parameters of the field, as of a channel.
        data: Measurements with known outcomes, at least one.
        neighbours: Number of measurements of a tile.
    """

    hyper: AdditiveHyperparameters
    data: Observations
    neighbours: int = NEIGHBOURS

    @classmethod
    def of(cls, hyper: AdditiveHyperparameters, data: Observations, neighbours: int = NEIGHBOURS) -> "Tiles":
        """Tiles of all measurements. Repeated ones become their precise mean, which tells the same."""
        return cls(hyper, merged(hyper, data), neighbours)

    def marginals(self, query: Observations) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Means and variances (m,), in the unit of the outcome, at points of the query."""
        mean, var = np.empty((2, len(query)))
        for members, rows in self._tiles(query):
            part = self._given(rows, query.take(members))
            mean[members], var[members] = part.mean, part.var
        return mean, var

    def joint(self, query: Observations) -> JointPosterior:
        """Joint posterior given the measurements nearest to single points of the query, not more than a tile has."""
        every = -(-len(query) // self.neighbours)
        few = query.take(slice(None, None, every))
        rows = np.empty(0, dtype=int)
        for now, own in _by_round(few):
            _, near = self._tree(now).query(self._placed(few.take(own)), k=self._each(len(few)))
            rows = np.union1d(rows, np.ravel(near))
        return self._given(rows, query)

    def _each(self, n_points: int) -> list[int]:
        return list(range(1, 1 + min(len(self.data), max(1, self.neighbours // n_points))))

    def _given(self, rows: Int[np.ndarray, " r"], query: Observations) -> JointPosterior:
        own = condition(self.hyper, self._scopes, self.data.take(rows), is_coupled=True, keeps_inverse=False)
        return JointPosterior.of(own, 0, query)

    def _tiles(self, query: Observations) -> Iterator[tuple[Int[np.ndarray, " s"], Int[np.ndarray, " r"]]]:
        """Tile by tile, the points of a query in it, and its measurements."""
        n, sides = min(self.neighbours, len(self.data)), 1.0 / self._lengthscales
        for now, left in _by_round(query):
            tree, counts, where = self._tree(now), np.ones(len(sides), dtype=int), np.clip(query.U, 0.0, 1.0)
            while len(left):
                cell = np.minimum(np.floor(where[left] * counts), counts - 1).astype(int)
                cells, tile = np.unique(cell, axis=0, return_inverse=True)
                centres = (cells + 0.5) * (sides / counts)
                far, near = tree.query(np.pad(centres, ((0, 0), (0, tree.m - len(sides)))), k=range(1, n + 1))
                half = 0.5 * float(np.linalg.norm(sides / counts))
                done = (half <= _REACH * far[:, -1]) | (n == len(self.data))
                order = np.argsort(tile.ravel(), kind="stable")
                members = np.split(left[order], np.cumsum(np.bincount(tile.ravel()))[:-1])
                yield from ((members[i], np.sort(near[i])) for i in np.flatnonzero(done))
                left = np.sort(np.concatenate([left[:0], *(members[i] for i in np.flatnonzero(~done))]))
                counts[int(np.argmax(sides / counts))] *= 2

    @cached_property
    def _lengthscales(self) -> Float[np.ndarray, " d"]:
        return self.hyper.lengthscale_array(0)

    @property
    def _scopes(self) -> tuple[range]:
        return (range(len(self._lengthscales)),)

    def _placed(self, rows: Observations) -> Float[np.ndarray, "r c"]:
        """Coordinates in lengthscales; with time, of points that are asked for, one more."""
        places = rows.U / self._lengthscales
        return np.column_stack([places, np.zeros(len(places))]) if self.hyper.times else places

    def _tree(self, now: float) -> cKDTree:
        """Tree of the measurements. What fades is farther, by as much as its correlation falls with distance."""
        placed = self._placed(self.data)
        if self.hyper.times:
            left = self.hyper.times[0].between(self.data.rounds, np.array(now))
            distances = np.linspace(0.0, _FARTHEST, 4096)
            falls = np.minimum.accumulate(correlation(self.hyper.kernels[0], distances))
            placed[:, -1] = np.interp(-left, -falls, distances)
        return cKDTree(placed)


def merged(hyper: AdditiveHyperparameters, data: Observations) -> Observations:
    """The same measurements, with one outcome and its noise for those of one place and round."""
    noise = np.maximum(data.noise_variances(hyper), LEAST_NOISE) * hyper.scales[0] ** 2
    places, at = np.unique(np.column_stack([data.U, data.rounds]), axis=0, return_inverse=True)
    if len(places) == len(data):
        return data
    at, m = at.ravel(), len(places)
    precision = np.bincount(at, 1.0 / noise, m)
    outcome = np.bincount(at, data.outcome / noise, m) / precision
    return Observations(places[:, :-1], np.arange(m), np.zeros(m, dtype=int), outcome, 1.0 / precision, places[:, -1])


def _by_round(query: Observations) -> Iterator[tuple[float, Int[np.ndarray, " s"]]]:
    """Rounds of a query, and its points of each."""
    for now in np.unique(query.rounds):
        yield float(now), np.flatnonzero(query.rounds == now)
