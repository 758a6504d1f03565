"""Rules, episode state and observations of the sensor field."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Float

from swarmbo.boundary import rng
from swarmbo_envs.fields.field import FieldInTime, seen_values
from swarmbo_envs.fields.settings import plain_settings
from swarmbo_envs.saved_state import WorldEpisode
from swarmbo_envs.sensor_field.scorer import Scorer
from swarmbo_envs.sensor_field.stations import SensorFieldSettings, Stations

_LAST = 2  # index of the last good measurement


@dataclass
class Episode(WorldEpisode):
    """State of an episode, in addition to the fields of all worlds.

    Args:
        spots: Location that each sensor is pointed at, m.
        last: Last good measurement of each sensor; NaN while there is none.
        sampled: Mask of sensors that sampled in the last round.
        failed: Mask of samples that failed.
        knots_mean: Belief behind the rewards, see ``Scorer``; empty with the task ``peak``.
        score: Quality of that belief; 0 with the task ``peak``.
    """

    spots: Float[np.ndarray, "n 2"]
    last: Float[np.ndarray, " n"]
    spent_j: Float[np.ndarray, " n"]
    sampled: Bool[np.ndarray, " n"]
    failed: Bool[np.ndarray, " n"]
    knots_mean: Float[np.ndarray, " k"]
    knots_covariance: Float[np.ndarray, "k k"]
    score: float


class World:
    """Immutable rules of the sensor field; all changing state is in the episode that methods receive."""

    def __init__(
        self, settings: SensorFieldSettings, field: FieldInTime, stations: Stations, agents: list[str]
    ) -> None:
        self.settings, self.field, self.stations, self.agents = settings, field, stations, agents
        self.scorer = None if settings.task == "peak" else Scorer(settings, field)

    def description(self) -> dict[str, Any]:
        """Identity of this world as plain JSON: all settings but the render mode, data files by their content."""
        return plain_settings(self.settings, self.field.first.digest, moving=True)

    def begin(self, seed: int, number: int) -> Episode:
        """Begin an episode with every sensor pointed at its own position and nothing measured."""
        n = len(self.agents)
        own = np.array([self.at_home(sensor) for sensor in range(n)])
        nobody = np.zeros(n, dtype=bool)
        mean, covariance = (np.zeros(0), np.zeros((0, 0))) if self.scorer is None else self.scorer.begin()
        nothing = np.full(n, np.nan)
        return Episode(
            seed, number, 0, True, own, nothing, np.zeros(n), nobody, nobody.copy(), mean, covariance, score=0.0
        )

    def at_home(self, sensor: int) -> Float[np.ndarray, " 2"]:
        """First location of a sensor: its position, or the nearest of its list."""
        place = self.stations.places[sensor]
        return self.stations.nearest_spot(sensor, place) if self.field.first.sites_only else place

    def left_j(self, episode: Episode) -> Float[np.ndarray, " n"]:
        """Energy that each sensor has left; infinite without batteries."""
        return (np.inf if self.settings.battery_j is None else self.settings.battery_j) - episode.spent_j

    def can_sample(self, episode: Episode, sensor: int) -> bool:
        """True if a sensor has energy for one more sample."""
        return bool(self.left_j(episode)[sensor] >= self.settings.sample_energy_j * (1.0 - 1e-12))

    @property
    def price(self) -> float:
        """Price of a sample, in the unit of the field."""
        return self.settings.energy_price * self.settings.sample_energy_j

    def look(self, episode: Episode, sensor: int, action: Float[np.ndarray, " 3"]) -> dict[str, Any]:
        """Play one sensor's round into the episode and return its info.

        ``action`` is a location in its box, and a number that asks for a sample from 0.5 on.
        """
        if action[2] < 0.5 or not self.can_sample(episode, sensor):
            episode.sampled[sensor] = episode.failed[sensor] = False
            return self._info(episode, sensor, None, 0.0)
        only_sites = self.field.first.sites_only
        spot = self.stations.nearest_spot(sensor, action[:2]) if only_sites else action[:2]
        episode.spots[sensor] = spot
        episode.spent_j[sensor] += self.settings.sample_energy_j
        return self.measure(episode, sensor, self.settings.sample_energy_j)

    def measure(self, episode: Episode, sensor: int, energy_j: float = 0.0) -> dict[str, Any]:
        """Measure with one sensor at its location, updating the episode; return its info. Samples at reset are free."""
        settings, spot = self.settings, episode.spots[sensor]
        where = {"agent": self.agents[sensor], "round": episode.round, "episode": episode.number}
        failed = rng.stream(episode.seed, "sensor_field", "failure", **where).random() < settings.failure_rate
        measurement = None
        if not failed:
            noise = settings.noise_std * rng.stream(episode.seed, "sensor_field", "noise", **where).standard_normal()
            measurement = float(self.field.value(spot[None], episode.round)[0] + noise)
            episode.last[sensor] = measurement
        episode.sampled[sensor], episode.failed[sensor] = True, failed
        return self._info(episode, sensor, measurement, energy_j)

    def learn(self, episode: Episode, infos: dict[str, dict[str, Any]]) -> float:
        """Update the world's own belief with a round's samples; return the increase of its score (0 with the task
        ``peak``).
        """
        if self.scorer is None:
            return 0.0
        mean, covariance = episode.knots_mean, episode.knots_covariance
        if episode.round:
            mean, covariance = self.scorer.after_a_round(mean, covariance)
        made = [info for info in infos.values() if "measurement" in info]
        places = np.array([info["location"] for info in made]).reshape(-1, 2)
        values = np.array([info["measurement"] for info in made])
        episode.knots_mean, episode.knots_covariance = self.scorer.learned(mean, covariance, places, values)
        before, episode.score = episode.score, self.scorer.score(episode.knots_mean, episode.round)
        return episode.score - before

    def rewards(self, infos: dict[str, dict[str, Any]], gain: float) -> dict[str, float]:
        """Reward of each sensor for a round, see ``SensorField``; ``gain`` of the score is shared equally."""
        share = gain / len(infos)
        if self.scorer is None:
            return {agent: info.get("measurement", 0.0) - info["cost"] for agent, info in infos.items()}
        return {agent: share - info["cost"] for agent, info in infos.items()}

    def _info(self, episode: Episode, sensor: int, measurement: float | None, energy_j: float) -> dict[str, Any]:
        measured = {} if measurement is None else {"measurement": measurement}
        return {
            **measured,
            "location": episode.spots[sensor].copy(),
            "sampled": bool(episode.sampled[sensor]),
            "energy_j": energy_j,
            "left_j": float(self.left_j(episode)[sensor]),
            "cost": self.settings.energy_price * energy_j,
        }


def observation_ends(world: World) -> tuple[Float[np.ndarray, " 5"], Float[np.ndarray, " 5"]]:
    """Least and largest x, y, last good measurement, share of the battery and share of rounds left."""
    field, (least, most) = world.field, seen_values(world.field.minimum, world.field.maximum, world.settings.noise_std)
    return np.array([*field.first.low, least, 0.0, 0.0]), np.array([*field.first.high, most, 1.0, 1.0])


def observe(episode: Episode, world: World, box: gymnasium.spaces.Box) -> Float[np.ndarray, "n 5"]:
    """Observations of all sensors, clipped into the box; the lower bound if nothing was measured."""
    settings, n = world.settings, len(world.agents)
    last = np.where(np.isnan(episode.last), box.low[_LAST], episode.last)
    battery = np.ones(n) if not settings.battery_j else 1.0 - episode.spent_j / settings.battery_j
    if settings.battery_j == 0:
        battery = np.zeros(n)
    left = np.full(n, episode.share_left(settings.max_cycles))
    return np.clip(np.column_stack([episode.spots, last, battery, left]), box.low, box.high)


def text_table(world: World, episode: Episode, max_cycles: int) -> str:
    """Text with a line per sensor: location, measurement and energy spent."""
    field = world.field.first
    lines = [f"{field.name}: round {episode.round} of {max_cycles}, {int(episode.sampled.sum())} sampled"]
    for sensor, agent in enumerate(world.agents):
        seen = "saved its energy"
        if episode.failed[sensor]:
            seen = "failed"
        elif episode.sampled[sensor]:
            seen = f"measured {episode.last[sensor]:.4g} {field.unit}".rstrip()
        x, y = episode.spots[sensor]
        lines.append(f"{agent}: x {x:.1f} m, y {y:.1f} m, {seen}, {np.round(episode.spent_j[sensor], 9):g} J spent")
    return "\n".join(lines) + "\n"
