"""Settings of a sensor field, its stations, and each sensor's candidate locations."""

from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from swarmbo.boundary import rng
from swarmbo.errors import ConfigError
from swarmbo.settings import Count, Distance, NoiseStd, Probability, Settings, Whole, require, within
from swarmbo_envs.fields.field import Field, spread
from swarmbo_envs.fields.measured import thinned
from swarmbo_envs.fields.settings import Task, require_level

Pair = tuple[float, float]
_LLOYD_STEPS = 20
_SLACK = 1.0 + 1e-9


class SensorFieldSettings(Settings, frozen=True):
    """Arguments of the sensor field; see ``SensorField``."""

    sensors: Annotated[int, within(1, 1024)] = 24
    field: dict[str, Any] | None = None
    task: Task = "map"
    level: float | None = None
    places: list[Pair] | None = None
    place_seed: Whole = 0
    reach_m: Distance | None = None
    spots: Annotated[int, within(1, 1024)] = 25
    radio_range_m: Distance | None = None
    noise_std: NoiseStd = 0.0
    failure_rate: Probability = 0.0
    sample_energy_j: Annotated[float, within(0, 1e12, "an energy", "J")] = 1.0
    energy_price: Annotated[float, within(0, 1e12, "a price per joule")] = 0.0
    battery_j: Annotated[float, within(0, 1e15, "an energy", "J")] | None = None
    max_cycles: Count = 25
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_level(self)
        require(
            self,
            "places",
            lambda places: places is None or len(places) == self.sensors,
            f"one [x, y] per sensor: {self.sensors}",
        )


class Stations:
    """Fixed positions and boxes of the sensors."""

    def __init__(self, settings: SensorFieldSettings, field: Field) -> None:
        self.places = _checked_places(settings, field) if settings.places else _even_places(settings, field)
        self.reach_m = settings.reach_m or _covering_reach(self.places, field)
        self.low = np.maximum(self.places - self.reach_m, field.low)
        self.high = np.minimum(self.places + self.reach_m, field.high)
        self.spots = [self._own_spots(sensor, field, settings.spots) for sensor in range(len(self.places))]
        self.radio_range_m = settings.radio_range_m or _connecting_range(self.places)
        # if only sites can be measured, a list may reach beyond the box: its sensor has none nearer
        self.low = np.minimum(self.low, [spots.min(axis=0) for spots in self.spots])
        self.high = np.maximum(self.high, [spots.max(axis=0) for spots in self.spots])

    def _own_spots(self, sensor: int, field: Field, n_spots: int) -> Float[np.ndarray, "k 2"]:
        """Candidate locations of a sensor: sites in its box, thinned evenly to ``n_spots`` if they are a lattice."""
        place = self.places[sensor]
        own = field.sites[(np.abs(field.sites - place) <= self.reach_m * _SLACK).all(axis=1)]
        if not len(own):
            return field.sites[[((field.sites - place) ** 2).sum(axis=1).argmin()]]
        return own if field.sites_only else thinned(own, n_spots)

    def nearest_spot(self, sensor: int, place: Float[np.ndarray, " 2"]) -> Float[np.ndarray, " 2"]:
        """Candidate of a sensor that is nearest to a place."""
        own = self.spots[sensor]
        return own[((own - place) ** 2).sum(axis=1).argmin()]


def _checked_places(settings: SensorFieldSettings, field: Field) -> Float[np.ndarray, "n 2"]:
    places = np.array(settings.places, dtype=float)
    for i, place in enumerate(places):
        if not ((place >= field.low) & (place <= field.high)).all():
            raise ConfigError(
                f"got {place.tolist()}; wanted a place on the map, x from {field.low[0]:g} to {field.high[0]:g} m "
                f"and y from {field.low[1]:g} to {field.high[1]:g} m",
                at=f"$.places[{i}]",
            )
        if (place == places[:i]).all(axis=1).any():
            raise ConfigError(f"got {place.tolist()} twice; wanted different locations", at=f"$.places[{i}]")
    return places


def _even_places(settings: SensorFieldSettings, field: Field) -> Float[np.ndarray, "n 2"]:
    """Positions that divide the sites evenly: random ones, each moved to the mean of the sites nearest to it.

    Source: Lloyd 1982, Least squares quantization in PCM.
    """
    if settings.sensors > len(field.sites):
        raise ConfigError(f"got {settings.sensors}; wanted at most one per site: {len(field.sites)}", at="$.sensors")
    places = spread(rng.stream(settings.place_seed, "sensor_field", "places"), field.sites, settings.sensors)
    for _ in range(_LLOYD_STEPS):
        nearest = np.asarray(KDTree(places).query(field.sites)[1])
        counts = np.bincount(nearest, minlength=len(places))
        sums = np.stack([np.bincount(nearest, field.sites[:, axis], len(places)) for axis in range(2)], axis=1)
        places = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], places)
    return places


def _covering_reach(places: Float[np.ndarray, "n 2"], field: Field) -> float:
    """Smallest reach with which every site is in a box, and no box is a point."""
    to_nearest = np.asarray(KDTree(places).query(field.sites, p=np.inf)[0])
    return max(float(to_nearest.max()), 0.01 * float((field.high - field.low).max()))


def _connecting_range(places: Float[np.ndarray, "n 2"]) -> float:
    """Radio range slightly above the smallest at which relays connect all sensors."""
    distances = cdist(places, places)
    longest = float(minimum_spanning_tree(distances).toarray().max()) if len(places) > 1 else 1.0
    return 1.05 * longest
