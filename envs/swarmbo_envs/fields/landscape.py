"""Fields of any settings table: draws from a Gaussian process prior, plumes in a wind, and elevation models."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.cbook import get_sample_data
from scipy.spatial.distance import cdist

from swarmbo import kernels
from swarmbo.boundary import rng
from swarmbo.errors import ConfigError
from swarmbo_envs.fields import settings as kinds
from swarmbo_envs.fields.field import MAX_EVALUATION_POINTS, MAX_SITES, Bilinear, Field, Surface, lattice
from swarmbo_envs.fields.measured import measured_field
from swarmbo_envs.fields.raster import raster_field
from swarmbo_envs.fields.settings import ChangeSettings, DrawSettings, PlumeSettings
from swarmbo_envs.shared import Pair, Place, Places, Rows, Values, grid_points

_N_FEATURES = 1024
_MAX_MOVING_POINTS = 1000  # of a field whose truth is kept for every round
_PUFFS_PER_ROUND = 4
_LIFETIMES = 6.0  # a puff is dropped once it has decayed to exp(-6) of its content
_PERIODS = (7.0, 17.0, 41.0)  # of the gusts, rounds
_SURVEYED = range(0, 100, 2)  # rounds searched for the range of the concentrations
_SURVEY_POINTS = 120
_METRES_PER_DEGREE = np.pi / 180 * 6_371_008.8  # of latitude, on a sphere with the Earth's mean radius
_SUMMIT_OF_JACKSBORO = (200, 128, 128, 128)
_DATA = Path(__file__).parent / "data"


def _with_mean(X: Places, mean: float, about_mean: Surface) -> Values:
    return mean + about_mean(X)


def drawn(settings: DrawSettings) -> Surface:
    """One draw from the prior, plus its mean."""
    lengthscales = np.full(2, settings.lengthscale_m)
    generator = rng.stream(settings.seed, "robot_team", "field")
    about_mean = kernels.draw(generator, settings.kernel, lengthscales, settings.std**2, _N_FEATURES)
    return partial(_with_mean, mean=settings.mean, about_mean=about_mean)


class DrawnInTime:
    """One function of location and round from a separable prior, plus its mean: a product of spectral densities."""

    def __init__(self, settings: DrawSettings, change: ChangeSettings) -> None:
        generator = rng.stream(settings.seed, "fields", "draw in time")
        n, lengthscales = _N_FEATURES // 2, np.full(2, settings.lengthscale_m)
        over_places = kernels.spectral_frequencies(generator, settings.kernel, lengthscales, n)
        over_rounds = kernels.spectral_frequencies(generator, change.kernel, np.array([change.lengthscale_rounds]), n)
        self._weights = settings.std / np.sqrt(n) * generator.standard_normal((2, n))
        self._over_places, self._over_rounds, self._mean = over_places, over_rounds[:, 0], settings.mean

    def surface(self, round_number: float) -> Surface:
        """Function of one round: sines and cosines over locations, whose weights rotate with time."""
        (sines, cosines), phase = self._weights, self._over_rounds * round_number
        # cos(a + b) and sin(a + b) in products: only the weights change from round to round, not the features
        rotated = sines * np.cos(phase) - cosines * np.sin(phase), sines * np.sin(phase) + cosines * np.cos(phase)
        return partial(_with_mean, mean=self._mean, about_mean=kernels.FourierDraw(self._over_places, *rotated))


def _over(
    surface: Surface, name: str, size_m: Pair, max_sites: int, n_points: int = MAX_EVALUATION_POINTS, **labels: Any
) -> Field:
    """Field over a region from (0, 0); its candidate sites are a lattice of at most min(``max_sites``, 4096) points."""
    low, high = np.zeros(2), np.array(size_m)
    sites, points = lattice(low, high, min(max_sites, MAX_SITES)), lattice(low, high, n_points)
    return Field(name, low, high, sites, points, surface, 0.0, low, 0.0, **labels).with_surface(surface)


@lru_cache(maxsize=16)
def _shared_field(settings: DrawSettings, max_sites: int) -> Field:
    """Drawn field that all worlds of one seed share; its arrays cannot be written."""
    shared = drawn_field(settings, max_sites)
    for array in vars(shared).values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return shared


def drawn_field(settings: DrawSettings, max_sites: int) -> Field:
    """Seeded draw over a region, static or changing."""
    rounds = "" if settings.time is None else f", {settings.time.lengthscale_rounds:g} rounds"
    title = f"GP draw {settings.seed} ({settings.kernel}, lengthscale {settings.lengthscale_m:g} m{rounds})"
    low, high = np.zeros(2), np.array(settings.size_m)
    n_searched = np.prod(4 * high / settings.lengthscale_m)  # enough to have a point on the slope of every peak
    searched = lattice(low, high, int(np.clip(n_searched, 1024, 4 * MAX_SITES)))
    if settings.time is None:
        return _over(drawn(settings), title, settings.size_m, max_sites, searched=searched)
    change, span = DrawnInTime(settings, settings.time).surface, 3.0 * settings.std
    first = _over(change(0), title, settings.size_m, max_sites, _MAX_MOVING_POINTS, searched=searched)
    return replace(first, change=change, span=(settings.mean - span, settings.mean + span))


@dataclass(frozen=True, eq=False)
class Puffs:
    """Gaussian bells over the plane: centres in m, heights there, and variances in m²."""

    centres: Float[np.ndarray, "n 2"]
    heights: Float[np.ndarray, " n"]
    variances: Float[np.ndarray, " n"]

    def __call__(self, X: Places) -> Values:
        """Sum at places on the map."""
        return np.exp(-0.5 * cdist(X, self.centres, "sqeuclidean") / self.variances) @ self.heights


class Plume:
    """Gaussian puffs in a wind that is uniform in space and changes with time.

    A puff is emitted every quarter of a round. Its variance grows linearly, its content decays exponentially, and its
    centre moves with the wind v(t) = (w, 0) + Σ_k a_k cos(ω_k t + φ_k), so that the field has a closed form.

    Source: Gaussian puff model, Seinfeld & Pandis, Atmospheric Chemistry and Physics, 2006, section 18.6, in the plane.
    """

    def __init__(self, settings: PlumeSettings) -> None:
        size = np.array(settings.size_m)
        places = [(0.1 * size[0], 0.5 * size[1])] if settings.sources is None else settings.sources
        self.sources = np.array(places, dtype=float)
        self._wind = settings.wind_m_per_round
        self.radius = settings.radius_m or 0.05 * float(size.max())
        spread = settings.spread_m2_per_round
        self._growth = 0.25 * self.radius**2 if spread is None else spread
        self._decay = settings.decay_rounds
        generator = rng.stream(settings.seed, "fields", "plume")
        self._omega = 2 * np.pi / np.array(_PERIODS)
        self._gusts = settings.gusts * self._wind / math.sqrt(len(_PERIODS)) * generator.standard_normal((2, 3))
        self._phases = generator.uniform(0, 2 * np.pi, (2, 3))
        self._ages = np.arange(math.ceil(_LIFETIMES * self._decay * _PUFFS_PER_ROUND)) / _PUFFS_PER_ROUND
        arriving = self._height(self._ages) * np.exp(-0.5 * (self._wind * self._ages) ** 2 / self._variance(self._ages))
        self._scale = settings.peak / float(arriving.sum())
        self.bound = len(self.sources) * self._scale * float(self._height(self._ages).sum())  # all puffs in one place

    def surface(self, round_number: float) -> Surface:
        """Concentrations of one round."""
        released = math.floor(round_number * _PUFFS_PER_ROUND) / _PUFFS_PER_ROUND - self._ages
        ages = round_number - released
        offset = self.carried(np.array([float(round_number)])) - self.carried(released)
        centres = (self.sources[:, None, :] + offset).reshape(-1, 2)
        n_sources = len(self.sources)
        heights, variances = self._scale * self._height(ages), self._variance(ages)
        return Puffs(centres, np.tile(heights, n_sources), np.tile(variances, n_sources))

    def carried(self, times: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
        """Displacement by the wind since time 0, m."""
        phase = self._omega * times[:, None, None] + self._phases
        gusts = (self._gusts / self._omega * (np.sin(phase) - np.sin(self._phases))).sum(axis=2)
        return gusts + np.outer(times, [self._wind, 0.0])

    def _variance(self, ages: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return self.radius**2 + self._growth * ages

    def _height(self, ages: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return np.exp(-ages / self._decay) * self.radius**2 / self._variance(ages)


def plume_field(settings: PlumeSettings, max_sites: int) -> Field:
    """A plume over a region."""
    plume, low, high = Plume(settings), np.zeros(2), np.array(settings.size_m)
    searched = np.concatenate([lattice(low, high, _MAX_MOVING_POINTS), plume.sources])  # narrow puffs are at a source
    where = f"plume {settings.seed}", settings.size_m, max_sites, _MAX_MOVING_POINTS
    first = _over(plume.surface(0), *where, quantity="concentration", unit=settings.unit, searched=searched)
    return replace(first, change=plume.surface, span=(0.0, _highest(plume, low, high)))


def _highest(plume: Plume, low: Place, high: Place) -> float:
    """Approximate largest concentration in any round, which occurs if the wind drops or plumes meet."""
    angles = np.arange(8) * np.pi / 4
    offsets = [step * plume.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1) for step in (0, 1, 2)]
    around_sources = (plume.sources[:, None, None] + np.array(offsets)).reshape(-1, 2)
    places = np.clip(np.concatenate([lattice(low, high, _SURVEY_POINTS), around_sources]), low, high)
    return 1.15 * max(float(plume.surface(number)(places).max()) for number in _SURVEYED)


def load_elevation(name: str) -> tuple[str, Rows, Values, Values, kinds.Window]:
    """Read ``jacksboro`` or ``topobathy`` of matplotlib: title, heights, latitudes of rows, longitudes, window."""
    if name == "jacksboro":
        with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as data:
            heights = data["elevation"].astype(float)
            # the file interchanges ymin and ymax; row 0 is in the north
            rows, columns = np.arange(heights.shape[0]), np.arange(heights.shape[1])
            latitudes = max(float(data["ymin"]), float(data["ymax"])) - float(data["dy"]) * rows
            longitudes = float(data["xmin"]) + float(data["dx"]) * columns
        return "Jacksboro fault elevation", heights, latitudes, longitudes, _SUMMIT_OF_JACKSBORO
    with np.load(get_sample_data("topobathy.npz", asfileobj=False)) as data:
        heights = data["topo"].astype(float)
        latitudes, longitudes = data["latitude"].astype(float), data["longitude"].astype(float)
    return "Vancouver Island elevation", heights, latitudes, longitudes, (0, 0, *heights.shape)


def elevation_field(settings: kinds.ElevationSettings, max_sites: int) -> Field:
    """Window of an elevation model, bilinear between its cells; at most ``max_sites`` cells are candidate sites."""
    title, heights, latitudes, longitudes, default_window = load_elevation(settings.elevation)
    row, column, rows, columns = window = settings.window or default_window
    height, width = heights.shape
    if min(row, column) < 0 or min(rows, columns) < 2 or row + rows > height or column + columns > width:
        cells = f"the {height} x {width} cells of {settings.elevation!r}, with at least 2 rows and 2 columns"
        got = f"got {list(window)}; wanted [row, column, rows, columns] within {cells}"
        raise ConfigError(got, at="$.field.window")
    heights = heights[row : row + rows, column : column + columns]
    latitudes, longitudes = latitudes[row : row + rows], longitudes[column : column + columns]
    if latitudes[0] > latitudes[-1]:
        heights, latitudes = heights[::-1], latitudes[::-1]
    ys = (latitudes - latitudes[0]) * _METRES_PER_DEGREE
    xs = (longitudes - longitudes[0]) * _METRES_PER_DEGREE * np.cos(np.radians(latitudes.mean()))
    row, column = np.unravel_index(heights.argmax(), heights.shape)
    surface, summit = Bilinear(xs, ys, np.ascontiguousarray(heights)), np.array([xs[column], ys[row]])
    title = title if window == default_window else f"{title}, window {list(window)}"
    sites, points = _every_nth_cell(xs, ys, max_sites), _every_nth_cell(xs, ys, MAX_EVALUATION_POINTS)
    low, high, ends = np.zeros(2), np.array([xs[-1], ys[-1]]), (float(heights.max()), summit, float(heights.min()))
    return Field(title, low, high, sites, points, surface, *ends, "elevation", "m", cells=heights.shape)


def _every_nth_cell(xs: Float[np.ndarray, " columns"], ys: Float[np.ndarray, " rows"], max_sites: int) -> Places:
    stride = 1
    while len(xs[::stride]) * len(ys[::stride]) > max_sites:
        stride += 1
    return grid_points(xs[::stride], ys[::stride])


def build_field(table: dict[str, Any] | None, max_sites: int, *, moving: bool = False) -> Field:
    """Field of a table; None: the elevation model. ``sites = 'only'`` keeps all sites, ``moving`` permits change."""
    settings = kinds.field_settings(table, moving=moving)
    if isinstance(settings, kinds.PlumeFieldSettings):
        return plume_field(settings.plume, max_sites)
    if isinstance(settings, kinds.ElevationSettings):
        return elevation_field(settings, max_sites)
    if isinstance(settings, kinds.DrawFieldSettings):
        names = {settings.gp.kernel, (settings.gp.time or settings.gp).kernel}
        is_fixed = names <= {*kernels.KERNEL_NAMES}  # another kernel may be registered under a user's name
        return (_shared_field if is_fixed else drawn_field)(settings.gp, max_sites)
    if isinstance(settings, kinds.RasterFieldSettings):
        return raster_field(settings, max_sites, may_have_gaps=not moving)
    if isinstance(settings, kinds.SurveySettings):
        file = str(_DATA / "oxford_ph.csv")
        measured = kinds.MeasuredSettings(csv=file, x="x_m", y="y_m", value="ph", unit="pH", sites=settings.sites)
        return measured_field(measured, max_sites, "Oxford soil, pH")
    return measured_field(settings, max_sites)
