"""Settings and episodes of a sensor field, and its stations."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from swarmbo.boundary import rng
from swarmbo.errors import ConfigError
from swarmbo.settings import Distance, Whole, require, within
from swarmbo_envs.fields.field import Field, separated_sites
from swarmbo_envs.fields.measured import thinned
from swarmbo_envs.fields.settings import FieldWorldSettings, Task
from swarmbo_envs.fields.world import FieldEpisode
from swarmbo_envs.shared import Place, Places, nearest

_LLOYD_STEPS = 20
_SLACK = 1.0 + 1e-9


class SensorFieldSettings(FieldWorldSettings, frozen=True):
    """Arguments of the sensor field; see ``SensorField``."""

    sensors: Annotated[int, within(1, 1024)] = 24
    task: Task = "map"
    places: list[tuple[float, float]] | None = None
    place_seed: Whole = 0
    reach_m: Distance | None = None
    spots: Annotated[int, within(1, 1024)] = 25
    radio_range_m: Distance | None = None
    sample_energy_j: Annotated[float, within(0, 1e12, "an energy", "J")] = 1.0
    energy_price: Annotated[float, within(0, 1e12, "a price per joule")] = 0.0
    battery_j: Annotated[float, within(0, 1e15, "an energy", "J")] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        is_each = self.places is None or len(self.places) == self.sensors
        require(self, "places", lambda _: is_each, f"one [x, y] per sensor: {self.sensors}")


@dataclass
class Episode(FieldEpisode):
    """State of an episode: ``spots`` that sensors point at, and their ``last`` good measurements."""

    spots: Float[np.ndarray, "n 2"]
    last: Float[np.ndarray, " n"]
    spent_j: Float[np.ndarray, " n"]
    sampled: Bool[np.ndarray, " n"]
    failed: Bool[np.ndarray, " n"]


class Stations:
    """Fixed positions and boxes of the sensors."""

    def __init__(self, settings: SensorFieldSettings, field: Field) -> None:
        given = settings.places
        self.places = field.distinct_places(given, "$.places") if given else _even_places(settings, field)
        # default: the smallest reach with which every site is in a box, and no box is a point; a distance is the larger
        # of the two along the axes
        to_nearest = np.asarray(KDTree(self.places).query(field.sites, p=np.inf)[0])
        covering = max(float(to_nearest.max()), 0.01 * float((field.high - field.low).max()))
        self.reach_m = settings.reach_m or covering
        self.low = np.maximum(self.places - self.reach_m, field.low)
        self.high = np.minimum(self.places + self.reach_m, field.high)
        self.spots = [self._own_spots(sensor, field, settings.spots) for sensor in range(len(self.places))]
        # default: slightly above the smallest range at which relays connect all sensors
        tree = minimum_spanning_tree(cdist(self.places, self.places)).toarray()
        self.radio_range_m = settings.radio_range_m or 1.05 * (float(tree.max()) if len(self.places) > 1 else 1.0)
        # the only candidate of a sensor without a site in its box lies outside the box
        self.low = np.minimum(self.low, [spots.min(axis=0) for spots in self.spots])
        self.high = np.maximum(self.high, [spots.max(axis=0) for spots in self.spots])

    def _own_spots(self, sensor: int, field: Field, n_spots: int) -> Places:
        """Candidate locations of a sensor: sites in its box, thinned evenly to ``n_spots`` if they are a lattice."""
        place = self.places[sensor]
        own = field.sites[(np.abs(field.sites - place) <= self.reach_m * _SLACK).all(axis=1)]
        if not len(own):
            return field.sites[[nearest(field.sites, place)]]
        return own if field.sites_only else thinned(own, n_spots)

    def nearest_spot(self, sensor: int, place: Place) -> Place:
        """Candidate of a sensor that is nearest to a place."""
        own = self.spots[sensor]
        return own[nearest(own, place)]


def _even_places(settings: SensorFieldSettings, field: Field) -> Places:
    """Positions that divide the sites evenly: random, each moved to the mean of its nearest sites (Lloyd 1982)."""
    if settings.sensors > len(field.sites):
        raise ConfigError(f"got {settings.sensors}; wanted at most one per site: {len(field.sites)}", at="$.sensors")
    places = separated_sites(rng.stream(settings.place_seed, "sensor_field", "places"), field.sites, settings.sensors)
    for _ in range(_LLOYD_STEPS):
        nearest = np.asarray(KDTree(places).query(field.sites)[1])
        counts = np.bincount(nearest, minlength=len(places))
        sums = np.stack([np.bincount(nearest, field.sites[:, axis], len(places)) for axis in range(2)], axis=1)
        places = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], places)
    return places
