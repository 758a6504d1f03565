"""The map as free and blocked cells, and its connected parts."""

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import distance_transform_edt, label

from swarmbo.errors import ConfigError
from swarmbo_envs.ground.regions import Region
from swarmbo_envs.shared import Marks, Mask, Place, Places

_NODE_OFF_CORNER = 0.05  # sides of a cell between a bend and the corner, so that paths do not touch it
_MOST_NODES = 3000  # paths between all pairs are computed
# finer cells along the map's longer side: narrower passages than two of them are not detected
_FINEST = 512
_WITH_CORNERS = np.ones((3, 3), dtype=int)  # blocked cells that share a corner connect: no path leads between them


class Ground:
    """A rectangular map of nearly square cells; cells that a no-go region touches are blocked.

    A path outside blocked cells keeps at least the clearance from the regions. Connected parts without an anchor are
    blocked, too; if there are no ``anchors`` (places by path in the settings), all parts but the largest are blocked.
    """

    def __init__(
        self,
        low: Place,
        high: Place,
        regions: Sequence[Region] = (),
        cells: int = 128,
        clearance_m: float = 0.0,
        anchors: Mapping[str, Place] | None = None,
        at: str = "$.no_go",
    ) -> None:
        self.low, self.high, self.regions = low, high, tuple(regions)
        size = high - low
        self.shape = np.maximum(2, np.ceil(cells * size / size.max() - 1e-9)).astype(int)  # columns and rows
        self.cell, self.clearance_m = size / self.shape, clearance_m
        for number, region in enumerate(regions):
            if not region.touched(low, self.cell, tuple(self.shape[::-1]), clearance_m).any():
                (west, south), (east, north) = low, high
                got = f"got region {number + 1} of {len(regions)} outside the map"
                wanted = f"some of it in x {west:g} to {east:g} m, y {south:g} to {north:g} m"
                raise ConfigError(f"{got}; wanted {wanted}", at=at)
        self.blocked = blocked = self.touched()
        if blocked.all():
            raise ConfigError("got no-go regions that cover the map; wanted free space to drive", at=at)
        parts = np.asarray(label(~blocked)[0])  # from 1; 0 where blocked
        kept_parts = [int(np.bincount(parts.ravel())[1:].argmax()) + 1]
        if anchors:
            for name, place in anchors.items():
                if not self.is_free(place[None])[0]:
                    raise ConfigError(f"got {place.tolist()} in a no-go region, or too near to one", at=name)
            column, row = self._cells_of(np.array(list(anchors.values()))).T
            kept_parts = parts[row, column].tolist()
        self.parts: Int[np.ndarray, "rows columns"] = np.where(np.isin(parts, kept_parts), parts, 0)
        self.blocked = self.parts == 0
        if len(self.nodes) > _MOST_NODES:
            got = f"got regions with {len(self.nodes):,} corners on a grid of {self.shape[0]} x {self.shape[1]} cells"
            raise ConfigError(f"{got}; wanted at most {_MOST_NODES:,}: take fewer cells", at="$.route_cells")

    def touched(self, finer: int = 1) -> Marks:
        """Cells that regions touch, with their clearance; ``finer`` divides each side of a cell."""
        cells = np.zeros(tuple(self.shape[::-1] * finer), dtype=bool)
        for region in self.regions:
            cells |= region.touched(self.low, self.cell / finer, cells.shape, self.clearance_m)
        return cells

    @property
    def is_open(self) -> bool:
        """True if no cell is blocked."""
        return not self.regions

    @property
    def digest(self) -> str:
        """Hash of the blocked cells."""
        return hashlib.sha256(np.packbits(self.blocked).tobytes() + str(self.blocked.shape).encode()).hexdigest()

    def part_of(self, places: Places) -> Int[np.ndarray, " k"]:
        """Number of the connected part of each place; 0 if it touches a blocked cell."""
        column, row = self._cells_of(places).T
        return np.where(self.is_free(places), self.parts[row, column], 0)

    def is_free(self, places: Places) -> Mask:
        """Mask of places that touch no blocked cell."""
        return self.sees(places, places)

    def sees(self, starts: Places, ends: Places) -> Mask:
        """Mask of straight segments, each from a start to its end, that touch no blocked cell."""
        if self.is_open:
            return np.ones(len(starts), dtype=bool)
        from swarmbo_envs.ground.sight import free_segments  # numba takes a second to import

        return free_segments(as_rows(starts), as_rows(ends), self.blocked, self.grid)

    def is_free_around(self, place: Place, reach_m: float) -> bool:
        """True if the square about a place touches no blocked cell."""
        (west, south), (east, north) = self._cells_of(np.stack([place - reach_m, place + reach_m]))
        return not self.blocked[max(0, south - 1) : north + 2, max(0, west - 1) : east + 2].any()

    @property
    def grid(self) -> tuple[float, float, float, float]:
        """South-west corner of the cells, and the width and height of a cell."""
        return float(self.low[0]), float(self.low[1]), float(self.cell[0]), float(self.cell[1])

    @cached_property
    def nodes(self) -> Float[np.ndarray, "n 2"]:
        """Possible bends of paths: slightly off the convex corners of blocked cells."""
        b = self.blocked
        corners = {(-1, -1): b[:-1, :-1], (1, -1): b[:-1, 1:], (-1, 1): b[1:, :-1], (1, 1): b[1:, 1:]}
        nodes: list[Places] = []
        for (x, y), corner_blocked in corners.items():
            sides_blocked = corners[(-x, y)] | corners[(x, -y)]
            row, column = np.nonzero(corner_blocked & ~sides_blocked & ~corners[(-x, -y)])
            nodes.append(np.column_stack([column + 1.0, row + 1.0]) - _NODE_OFF_CORNER * np.array([x, y]))
        return self.low + np.concatenate(nodes) * self.cell

    @cached_property
    def visible(self) -> Bool[np.ndarray, "n n"]:
        """Pairs of nodes that see each other."""
        from swarmbo_envs.ground.sight import sights

        return sights(self.nodes, self.nodes, self.blocked, self.grid)

    def _cells_of(self, places: Places) -> Int[np.ndarray, "k 2"]:
        return np.clip(np.floor((places - self.low) / self.cell), 0, self.shape - 1).astype(int)


def as_rows(places: Float[np.ndarray, "k c"]) -> Float[np.ndarray, "k c"]:
    """Places as the compiled loops take them: floats in C order."""
    return np.ascontiguousarray(places, dtype=float)


def widest_closed_passage(ground: Ground) -> float | None:
    """Approximate width, m, of the widest passage that only the size of cells closes; None if there is none."""
    factor = _FINEST // int(max(ground.shape))
    if ground.is_open or factor < 2:
        return None
    coarse = np.pad(np.kron(ground.touched(), np.ones((factor, factor), dtype=bool)), 1, constant_values=True)
    fine = np.pad(ground.touched(factor), 1, constant_values=True)
    if not _is_closed(fine, coarse):
        return None
    away = distance_transform_edt(~fine, sampling=ground.cell[::-1] / factor)
    side = float(ground.cell.max()) / factor
    # largest number of finer cells by which regions can grow and still not close the passage themselves
    steps = bisect_left(range(1, 2 * factor), True, key=lambda width: not _is_closed(away <= width * side, coarse))
    return (2 * steps + 1) * side


def _is_closed(fine: Marks, coarse: Marks) -> bool:
    """True if coarse cells join parts of the blocked area, or separate parts of the free area."""
    return _joins(coarse, coarse & fine, _WITH_CORNERS) or _joins(~(coarse & fine), ~coarse, None)


def _joins(joined: Marks, parts: Marks, structure: Int[np.ndarray, "3 3"] | None) -> bool:
    """True if a connected part of ``joined`` holds several of the ``parts``."""
    (part_labels, n), (joined_labels, _) = label(parts, structure), label(joined, structure)
    joined_of = np.zeros(n + 1, dtype=int)
    joined_of[part_labels.ravel()] = joined_labels.ravel()
    return len(np.unique(joined_of[1:])) < n
