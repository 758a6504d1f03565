"""Fields that somebody measured: points in a CSV file, used as they are or interpolated."""

import csv
import math
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from scipy.interpolate import RBFInterpolator
from scipy.spatial import ConvexHull, KDTree, QhullError

from swarmbo.errors import ConfigError
from swarmbo_envs.robot_team.fields import Field, lattice, summit
from swarmbo_envs.robot_team.settings import MeasuredSettings

_MAX_SITES = 4096
_MAX_EVALUATION_POINTS = 2500


def measured_field(settings: MeasuredSettings, max_sites: int, at: str = "$.field") -> Field:
    """The field of a CSV file. Rows at one place are averaged.

    Args:
        settings: The file, its columns, and how the sites are used.
        max_sites: Largest number of candidate sites of an interpolated field, of at most 4096.
        at: Path of the settings, for messages.

    Raises:
        ConfigError: If the file can't be read, a column is missing, a cell is not a finite number, or the sites are too
            few: 2 for ``only``, 3 that are not on one line for ``interpolated``.
    """
    sites, values = _distinct(*_read(settings, at))
    if len(sites) < 2:
        raise ConfigError(f"got {len(sites)} distinct sites in {settings.csv!r}; wanted at least 2", at=f"{at}.csv")
    size = np.ptp(sites, axis=0)
    margin = np.where(size < 0.01 * size.max(), 0.01 * size.max(), 0.0)  # sites on one line still span a map
    low, high = sites.min(axis=0) - margin, sites.max(axis=0) + margin
    title = f"{Path(settings.csv).stem} {settings.value}"
    if settings.sites == "only":
        spacing = KDTree(sites).query(sites, k=2)[0][:, 1]
        return Field(
            name=f"{title} (measured sites only)",
            unit=settings.unit,
            low=low,
            high=high,
            sites=sites,
            sites_only=True,
            interpolated=False,
            points=sites,
            surface=NearestSite(sites, values),
            maximum=float(values.max()),
            argmax=sites[values.argmax()],
            minimum=float(values.min()),
            reach_m=max(0.15 * float(size.max()), 1.5 * float(spacing.max())),
        )
    surface = SplineOverHull(sites, values, at)
    candidates = _inside(surface, low, high, min(max_sites, _MAX_SITES))
    maximum, argmax = summit(surface, np.concatenate([sites, _inside(surface, low, high, 4 * _MAX_SITES)]), low, high)
    return Field(
        name=f"{title} (interpolated)",
        unit=settings.unit,
        low=low,
        high=high,
        sites=candidates,
        sites_only=False,
        interpolated=True,
        points=_inside(surface, low, high, _MAX_EVALUATION_POINTS),
        surface=surface,
        maximum=maximum,
        argmax=argmax,
        minimum=float(surface(candidates).min()),
        reach_m=0.15 * float(size.max()),
    )


class NearestSite:
    """The value of the nearest measured site."""

    def __init__(self, sites: Float[np.ndarray, "n 2"], values: Float[np.ndarray, " n"]) -> None:
        self._tree, self._values = KDTree(sites), values

    def __call__(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """Values at places on the map."""
        return self._values[self._tree.query(X)[1]]


class SplineOverHull:
    """A thin-plate spline through measured values inside the sites' convex hull; outside, its value at the nearest edge.

    The spline is smooth and equals the data; not following it beyond the hull keeps the field from growing without data.

    Args:
        sites: Measured places, m.
        values: One per site.
        at: Path of the settings, for messages.

    Raises:
        ConfigError: If the sites lie on one line.
    """

    def __init__(self, sites: Float[np.ndarray, "n 2"], values: Float[np.ndarray, " n"], at: str = "$.field") -> None:
        self._centre, self._scale = sites.mean(axis=0), float(np.ptp(sites, axis=0).max())
        unit_sites = (sites - self._centre) / self._scale
        try:
            self._corners = unit_sites[ConvexHull(unit_sites).vertices]  # anticlockwise
        except QhullError:
            raise ConfigError(
                f"got {len(sites)} distinct sites on one line; wanted 3 or more that are not, or sites = 'only'",
                at=f"{at}.sites",
            ) from None
        self._spline = RBFInterpolator(unit_sites, values, kernel="thin_plate_spline")

    def __call__(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """Values at places on the map."""
        return self._spline(self._nearest_in_hull((X - self._centre) / self._scale))

    def covers(self, X: Float[np.ndarray, "k 2"]) -> Bool[np.ndarray, " k"]:
        """Whether places lie within the hull, edge included."""
        unit = (X - self._centre) / self._scale
        return np.linalg.norm(self._nearest_in_hull(unit) - unit, axis=1) < 1e-9

    def _nearest_in_hull(self, unit: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, "k 2"]:
        """The places themselves inside, the nearest point of the hull's edges outside."""
        start = self._corners
        edge = np.roll(start, -1, axis=0) - start
        offset = unit[:, None] - start
        share = np.clip((offset * edge).sum(axis=2) / (edge**2).sum(axis=1), 0.0, 1.0)
        on_edge = start + share[..., None] * edge
        nearest = ((unit[:, None] - on_edge) ** 2).sum(axis=2).argmin(axis=1)
        outside = (edge[:, 0] * offset[..., 1] - edge[:, 1] * offset[..., 0] < 0).any(axis=1)
        return np.where(outside[:, None], on_edge[np.arange(len(unit)), nearest], unit)


def _inside(
    surface: SplineOverHull, low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"], n_points: int
) -> Float[np.ndarray, "k 2"]:
    """About as many lattice places inside the hull as asked for, never more."""
    ask = n_points
    while True:
        places = lattice(low, high, ask)
        inside = places[surface.covers(places)]
        if len(inside) >= 0.9 * n_points or ask >= 4 * n_points:
            return inside[:n_points]
        ask = min(4 * n_points, int(ask * max(1.02, 0.97 * n_points / max(1, len(inside)))))


def _distinct(
    sites: Float[np.ndarray, "n 2"], values: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "m 2"], Float[np.ndarray, " m"]]:
    """Each place once, with the mean of its values, in the order of first appearance."""
    places, first, which, count = np.unique(sites, axis=0, return_index=True, return_inverse=True, return_counts=True)
    means = np.bincount(which.ravel(), weights=values) / count
    order = np.argsort(first)
    return places[order], means[order]


def _read(settings: MeasuredSettings, at: str) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """Coordinates and values of all rows."""
    wanted = {"x": settings.x, "y": settings.y, "value": settings.value}
    try:
        with Path(settings.csv).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = [name.strip() for name in next(reader, [])]
            for key, name in wanted.items():
                if header and name not in header:
                    raise ConfigError(f"no column {name!r}; columns: {', '.join(header)}", at=f"{at}.{key}")
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"cannot read {settings.csv!r}: {reason}; wanted a CSV file", at=f"{at}.csv") from None
    if not rows:
        raise ConfigError(f"{settings.csv!r} is empty; wanted a header line and rows of numbers", at=f"{at}.csv")
    columns = [
        [_number(row, header.index(name), line, name, f"{at}.{key}") for line, row in rows]
        for key, name in wanted.items()
    ]
    table = np.array(columns).T
    return table[:, :2], table[:, 2]


def _number(row: list[str], column: int, line: int, name: str, at: str) -> float:
    text = row[column].strip() if column < len(row) else ""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"line {line}, column {name!r}: got {text!r}; wanted a finite number", at=at)
    return number
