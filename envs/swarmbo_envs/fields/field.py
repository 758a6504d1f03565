"""Fields over a map, static or changing from round to round, and candidate sites."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float
from scipy.interpolate import RegularGridInterpolator
from scipy.optimize import minimize

from swarmbo.boundary.coordinates import Coordinates
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.records import GroundTruth
from swarmbo_envs.fields.settings import Task
from swarmbo_envs.saved_state import WorldEpisode
from swarmbo_envs.shared import Marks, Place, Places, Rows, Values, grid_points

Surface = Callable[[Places], Values]
MAX_SITES = 4096  # of a lattice
MAX_EVALUATION_POINTS = 2500
_CACHE_SIZE = 4  # cached rounds and scorers: each is used many times in a step
K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Field:
    """A noise-free field on a rectangular map, x to the east and y to the north, in metres.

    ``sites`` are the only measurable locations if ``sites_only``, else a lattice. ``points`` are those at which maps
    are compared. ``minimum`` is the smallest value at the sites, ``maximum`` the largest over all measurable locations.
    Robots get from site to site with ``least_reach_m`` a round. ``digest`` identifies the data behind the settings.
    ``gaps`` masks map cells without data, south row first; values there are those of the nearest known location.
    ``coordinates`` are those of the input, if they are not the map's; ``cells`` rows and columns of a raster in metres.

    If the field changes, its values are those of round 0. ``change`` then gives the surface of any round, which can be
    pickled, and ``span`` is the smallest and the largest value of all rounds, at least approximately. The summit of a
    round is searched from the places ``searched``, or from the sites if that is None.
    """

    name: str
    low: Place
    high: Place
    sites: Places
    points: Float[np.ndarray, "m 2"]
    surface: Surface
    maximum: float
    argmax: Place
    minimum: float
    quantity: str = "value"
    unit: str = ""
    sites_only: bool = False
    interpolated: bool = False
    least_reach_m: float = 0.0
    digest: str = ""
    coordinates: Coordinates | None = None
    gaps: Marks | None = None
    cells: tuple[int, int] | None = None
    change: Callable[[float], Surface] | None = None
    span: tuple[float, float] | None = None
    searched: Places | None = None
    _surfaces: dict[int, Surface] = field(default_factory=dict[int, Surface], init=False, repr=False)
    _fields: dict[int, "Field"] = field(default_factory=dict[int, "Field"], init=False, repr=False)
    _scorers: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False, repr=False)

    def value(self, X: Places, round_number: int = 0) -> Values:
        """Values of a round at locations on the map; outside locations are moved to the edge."""
        return self._surface(round_number)(np.clip(np.asarray(X, dtype=float), self.low, self.high))

    def at(self, round_number: int) -> "Field":
        """Field of a round, with its own summit."""
        if self.change is None or not round_number:
            return self
        return _cached(self._fields, round_number, lambda: self.with_surface(self._surface(round_number)))

    def measure(
        self, episode: WorldEpisode, place: Place, noise_std: float, failure_rate: float, world: str, **which: Any
    ) -> float | None:
        """Noisy value of the round at a place; None if the measurement failed. ``which`` names agent and sample."""
        # named streams make an agent's draws independent of all actions, so compared methods meet equal noise
        names = {"round": episode.round, "episode": episode.number, **which}
        if stream(episode.seed, world, "failure", **names).random() < failure_rate:
            return None
        noise = noise_std * stream(episode.seed, world, "noise", **names).standard_normal()
        return float(self.value(place[None], episode.round)[0] + noise)

    def _surface(self, round_number: int) -> Surface:
        if self.change is None or not round_number:
            return self.surface
        return _cached(self._surfaces, round_number, partial(self.change, round_number))

    def truth(
        self, task: Task, level: float | None, at_round: "Callable[[int], GroundTruth] | None" = None
    ) -> GroundTruth:
        """Noise-free field, for metrics and figures; ``at_round`` gives that of other rounds."""
        points, best = self.points.copy(), self.argmax.copy()  # the caller's own
        positional = (points, self.value(points), self.maximum, best, self.unit, "m", self.name, self.value)
        return GroundTruth(*positional, goal=task, level=level, at_round=at_round)

    @property
    def reach_m(self) -> float:
        """Sensible travel distance of a round: 15 % of the map's longer side, or more."""
        return max(0.15 * float((self.high - self.low).max()), self.least_reach_m)

    def with_surface(self, surface: Surface) -> "Field":
        """The same map with other values, which do not change; the summit is searched again."""
        maximum, argmax = summit(surface, self.sites if self.searched is None else self.searched, self.low, self.high)
        at_sites = surface(self.sites)
        # local searches may miss the summit of a rough field
        for places, values in ((self.sites, at_sites), (self.points, surface(self.points))):
            best = places[values.argmax()]
            if (value := float(surface(best[None])[0])) > maximum:
                maximum, argmax = value, best
        ends = {"maximum": maximum, "argmax": argmax, "minimum": float(at_sites.min())}
        return replace(self, surface=surface, change=None, **ends)

    def scorer(self, key: tuple[float | None, float], make: Callable[[], T]) -> T:
        """Scorer that worlds over this field share if their level and noise are equal."""
        return _cached(self._scorers, key, make)

    def require_on_map(self, place: Place, at: str) -> None:
        """Refuse a place beyond the corners of the map."""
        low, high = self.low, self.high
        if not ((place >= low) & (place <= high)).all():
            sides = f"x from {low[0]:g} to {high[0]:g} m and y from {low[1]:g} to {high[1]:g} m"
            raise ConfigError(f"got {place.tolist()}; wanted a location on the map, {sides}", at=at)

    def distinct_places(self, given: Sequence[tuple[float, float]], at: str) -> Places:
        """Places of a user as an array; refuse one beyond the map, or given twice."""
        places = np.array(given, dtype=float)
        for i, place in enumerate(places):
            self.require_on_map(place, f"{at}[{i}]")
            if (place == places[:i]).all(axis=1).any():
                raise ConfigError(f"got {place.tolist()} twice; wanted different locations", at=f"{at}[{i}]")
        return places

    @cached_property
    def raster(self) -> Rows:
        """Values over the whole map for pictures, south row first, 160 cells along the longer side."""
        columns, rows = np.maximum(2, np.ceil(160 * (self.high - self.low) / (self.high - self.low).max())).astype(int)
        xs, ys = np.linspace(self.low[0], self.high[0], columns), np.linspace(self.low[1], self.high[1], rows)
        return self.value(grid_points(xs, ys)).reshape(rows, columns)


def lattice(low: Place, high: Place, n_points: int) -> Places:
    """At most ``n_points`` locations in rows and columns over a rectangle, in nearly square cells, edges included."""
    width, height = high - low
    columns = int(np.clip(np.sqrt(n_points * width / height), 2, n_points // 2))
    rows = max(2, n_points // columns)
    xs, ys = np.linspace(low[0], high[0], columns), np.linspace(low[1], high[1], rows)
    return grid_points(xs, ys)


def summit(surface: Surface, places: Places, low: Place, high: Place) -> tuple[float, Place]:
    """Maximum of a smooth field and its place, by local searches from the ten best ``places``; each peak needs one."""
    values = surface(places)
    size = high - low
    best_value, best_place = float(values.max()), places[values.argmax()]
    scale = float(np.ptp(values)) or 1.0

    def depth(unit: Place) -> float:
        return -float(surface((low + unit * size)[None])[0]) / scale

    for start in places[np.argsort(-values, kind="stable")[:10]]:
        found = minimize(depth, (start - low) / size, method="L-BFGS-B", bounds=[(0.0, 1.0)] * 2)
        place = np.clip(low + found.x * size, low, high)
        value = float(surface(place[None])[0])
        if value > best_value:
            best_value, best_place = value, place
    return best_value, best_place


class Bilinear:
    """Values between the cell centres of a grid of increasing coordinates; beyond the grid only if ``is_endless``."""

    def __init__(self, xs: np.ndarray, ys: np.ndarray, values: Rows, *, is_endless: bool = False) -> None:
        beyond: dict[str, Any] = {"bounds_error": False, "fill_value": None} if is_endless else {}
        self._interpolator = RegularGridInterpolator((ys, xs), values, **beyond)

    def __call__(self, X: Places) -> Values:
        """Values at places on the grid."""
        return self._interpolator(X[:, ::-1])


def _cached(cache: dict[K, T], key: K, make: Callable[[], T]) -> T:
    """Value of a key, made if it is not among the few latest values."""
    if (value := cache.get(key)) is None:
        for oldest in list(cache)[: 1 - _CACHE_SIZE]:  # other threads may remove them, too
            cache.pop(oldest, None)
        value = cache[key] = make()
    return value


def separated_sites(rng: np.random.Generator, sites: Places, n_places: int) -> Float[np.ndarray, "n_places 2"]:
    """Random sites, separated by half the side of a site's share of the map, or by less if that is impossible."""
    candidates = sites[rng.permutation(len(sites))]
    separation = 0.5 * float(np.sqrt(np.prod(np.ptp(sites, axis=0)) / n_places))
    while True:
        chosen: list[Place] = []
        is_free = np.ones(len(candidates), dtype=bool)
        while len(chosen) < n_places and is_free.any():
            site = candidates[is_free.argmax()]
            chosen.append(site)
            # sites at the same location count once, however small the distance has become
            is_free &= (((candidates - site) ** 2).sum(axis=1) >= separation**2) & (candidates != site).any(axis=1)
        if len(chosen) == n_places:
            return np.array(chosen)
        separation *= 0.8
