"""The sensor field as a PettingZoo environment, and its rules."""

from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from swarmbo.records import GroundTruth
from swarmbo_envs.fields.landscape import build_field
from swarmbo_envs.fields.settings import require_table
from swarmbo_envs.fields.world import FieldWorld, RadioLinks
from swarmbo_envs.saved_state import SavedState
from swarmbo_envs.sensor_field.stations import Episode, SensorFieldSettings, Stations
from swarmbo_envs.shared import Place, Places, Pose
from swarmbo_envs.simulated_world import Array, Infos

_DEFAULT_FIELD: dict[str, Any] = {"gp": {"lengthscale_m": 600.0, "time": {"lengthscale_rounds": 12.0}}}
_MAX_SITES = 2048


class SensorField(FieldWorld[SensorFieldSettings, Episode], arguments=SensorFieldSettings, name="sensor_field_v0"):
    """Static sensors watch a field, each within its own box, and sample when a measurement justifies its energy.

    In each round, every sensor names a location in its box, and chooses to sample or not. A sample takes energy, and
    energy has a price. Sensors exchange messages by radio within a range. The field may change from round to round.

    | | |
    |---|---|
    | Agents | ``sensor_0`` ... ``sensor_{n-1}``, fixed for the episode |
    | Action | Box (3,), float64, one per sensor: x to the east and y to the north of the location in m, within \
    reach, and a number from 0 to 1: the sensor samples at 0.5 or more |
    | Observation | Box (5,), float64: x and y of the location (m), last good measurement (unit of the field; the \
    lower bound while there is none; clipped into the box), share of the battery left, share of rounds left |
    | State | the observations of all sensors, joined: Box (5 n,) |
    | Reward | an equal share of the increase of the task's score, less the agent's cost; see ``reward`` |
    | End | all agents are truncated after ``max_cycles`` rounds |

    ``infos[agent]`` after ``reset`` (every sensor samples its own position at no cost) and ``step``:

    | key | type | meaning |
    |---|---|---|
    | ``measurement`` | float | noisy value, unit of the field; missing if it failed or the sensor did not sample |
    | ``location`` | array (2,) | location, m; the previous one if the sensor did not sample |
    | ``sampled`` | bool | True if the sensor sampled; False without enough energy left |
    | ``energy_j`` | float | used in this round, J |
    | ``left_j`` | float | left in the battery, J; infinite without ``battery_j`` |
    | ``cost`` | float | ``energy_price`` times the energy, unit of the field |

    The task is the aim of the team: ``peak`` the maximum, ``map`` the whole field, ``level`` the region above a level.
    It decides rewards and ``ground_truth`` only.

    The value of one sample for a map depends on the others. So for ``map`` and ``level`` the world keeps its own
    belief, with a fixed kernel, from all samples so far (``Scorer``). The reward is the improvement of this belief's
    map. It is measured by root mean squared error, in the unit of the field, or by the F1 score of the region above the
    level. Rewards of all sensors and rounds add up to the final score minus that at reset, minus all costs. If the
    field changes, a round without samples makes the map worse, and rewards are then negative.

    The key of the ``field`` table selects the kind of field; time counts in rounds. ``swarmbo explain
    environment.field.plume`` and the like explain its settings:

    * ``gp``: a draw from a Gaussian process prior over space, or with ``time`` over space and time (kernels multiply).
    * ``plume``: puffs emitted by sources and carried off by a turning wind.
    * ``csv``: points measured once or many times. With ``sites = "only"``, a sensor's locations are the sites in its
      box; it samples the one nearest to the requested location, any number of times.
    * ``survey``: measurements shipped with swarmbo, used as a CSV. ``elevation``: a real landscape. ``raster``: a file.

    The field is the same in every episode, unless ``worlds`` are drawn. Noise and failures come from random streams,
    one for each seed, sensor and round.

    Args:
        sensors: Number of sensors, 1 to 1024.
        field: Table whose key is the kind of field: ``gp``, ``plume``, ``csv``, ``raster``, ``survey`` or
            ``elevation``. Default: a draw that changes within about 12 rounds.
        task: ``peak``, ``map`` or ``level``.
        level: Watched level, in the unit of the field; required by the task ``level``, and refused otherwise.
        reward: ``task``: an equal share of the increase of ``score``. ``team``: an equal share of the sum of all
            measurements. ``own``: the agent's measurement, or 0 if there is none. The agent's cost is subtracted.
        worlds: ``fixed``: one for all episodes. ``drawn``: each reset draws another ``gp`` or ``plume`` of the same
            settings, with another seed; ``reset(options={"world": number})`` picks one.
        places: One [x, y] in m per sensor, all different. Default: spread so that each has an equal share of the map.
        place_seed: Seed of the default positions, >= 0.
        reach_m: Half the side of a sensor's box, > 0. Default: the smallest with which the boxes cover the map. A
            sensor without a site in its box has the nearest one.
        spots: Largest number of candidate locations of a sensor, 1 to 1024; if only sites can be measured, all sites in
            its box are candidates.
        radio_range_m: Largest distance at which two sensors can exchange messages, > 0. Default: 1.05 times the least
            range with which relays connect all sensors.
        noise_std: Standard deviation of the measurement noise, unit of the field, 0 to 1e12.
        failure_rate: Probability that a measurement fails, 0 to 1; a failed sample takes its energy too.
        sample_energy_j: Energy of a sample, 0 to 1e12 J.
        energy_price: Cost of a joule, unit of the field, 0 to 1e12.
        battery_j: Energy that a sensor begins with, >= 0 J. Default: unlimited.
        max_cycles: Rounds of an episode, >= 1.
        render_mode: ``rgb_array`` (picture), ``ansi`` (text), ``human`` (text to the terminal after every round), None.

    Raises:
        ConfigError: If an argument is wrong; the message has its path, as in ``$.field.plume.gusts``.

    Example:
        >>> from swarmbo_envs import sensor_field_v0
        >>> env = sensor_field_v0.parallel_env(sensors=3, sample_energy_j=2.0, energy_price=0.05, max_cycles=2)
        >>> observations, infos = env.reset(seed=0)
        >>> while env.agents:
        ...     actions = {agent: [*env.candidates(agent)[0], agent != "sensor_1"] for agent in env.agents}
        ...     observations, rewards, terminations, truncations, infos = env.step(actions)
        >>> infos["sensor_0"]["cost"], infos["sensor_1"]["sampled"], round(rewards["sensor_1"] - rewards["sensor_0"], 9)
        (0.1, False, 0.1)
    """

    _action_in_words, _state_format = "[x, y, sample: 0 to 1]", ("sensor-field", 2)

    def __init__(self, **arguments: Any) -> None:
        if arguments.get("field") is None:
            arguments["field"] = _DEFAULT_FIELD
        settings = self._settings_of(require_table(arguments))
        super().__init__(settings, [f"sensor_{i}" for i in range(settings.sensors)])
        field = build_field(settings.field, _MAX_SITES, moving=True)
        self._set_field(field, settings.noise_std)
        self.stations = Stations(settings, field)
        self._links = RadioLinks(self.possible_agents)
        least, most = self._shown_range(settings.noise_std)
        # x, y, last good measurement, share of the battery, share of rounds left
        seen = np.array([*field.low, least, 0.0, 0.0]), np.array([*field.high, most, 1.0, 1.0])
        lows, highs = self.stations.low, self.stations.high
        reach = [(np.append(low, 0.0), np.append(high, 1.0)) for low, high in zip(lows, highs, strict=True)]
        self._set_like_spaces(dict(zip(self.possible_agents, reach, strict=True)), seen)

    def _draw(self, number: int) -> None:
        self._set_field(build_field(self._table_with_seed(number), _MAX_SITES, moving=True), self.settings.noise_std)

    def _begin(self, seed: int, number: int) -> Episode:
        n, places = len(self.possible_agents), self.stations.places.copy()
        if self.field.sites_only:
            places = np.array([self.stations.nearest_spot(sensor, place) for sensor, place in enumerate(places)])
        sampled, failed = np.zeros((2, n), dtype=bool)
        first = seed, number, 0, True, *self._initial_score()
        return Episode(*first, places, np.full(n, np.nan), np.zeros(n), sampled, failed)

    def _initial_infos(self, episode: Episode) -> Infos:
        infos = {agent: self._measure(episode, sensor, 0.0) for sensor, agent in enumerate(self.agents)}
        self._score_gain(episode, infos)
        return infos

    def _play(self, episode: Episode, actions: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        infos = {agent: self._play_sensor(episode, sensor, actions[agent]) for sensor, agent in enumerate(actions)}
        return infos, self._rewards(infos, self._score_gain(episode, infos))

    def _play_sensor(self, episode: Episode, sensor: int, action: Pose) -> dict[str, Any]:
        """Play one sensor's round: ``action`` has a location, and a number that asks for a sample if it is >= 0.5."""
        if action[2] < 0.5 or not self._can_sample(episode, sensor):
            episode.sampled[sensor] = episode.failed[sensor] = False
            return self._info(episode, sensor, None, 0.0)
        only_sites = self.field.sites_only
        episode.spots[sensor] = self.stations.nearest_spot(sensor, action[:2]) if only_sites else action[:2]
        episode.spent_j[sensor] += self.settings.sample_energy_j
        return self._measure(episode, sensor, self.settings.sample_energy_j)

    def _measure(self, episode: Episode, sensor: int, energy_j: float) -> dict[str, Any]:
        noise_std, rate, agent = self.settings.noise_std, self.settings.failure_rate, self.possible_agents[sensor]
        measurement = self.field.measure(episode, episode.spots[sensor], noise_std, rate, "sensor_field", agent=agent)
        if measurement is not None:
            episode.last[sensor] = measurement
        episode.sampled[sensor], episode.failed[sensor] = True, measurement is None
        return self._info(episode, sensor, measurement, energy_j)

    def _info(self, episode: Episode, sensor: int, measurement: float | None, energy_j: float) -> dict[str, Any]:
        info: dict[str, Any] = {} if measurement is None else {"measurement": measurement}
        info |= {"location": episode.spots[sensor].copy(), "sampled": bool(episode.sampled[sensor])}
        used = {"energy_j": energy_j, "left_j": self._left_j(episode, sensor)}
        return info | used | {"cost": self.settings.energy_price * energy_j}

    def _left_j(self, episode: Episode, sensor: int) -> float:
        return float((np.inf if self.settings.battery_j is None else self.settings.battery_j) - episode.spent_j[sensor])

    def _can_sample(self, episode: Episode, sensor: int) -> bool:
        # sums of energies may exceed a battery by rounding
        return self._left_j(episode, sensor) >= self.settings.sample_energy_j * (1.0 - 1e-12)

    def _rows(self, episode: Episode) -> Array:
        n, battery = len(self.possible_agents), self.settings.battery_j
        # a battery of 0 J is empty from the start
        charge = np.ones(n) if battery is None else 1.0 - episode.spent_j / battery if battery else np.zeros(n)
        return np.column_stack([episode.spots, episode.last, charge, np.full(n, episode.share_left(self.max_cycles))])

    def candidates(self, agent: str) -> Places:
        """Locations that an agent can sample in this round; empty without enough energy for a sample.

        Raises:
            ConfigError: If there is no such agent.
        """
        episode, sensor = self._current(), self._number_of(agent)
        return self.stations.spots[sensor][: None if self._can_sample(episode, sensor) else 0].copy()

    def sites(self) -> Places:
        """All locations offered to any sensor, without duplicates."""
        return np.unique(np.concatenate(self.stations.spots), axis=0)

    def prices(self) -> dict[str, float]:
        """Price of a sample for each agent, in the unit of the field; abstaining costs nothing."""
        return dict.fromkeys(self.possible_agents, self.settings.energy_price * self.settings.sample_energy_j)

    def standpoints(self) -> dict[str, Place]:
        """Fixed positions of the agents."""
        return dict(zip(self.possible_agents, self.stations.places.copy(), strict=True))

    def interaction_graph(self) -> "nx.Graph[str]":
        """Links of agents in radio range, frozen; edges carry their ``distance`` in metres."""
        return self._links.at(self.stations.places, self.stations.radio_range_m)

    def ground_truth(self) -> GroundTruth:
        """Noise-free field of the current round, and of other rounds by its method ``at``; for metrics and figures."""
        return self._truth(self._current().round)

    def _truth(self, round_number: int) -> GroundTruth:
        at_round = self._truth if self.field.change is not None else None
        return self.field.at(round_number).truth(self.settings.task, self.settings.level, at_round)

    def _read(self, saved: SavedState) -> Episode:
        episode = super()._read(saved)
        saved.require_belief(episode.score, episode.knots_mean, episode.knots_covariance)
        saved.require(bool(np.isfinite(episode.spots).all()), "spots that are finite")
        saved.require(bool((np.isfinite(episode.spent_j) & (episode.spent_j >= 0.0)).all()), "'spent_j' of 0 or more")
        return episode

    def _picture(self) -> NDArray[np.uint8]:
        from swarmbo_envs.pictures import sensor_frame  # figures take a second to import

        return sensor_frame(self.field, self.stations, self._current(), self.interaction_graph(), self.max_cycles)

    def _text(self) -> str:
        episode, field = self._current(), self.field
        lines = [f"{field.name}: round {episode.round} of {self.max_cycles}, {int(episode.sampled.sum())} sampled"]
        for sensor, agent in enumerate(self.possible_agents):
            seen = "saved its energy"
            if episode.failed[sensor]:
                seen = "failed"
            elif episode.sampled[sensor]:
                seen = f"measured {episode.last[sensor]:.4g} {field.unit}".rstrip()
            (x, y), spent = episode.spots[sensor], np.round(episode.spent_j[sensor], 9)
            lines.append(f"{agent}: x {x:.1f} m, y {y:.1f} m, {seen}, {spent:g} J spent")
        return "\n".join(lines) + "\n"
