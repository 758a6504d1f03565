"""Fields from measurements in a CSV file, static or changing, at the sites only or interpolated."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.interpolate import NearestNDInterpolator
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial import ConvexHull, KDTree, QhullError

from swarmbo.boundary.csv_measurements import Measurements, read_measurements
from swarmbo.errors import ConfigError
from swarmbo.kernels import kernel_matrix
from swarmbo_envs.fields.field import MAX_EVALUATION_POINTS, MAX_SITES, Field, lattice
from swarmbo_envs.fields.settings import MeasuredSettings
from swarmbo_envs.shared import Place, Places, Starts, Values, digest, nearest

# sites nearer than this are equal up to rounding
_NEAREST_M = 1e-6
# share of the median spacing: from two nearer sites, kriging may extrapolate a summit hundreds of times as high
_NEAREST_SHARE = 1e-3
# values of the nearest site; the size of leaves decides among sites at equal distances
_nearest_site = partial(NearestNDInterpolator, tree_options={"leafsize": 10})


def measured_field(settings: MeasuredSettings, max_sites: int, title: str = "") -> Field:
    """Field of a CSV file, changing if it has a column of times; rows at one location (and time) are averaged."""
    measurements = read_measurements(settings.columns, "$.field")
    static = _static_field(measurements, settings, max_sites, title)
    if measurements.times is None:
        return static
    table = np.column_stack([measurements.places, measurements.times, measurements.values])
    change = SiteSeries(table, settings.time_step, settings.sites == "interpolated").surface
    span = float(table[:, 3].min()), float(table[:, 3].max())
    return replace(static.with_surface(change(0)), digest=digest(table), change=change, span=span)


def _static_field(measurements: Measurements, settings: MeasuredSettings, max_sites: int, title: str) -> Field:
    sites, values = merge_duplicates(measurements.places, measurements.values)
    if len(sites) < 2:
        raise ConfigError(f"got {len(sites)} distinct sites in {settings.csv!r}; wanted at least 2", at="$.field.csv")
    _refuse_near_sites(sites, settings)
    size = sites.max(axis=0) - sites.min(axis=0)
    # sites on one line still span a map
    margin = np.where(size < 0.01 * size.max(), 0.01 * size.max(), 0.0)
    low, high = sites.min(axis=0) - margin, sites.max(axis=0) + margin
    title = title or f"{Path(settings.csv).stem} {settings.value}"
    properties: dict[str, Any] = {
        "quantity": settings.value,
        "unit": settings.unit,
        "digest": digest(np.column_stack([sites, values])),
        "coordinates": None if measurements.projection is None else measurements.coordinates(),
    }
    if settings.sites == "only":
        properties |= {"sites_only": True, "least_reach_m": 1.5 * float(_distance_to_next(sites).max())}
        ends = float(values.max()), sites[values.argmax()], float(values.min())
        title, surface = f"{title} (measured sites only)", _nearest_site(sites, values)
        return Field(title, low, high, sites, sites, surface, *ends, **properties)
    covered, surface = _hull_filter(sites), Kriging(sites, values)
    candidates = _spread(covered, sites, low, high, min(max_sites, MAX_SITES))
    points = _spread(covered, sites, low, high, MAX_EVALUATION_POINTS)
    properties |= {"interpolated": True, "searched": np.concatenate([sites, lattice(low, high, MAX_SITES)])}
    name, ends = f"{title} (interpolated)", (0.0, low, 0.0)
    return Field(name, low, high, candidates, points, surface, *ends, **properties).with_surface(surface)


class Kriging:
    """Ordinary kriging: passes through the measured values, and returns to their mean level away from all sites.

    The covariance is Matern 3/2 with 1.5 times the median distance between neighbouring sites as lengthscale. Values
    then rise little above the data in the gaps between sites, where a spline would add summits.

    Source: Cressie, Statistics for Spatial Data, 1993, section 3.2.
    """

    def __init__(self, sites: Places, values: Values) -> None:
        self._centre = sites.mean(axis=0)
        # map coordinates are large: differences of centred coordinates keep their digits
        self._sites = sites - self._centre
        self._lengthscales = np.full(2, 1.5 * float(np.median(_distance_to_next(self._sites))))
        factor = cho_factor(kernel_matrix("matern32", self._sites, self._sites, self._lengthscales, 1.0), lower=True)
        ones = np.ones(len(values))
        self._level = float(ones @ cho_solve(factor, values)) / float(ones @ cho_solve(factor, ones))
        self._weights = cho_solve(factor, values - self._level)

    def __call__(self, X: Places) -> Values:
        """Values at locations on the map."""
        to_sites = kernel_matrix("matern32", X - self._centre, self._sites, self._lengthscales, 1.0)
        return self._level + to_sites @ self._weights


def _hull_filter(sites: Places) -> Callable[[Places], Places]:
    """Filter of places in the convex hull of the sites: the region in which data support a map."""
    centre, scale = sites.mean(axis=0), float(np.ptp(sites, axis=0).max())
    try:
        equations = ConvexHull((sites - centre) / scale).equations
    except QhullError:
        got = f"got {len(sites)} distinct sites on one line"
        raise ConfigError(f"{got}; wanted 3 or more off a line, or sites = 'only'", at="$.field.sites") from None

    def within_hull(places: Places) -> Places:
        beyond = (places - centre) / scale @ equations[:, :2].T + equations[:, 2]
        return places[(beyond <= 1e-9).all(axis=1)]

    return within_hull


def thinned(sites: Float[np.ndarray, "n 2"], n_points: int) -> Places:
    """At most ``n_points`` of the sites, spread evenly by farthest-point selection from the one nearest their mean."""
    chosen = [nearest(sites, sites.mean(axis=0))]
    squared = np.full(len(sites), np.inf)
    while len(chosen) < min(n_points, len(sites)):
        squared = np.minimum(squared, ((sites - sites[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(squared.argmax()))
    return sites[np.sort(chosen)]


def _spread(covered: Callable[[Places], Places], sites: Starts, low: Place, high: Place, n: int) -> Places:
    """At most n points over the hull: nearly n of a lattice, or sites if it has fewer than these, at most n / 2."""
    requested, points = n, covered(lattice(low, high, n))
    while len(points) < 0.9 * n and requested < 16 * n:
        requested = max(requested + 1, int(1.1 * requested))
        more_points = covered(lattice(low, high, requested))
        if len(more_points) > n:
            break
        if len(more_points) >= len(points):
            points = more_points
    return points if len(points) > n / 2 or len(points) >= len(sites) else thinned(sites, n)


def _refuse_near_sites(sites: Places, settings: MeasuredSettings) -> None:
    spacing, wanted = _distance_to_next(sites), _NEAREST_M
    if settings.sites == "interpolated":
        wanted = max(wanted, _NEAREST_SHARE * float(np.median(spacing)))
    if spacing.min() >= wanted:
        return
    nearest_site = int(spacing.argmin())
    others = np.delete(sites, nearest_site, axis=0)
    pair = f"{sites[nearest_site].tolist()} and {others[nearest(others, sites[nearest_site])].tolist()}"
    fix = "give rows of one site the same coordinates, and their values are averaged"
    got = f"got sites {pair}, {spacing[nearest_site]:.3g} m apart; wanted at least {wanted:.3g} m"
    raise ConfigError(f"{got}: {fix}", at="$.field.csv")


def _distance_to_next(sites: Places) -> Values:
    return np.asarray(KDTree(sites).query(sites, k=2)[0])[:, 1]  # the nearest of all is the site itself


def merge_duplicates(sites: Places, values: Values) -> tuple[Float[np.ndarray, "m 2"], Float[np.ndarray, " m"]]:
    """Distinct locations with the mean of their values, in the order of first appearance."""
    places, first, group, count = np.unique(sites, axis=0, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    return places[order], (np.bincount(group.ravel(), weights=values) / count)[order]


class SiteSeries:
    """Series of values at fixed sites, linear between their times and constant beyond them.

    ``table`` has rows x, y, time, value. ``time_step`` is the time of a round; None: the median step between times.
    """

    def __init__(self, table: Float[np.ndarray, "n 4"], time_step: float | None, interpolated: bool) -> None:
        times = np.unique(table[:, 2])
        if len(times) < 2:
            raise ConfigError(f"got {len(times)} time; wanted at least 2, or no column of times", at="$.field.time")
        self._step = float(np.median(np.diff(times))) if time_step is None else time_step
        self._begin, self._interpolated = float(times[0]), interpolated
        self.sites, _ = merge_duplicates(table[:, :2], table[:, 3])
        self._series: list[tuple[np.ndarray, np.ndarray]] = []
        for site in self.sites:
            rows = table[(table[:, :2] == site).all(axis=1)]
            rounds, values = merge_duplicates(rows[:, 2:3], rows[:, 3])
            order = np.argsort(rounds[:, 0])
            self._series.append((rounds[order, 0], values[order]))

    def values(self, round_number: float) -> Values:
        """Value of every site in a round."""
        time = self._begin + round_number * self._step
        return np.array([np.interp(time, rounds, values) for rounds, values in self._series])

    def surface(self, round_number: float) -> Callable[[Places], Values]:
        """Field of a round."""
        values = self.values(round_number)
        return Kriging(self.sites, values) if self._interpolated else _nearest_site(self.sites, values)
