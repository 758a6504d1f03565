"""No-go regions: shapes stated by users, and their borders.

Shapes are in physical units. Internal points are in the unit cube of the region's variables, and ``depth`` is in its
widths: above 0 within the region, below outside.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.boundary.values import table
from swarmbo.settings import Positive, Settings, convert, require
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import MixedDomain

_MOST_CORNERS = 1000  # corners of a polygon: every point is compared with all
_CLEAR = 1e-6  # distance at which points that are moved out of a region stop beyond it, in box widths
_BENT, _BEYOND = 33, 1e-3  # number of levels on a logarithmic axis, and share of its low end down to which borders go
_ROUNDED = 1e-12  # depth that rounding errors may have, for coordinates as large as the box's sides

Shape = tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m s"]]


class NoGo(Settings, frozen=True, tag_field="kind"):
    """Base of no-go regions, in which nothing may be evaluated; borders are allowed.

    In a field, it is a region of locations for every agent. For a function, it is a region of some variables, at any
    values of the others.

    Args:
        variables: For a function, the variables of the shape's coordinates, in order; None: all. None in a field.
    """

    variables: tuple[str, ...] | None = None

    @property
    def n_dims(self) -> int:
        """Number of coordinates of the shape."""
        first = next(getattr(self, name) for name in ("low", "centre", "corners") if hasattr(self, name))
        return np.shape(first)[-1]

    @abstractmethod
    def depth(self, U: Float[np.ndarray, "m s"], box: Domain) -> Shape:
        """Depth (m,) of points of the unit cube in the region, and its gradient (m, s)."""

    @abstractmethod
    def exits(self, u: Float[np.ndarray, " s"], box: Domain) -> Float[np.ndarray, "k s"]:
        """The nearest points just beyond each side of the region, for a point within it."""


class NoGoBox(NoGo, frozen=True, kw_only=True, tag="box"):
    """No-go box.

    Args:
        low: Lower corner, physical.
        high: Upper corner, each coordinate above the lower corner's.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
        >>> shut = sb.NoGoBox(variables=("x", "y"), low=(0.3, 0.0), high=(0.7, 1.0))
        >>> team = sb.Team(graph, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, no_go=[shut], initial=4)
        >>> for _ in range(8):
        ...     query = team.ask()
        ...     team.tell(query, -((query.point["x"] - 0.45) ** 2))  # the maximum is within
        >>> all(not 0.3 < x < 0.7 for x in team.history.X[:, 0])
        True
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "low", lambda low: bool(low) and np.isfinite(low).all(), "at least one finite number")
        low, high = self.low, self.high
        is_above = len(high) == len(low) and bool(np.isfinite(high).all() and np.less(low, high).all())
        require(self, "high", lambda _: is_above, f"as many finite numbers, each above that of low, {list(low)}")

    def depth(self, U: Float[np.ndarray, "m s"], box: Domain) -> Shape:
        """Depth below the nearest face."""
        low, high = box.to_unit(np.array(self.low)), box.to_unit(np.array(self.high))
        faces = np.concatenate([U - low, high - U], axis=1)  # how far within each
        nearest, rows = faces.argmin(axis=1), np.arange(len(U))
        slope = np.zeros(U.shape)
        slope[rows, nearest % self.n_dims] = np.where(nearest < self.n_dims, 1.0, -1.0)
        return faces[rows, nearest], slope

    def exits(self, u: Float[np.ndarray, " s"], box: Domain) -> Float[np.ndarray, "k s"]:
        """One point beyond each face."""
        low, high = box.to_unit(np.array(self.low)) - _CLEAR, box.to_unit(np.array(self.high)) + _CLEAR
        out, every = np.tile(u, (2 * self.n_dims, 1)), np.arange(self.n_dims)
        out[every, every], out[self.n_dims + every, every] = low, high
        return out


class NoGoBall(NoGo, frozen=True, kw_only=True, tag="ball"):
    """No-go ball: all points nearer to a centre than a radius, in physical units.

    Args:
        centre: Centre, physical.
        radius: Radius > 0, in the unit of the coordinates.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> pond = sb.NoGoBall(centre=(0.5,), radius=0.2)
        >>> team = sb.Team.for_field(["a"], [0.0], [1.0], no_go=[pond])
        >>> team.ask({"a": [[0.4], [0.6], [0.8]]}).points["a"].tolist()
        [0.8]
    """

    centre: tuple[float, ...]
    radius: Positive

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "centre", lambda centre: bool(centre) and np.isfinite(centre).all(), "at least one finite number")

    def depth(self, U: Float[np.ndarray, "m s"], box: Domain) -> Shape:
        """Depth below the sphere, in units of the box's longest side."""
        longest, X = (box.high - box.low).max(), box.off_grid(U)
        gaps = X - np.array(self.centre)
        far = np.sqrt((gaps**2).sum(axis=1))
        inward = -gaps / np.maximum(far, np.finfo(float).tiny)[:, None]
        return (self.radius - far) / longest, inward * box.stretch(X) / longest

    def exits(self, u: Float[np.ndarray, " s"], box: Domain) -> Float[np.ndarray, "k s"]:
        """Points beyond the sphere, straight away from the centre and along each axis."""
        gap = box.from_unit(u) - np.array(self.centre)
        far = float(np.sqrt((gap**2).sum()))
        axes = np.concatenate([np.eye(self.n_dims), -np.eye(self.n_dims)])
        ways = axes if far == 0.0 else np.concatenate([(gap / far)[None], axes])
        reach = self.radius + _CLEAR * float((box.high - box.low).max())
        return box.to_unit(np.array(self.centre) + reach * ways)


class NoGoPolygon(NoGo, frozen=True, kw_only=True, tag="polygon"):
    """No-go polygon of two coordinates, with straight edges in physical units.

    Args:
        corners: 3 to 1,000 corners (x, y) along the border, physical; the last is joined to the first. If edges cross,
            a point is within if a ray from it crosses an odd number of edges.

    Example:
        >>> import swarmbo as sb
        >>> lake = sb.NoGoPolygon(corners=((0.0, 0.0), (0.6, 0.0), (0.0, 0.6)))
        >>> team = sb.Team.for_field(["a", "b"], [0.0, 0.0], [1.0, 1.0], no_go=[lake])
        >>> points = team.ask().points
        >>> all(x[0] + x[1] >= 0.6 for x in points.values())
        True
    """

    corners: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        P = np.array(self.corners)
        is_plane = 3 <= len(P) <= _MOST_CORNERS and np.isfinite(P).all() and np.linalg.matrix_rank(P - P[0]) == 2
        wanted = f"3 to {_MOST_CORNERS:,} (x, y) of finite numbers, not all on one line"
        require(self, "corners", lambda _: bool(is_plane), wanted)

    def depth(self, U: Float[np.ndarray, "m s"], box: Domain) -> Shape:
        """Distance to the nearest point of the border."""
        gaps = U[:, None] - self._feet(U, box)
        far = np.sqrt((gaps**2).sum(axis=2))
        nearest, rows = far.argmin(axis=1), np.arange(len(U))
        distance, away = far[rows, nearest], gaps[rows, nearest]
        sign = np.where(self._is_within(box.off_grid(U)), 1.0, -1.0)
        return sign * distance, sign[:, None] * away / np.maximum(distance, np.finfo(float).tiny)[:, None]

    def exits(self, u: Float[np.ndarray, " s"], box: Domain) -> Float[np.ndarray, "k s"]:
        """Points beyond the nearest point of each edge, and beyond each corner."""
        start, edge = self._border(box)
        normal = _of_length_one(np.column_stack([edge[:, 1], -edge[:, 0]]))
        out = _of_length_one(start - start.mean(axis=0))
        feet, step = self._feet(u[None], box)[0], 2.0 * _CLEAR
        return np.concatenate([feet + step * normal, feet - step * normal, start + step * out])

    def _border(self, box: Domain) -> tuple[Float[np.ndarray, "k 2"], Float[np.ndarray, "k 2"]]:
        """Corners in the unit cube, more where a logarithmic axis bends an edge, and the vector to each next corner."""
        start = np.array(self.corners)
        edge = np.roll(start, -1, axis=0) - start
        bent = [j for j, v in enumerate(box.variables) if v.axis.is_log] if isinstance(box, MixedDomain) else []
        shares = [np.zeros((len(start), 1))]
        for j in bent:
            levels = np.geomspace(box.low[j], box.high[j], _BENT)
            shares.append((levels - start[:, j, None]) / np.where(edge[:, j] == 0.0, np.inf, edge[:, j])[:, None])
        share = np.sort(np.clip(np.concatenate(shares, axis=1), 0.0, 1.0), axis=1)
        points = start[:, None] + share[..., None] * edge[:, None]
        points[..., bent] = np.maximum(points[..., bent], _BEYOND * box.low[bent])  # beyond the box, but above 0
        border = box.to_unit(points.reshape(-1, 2))
        return border, np.roll(border, -1, axis=0) - border

    def _feet(self, U: Float[np.ndarray, "m 2"], box: Domain) -> Float[np.ndarray, "m k 2"]:
        """Nearest point on each piece of the border, for each of some points."""
        start, edge = self._border(box)
        square = np.maximum((edge**2).sum(axis=1), np.finfo(float).tiny)
        share = np.clip(((U[:, None] - start) * edge).sum(axis=2) / square, 0.0, 1.0)
        return start + share[..., None] * edge

    def _is_within(self, X: Float[np.ndarray, "m 2"]) -> np.ndarray:
        """True if a ray to the right crosses an odd number of edges."""
        start = np.array(self.corners)
        end = np.roll(start, -1, axis=0)
        x, y = X[:, :1], X[:, 1:]
        spans = (start[:, 1] > y) != (end[:, 1] > y)
        rise = np.where(end[:, 1] == start[:, 1], 1.0, end[:, 1] - start[:, 1])
        crossing = start[:, 0] + (y - start[:, 1]) / rise * (end[:, 0] - start[:, 0])
        return np.asarray((spans & (x < crossing)).sum(axis=1) % 2 == 1)


def _of_length_one(ways: Float[np.ndarray, "k s"]) -> Float[np.ndarray, "k s"]:
    return ways / np.maximum(np.sqrt((ways**2).sum(axis=1)), np.finfo(float).tiny)[:, None]


class Region(Protocol):
    """Set of points to be avoided."""

    def depth(self, U: Float[np.ndarray, "m s"], box: Domain, /) -> Shape:
        """Depth (m,) of points of the unit cube in it, and its gradient (m, s)."""
        ...


@dataclass(frozen=True, eq=False)
class Limit:
    """A region or constraint on some coordinates of a joint point, or on a location.

    A penalty begins at the distance ``margin``, and over the next ``bend`` its slope grows from 0 to ``steepness``.
    Distances are in widths of the cube, slopes in spreads of the objective per width.
    """

    region: "Region"
    columns: Int[np.ndarray, " s"]
    bounds: Domain
    margin: float = 1e-4  # small, as maxima are on borders
    bend: float = 3e-3  # wide enough for climbs along borders
    steepness: float = 100.0  # moving points out may cost utility

    def allows(self, U: Float[np.ndarray, "m n"]) -> Bool[np.ndarray, " m"]:
        """Mask of points of the unit cube that are outside of it, or on its border up to rounding errors."""
        low, high, points = self.bounds.low, self.bounds.high, U[:, self.columns]
        if isinstance(self.region, NoGo):  # a region that ends at a bound includes the bound
            points, ends = self.bounds.snapped(points), self.bounds.to_unit(np.array([low, high]))
            at_low, at_high = np.abs(points - ends[:, None]) <= _ROUNDED
            cells = 0.25 / np.maximum(self.bounds.counts, 1.0)
            points = points + np.minimum(0.5 * _CLEAR, cells) * (1.0 * at_low - at_high)
        rounded = _ROUNDED * max(1.0, float((np.maximum(np.abs(low), np.abs(high)) / (high - low)).max()))
        return self.region.depth(points, self.bounds)[0] <= rounded

    def exits(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, "k n"]:
        """Points just outside, near a point within; they may be out of bounds."""
        assert isinstance(self.region, NoGo)
        near = self.region.exits(u[self.columns], self.bounds)
        moved = np.tile(u, (len(near), 1))
        moved[:, self.columns] = near
        return moved


NoGoRegion = NoGoBox | NoGoBall | NoGoPolygon


def region_of(given: object, at: str) -> NoGoRegion:
    """Region from a user's argument: an object of one of the shapes, or a table."""
    wanted = "with a kind, or sb.NoGoBox, sb.NoGoBall or sb.NoGoPolygon"
    return given if isinstance(given, NoGoRegion) else convert(table(given, wanted, at), NoGoRegion, at)
