"""Settings and episodes of a sensor field, its stations, and the belief behind the rewards."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from swarmbo.boundary import rng
from swarmbo.errors import ConfigError
from swarmbo.kernels import kernel_matrix
from swarmbo.settings import Distance, Whole, require, within
from swarmbo_envs.fields.field import Field, FieldInTime, lattice, spread
from swarmbo_envs.fields.measured import thinned
from swarmbo_envs.fields.settings import FieldWorldSettings, Task
from swarmbo_envs.saved_state import WorldEpisode
from swarmbo_envs.shared import Pair, Place, Places, Values, nearest

_LLOYD_STEPS = 20
_SLACK = 1.0 + 1e-9
_MOST_KNOTS = 144
# compared with the truth: in a drawn field a step costs little else
_MOST_POINTS = 512
_FITTED_TO = 150  # points of the truth for the choice of a lengthscale
_LENGTHSCALES = 12  # to choose from
_LAGS = (1, 2, 4, 8)  # rounds
_NUGGET = 1e-6  # of the prior variance


class SensorFieldSettings(FieldWorldSettings, frozen=True):
    """Arguments of the sensor field; see ``SensorField``."""

    sensors: Annotated[int, within(1, 1024)] = 24
    task: Task = "map"
    places: list[Pair] | None = None
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
class Episode(WorldEpisode):
    """State of an episode, in addition to the fields of all worlds.

    ``spots`` are the locations that sensors point at, ``last`` their last good measurements, ``knots_mean`` and
    ``knots_covariance`` the belief behind the rewards (``Scorer``), and ``score`` its quality.
    """

    spots: Float[np.ndarray, "n 2"]
    last: Float[np.ndarray, " n"]
    spent_j: Float[np.ndarray, " n"]
    sampled: Bool[np.ndarray, " n"]
    failed: Bool[np.ndarray, " n"]
    knots_mean: Values
    knots_covariance: Float[np.ndarray, "k k"]
    score: float


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

    def _own_spots(self, sensor: int, field: Field, n_spots: int) -> Places:
        """Candidate locations of a sensor: sites in its box, thinned evenly to ``n_spots`` if they are a lattice."""
        place = self.places[sensor]
        own = field.sites[(np.abs(field.sites - place) <= self.reach_m * _SLACK).all(axis=1)]
        if not len(own):
            return field.sites[[nearest(field.sites, place)]]
        return own if field.sites_only else thinned(own, n_spots)

    @property
    def boxes(self) -> list[tuple[Place, Place]]:
        """South-west and north-east corner of each sensor's box."""
        return list(zip(self.low, self.high, strict=True))

    def nearest_spot(self, sensor: int, place: Place) -> Place:
        """Candidate of a sensor that is nearest to a place."""
        own = self.spots[sensor]
        return own[nearest(own, place)]


def _checked_places(settings: SensorFieldSettings, field: Field) -> Places:
    places = np.array(settings.places, dtype=float)
    for i, place in enumerate(places):
        field.require_on_map(place, f"$.places[{i}]")
        if (place == places[:i]).all(axis=1).any():
            raise ConfigError(f"got {place.tolist()} twice; wanted different locations", at=f"$.places[{i}]")
    return places


def _even_places(settings: SensorFieldSettings, field: Field) -> Places:
    """Positions that divide the sites evenly: random, each moved to the mean of its nearest sites (Lloyd 1982)."""
    if settings.sensors > len(field.sites):
        raise ConfigError(f"got {settings.sensors}; wanted at most one per site: {len(field.sites)}", at="$.sensors")
    places = spread(rng.stream(settings.place_seed, "sensor_field", "places"), field.sites, settings.sensors)
    for _ in range(_LLOYD_STEPS):
        nearest = np.asarray(KDTree(places).query(field.sites)[1])
        counts = np.bincount(nearest, minlength=len(places))
        sums = np.stack([np.bincount(nearest, field.sites[:, axis], len(places)) for axis in range(2)], axis=1)
        places = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], places)
    return places


def _covering_reach(places: Places, field: Field) -> float:
    """Smallest reach with which every site is in a box, and no box is a point."""
    # boxes: the larger of the distances along the two axes counts
    to_nearest = np.asarray(KDTree(places).query(field.sites, p=np.inf)[0])
    return max(float(to_nearest.max()), 0.01 * float((field.high - field.low).max()))


def _connecting_range(places: Places) -> float:
    """Radio range slightly above the smallest at which relays connect all sensors."""
    distances = cdist(places, places)
    longest = float(minimum_spanning_tree(distances).toarray().max()) if len(places) > 1 else 1.0
    return 1.05 * longest


class Scorer:
    """A belief about the field and its score, equal for all teams and methods.

    It is a Gaussian process over locations with a Matern 3/2 kernel that is never fitted to samples. Between rounds it
    returns to its mean by a fixed share if the field changes. Mean, standard deviation, lengthscale and that share are
    those of the true field at the beginning. It consists of values at up to 144 knots (a Kalman filter).

    Source: Särkkä, Solin & Hartikainen 2013, IEEE Signal Processing Magazine 30 (a process as a filter); Snelson &
    Ghahramani 2006, Sparse Gaussian processes using pseudo-inputs, eq. (7) (dependence of a location on the knots).
    """

    def __init__(self, settings: SensorFieldSettings, field: FieldInTime) -> None:
        self._settings, self._field = settings, field
        first = field.first
        self.points = thinned(first.points, _MOST_POINTS)
        truth = self._truth(0)
        self._level = float(truth.mean())
        self._std = float(truth.std()) or 1.0
        few = first.sites_only and len(first.sites) <= _MOST_KNOTS
        self.knots = first.sites if few else lattice(first.low, first.high, _MOST_KNOTS)
        self._kept = self._share_kept(truth)

    @cached_property
    def _lengthscale(self) -> float:
        """Likeliest lengthscale of the truth, between the distance of knots and the map's longer side."""
        first = self._field.first
        places = thinned(self.points, _FITTED_TO)
        values = (first.value(places) - self._level) / self._std
        side = float((first.high - first.low).max())
        spacing = float(np.sqrt(np.prod(first.high - first.low) / len(self.knots)))
        candidates = np.geomspace(min(spacing, side), side, _LENGTHSCALES)
        return float(candidates[np.argmax([_log_likelihood(places, values, length) for length in candidates])])

    def _share_kept(self, truth: Float[np.ndarray, " m"]) -> float:
        """Share of the deviation from the mean that remains after a round, by the truth's least autocorrelation."""
        # a filter forgets by the same share in every round, also if the truth hardly changes at first
        if not self._field.moves:
            return 1.0
        now, shares = truth - truth.mean(), list[float]()
        for lag in _LAGS:
            then = self._truth(lag)
            then = then - then.mean()
            size = float(np.sqrt((now @ now) * (then @ then)))
            shares.append(float(np.clip(now @ then / size, 0.0, 1.0)) ** (1.0 / lag) if size > 0.0 else 1.0)
        return min(shares)

    def begin(self) -> tuple[Values, Float[np.ndarray, "k k"]]:
        """Prior of the knots: deviation from the mean, and its covariance."""
        return np.zeros(len(self.knots)), self._prior.copy()

    def after_a_round(
        self, mean: Values, covariance: Float[np.ndarray, "k k"]
    ) -> tuple[Values, Float[np.ndarray, "k k"]]:
        """Belief after one more round of change."""
        share = self._kept
        return share * mean, share**2 * covariance + (1.0 - share**2) * self._prior

    def learned(
        self,
        mean: Values,
        covariance: Float[np.ndarray, "k k"],
        places: Float[np.ndarray, "n 2"],
        values: Float[np.ndarray, " n"],
    ) -> tuple[Values, Float[np.ndarray, "k k"]]:
        """Belief after samples of one round, at places in m with noisy values."""
        if not len(places):
            return mean, covariance
        weights = self._weights(places)
        # variance that the knots leave unexplained counts as extra noise (Snelson & Ghahramani's diagonal)
        unexplained = np.maximum(self._std**2 - np.einsum("nk,nk->n", weights, self._to_knots(places)), 0.0)
        noise = unexplained + self._settings.noise_std**2 + _NUGGET * self._std**2
        shared = covariance @ weights.T
        gain = cho_solve(cho_factor(weights @ shared + np.diag(noise), lower=True), shared.T).T
        mean = mean + gain @ (values - self._level - weights @ mean)
        covariance = covariance - gain @ shared.T
        # keeps the covariance symmetric over hundreds of rounds
        return mean, 0.5 * (covariance + covariance.T)

    def map(self, mean: Values) -> Float[np.ndarray, " m"]:
        """Expected values at ``points``: up to 512 of the field's evaluation points, evenly spread."""
        return self._level + self._to_points @ mean

    def score(self, mean: Values, round_number: int) -> float:
        """Score of a belief against the truth of a round, larger is better: minus root mean squared error, or F1."""
        expected, truth, level = self.map(mean), self._truth(round_number), self._settings.level
        if level is None:
            return -float(np.sqrt(np.mean((expected - truth) ** 2)))
        said, true = expected > level, truth > level
        total = int(said.sum() + true.sum())
        return 2.0 * int((said & true).sum()) / total if total else 1.0

    def _truth(self, round_number: int) -> Float[np.ndarray, " m"]:
        return self._field.value(self.points, round_number)

    @cached_property
    def _prior(self) -> Float[np.ndarray, "k k"]:
        return self._to_knots(self.knots) + _NUGGET * self._std**2 * np.eye(len(self.knots))

    @cached_property
    def _to_points(self) -> Float[np.ndarray, "m k"]:
        return self._weights(self.points)

    def _weights(self, places: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n k"]:
        """Weights of the knots' deviations in the expectation at places."""
        return cho_solve(self._factor, self._to_knots(places).T).T

    @cached_property
    def _factor(self) -> tuple[Float[np.ndarray, "k k"], bool]:
        return cho_factor(self._prior, lower=True)

    def _to_knots(self, places: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n k"]:
        return kernel_matrix("matern32", places, self.knots, np.full(2, self._lengthscale), self._std**2)


def _log_likelihood(places: Float[np.ndarray, "n 2"], values: Float[np.ndarray, " n"], lengthscale: float) -> float:
    covariance = kernel_matrix("matern32", places, places, np.full(2, lengthscale), 1.0) + 1e-4 * np.eye(len(places))
    factor, lower = cho_factor(covariance, lower=True)
    return float(-0.5 * values @ cho_solve((factor, lower), values) - np.log(np.diag(factor)).sum())
