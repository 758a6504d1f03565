"""The sensor field as a PettingZoo environment."""

from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from swarmbo.records import GroundTruth
from swarmbo_envs.fields.landscape import build_field_in_time
from swarmbo_envs.fields.settings import Task, require_table
from swarmbo_envs.radio import RadioLinks
from swarmbo_envs.saved_state import SavedState
from swarmbo_envs.sensor_field.stations import SensorFieldSettings, Stations
from swarmbo_envs.sensor_field.world import Episode, World, observation_ends, observe
from swarmbo_envs.simulated_world import Array, Infos, SimulatedWorld

_DEFAULT_FIELD: dict[str, Any] = {"gp": {"lengthscale_m": 600.0, "time": {"lengthscale_rounds": 12.0}}}
_MAX_SITES = 2048


class SensorField(SimulatedWorld[SensorFieldSettings, Episode], arguments=SensorFieldSettings, name="sensor_field_v0"):
    """Static sensors watch a field, each within its own box, and sample when a measurement justifies its energy.

    In each round every sensor names a location in its box, and chooses to sample or not. A sample takes energy, and
    energy has a price. Sensors exchange messages by radio within a range. The field may change from round to round.

    | | |
    |---|---|
    | Agents | ``sensor_0`` ... ``sensor_{n-1}``, fixed for the episode |
    | Action | Box (3,), float64, one per sensor: x to the east and y to the north of the location in m, within \
    reach, and a number from 0 to 1: the sensor samples from 0.5 on |
    | Observation | Box (5,), float64: x and y of the location (m), last good measurement (unit of the field; the \
    lower bound while there is none; clipped into the box), share of the battery left, share of rounds left |
    | State | the observations of all sensors, joined: Box (5 n,) |
    | Reward | with the task ``peak`` the own measurement (0 if none succeeded), with ``map`` an equal share of the \
    drop in map error, with ``level`` one of the gain in F1; minus the own cost |
    | End | all agents are truncated after ``max_cycles`` rounds |

    ``infos[agent]``, from ``reset`` too (every sensor samples its own position at no cost):

    | key | type | meaning |
    |---|---|---|
    | ``measurement`` | float | noisy value, unit of the field; missing if it failed or the sensor did not sample |
    | ``location`` | array (2,) | location, m; the previous one if the sensor did not sample |
    | ``sampled`` | bool | True if the sensor sampled; False without enough energy left |
    | ``energy_j`` | float | used in this round, J |
    | ``left_j`` | float | left in the battery, J; infinite without |
    | ``cost`` | float | ``energy_price`` times the energy, unit of the field |

    The task is the aim of the team: ``peak`` the maximum, ``map`` the whole field, ``level`` the region above a level.
    It decides rewards and ``ground_truth`` only.

    The value of one sample for a map depends on the others. So for ``map`` and ``level`` the world keeps its own
    belief, with a fixed kernel, of all samples so far (``Scorer``). The reward is the improvement of its map. It is
    measured by root mean squared error, in the unit of the field, or by the F1 score of the region above the level.
    Rewards of all sensors and rounds add up to the final score minus that at reset, minus all costs. If the field
    changes, a round without samples makes the map worse, and rewards are then negative.

    The key of the ``field`` table selects the kind of field; time counts in rounds:

    * ``{gp = {kernel, lengthscale_m, std, mean, seed, size_m, time = {lengthscale_rounds, kernel}}}``: a draw from a
      Gaussian process prior over space, or with ``time`` over space and time (the kernels multiply).
    * ``{plume = {size_m, sources, peak, unit, wind_m_per_round, gusts, radius_m, spread_m2_per_round, decay_rounds,
      seed}}``: puffs emitted by sources and carried off by a turning wind.
    * ``{csv = PATH, x = COLUMN, y = COLUMN, value = COLUMN, unit, sites = "only" | "interpolated", time = COLUMN,
      time_step}``: points measured once or many times. With ``only`` a sensor's locations are the sites in its box; it
      samples the one nearest to the requested location, any number of times.
    * ``{survey = "oxford-ph", sites}``: measurements shipped with swarmbo, used as a CSV.
    * ``{elevation = "jacksboro" | "topobathy", window}``: a real landscape.

    The field is the same in every episode; noise and failures come from streams named by seed, sensor and round.

    Args:
        sensors: Number of sensors, 1 to 1024.
        field: Table as above. Default: a draw that changes within about 12 rounds.
        task: ``peak``, ``map`` or ``level``.
        level: Watched level, in the unit of the field; required by the task ``level``, and refused otherwise.
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

    Version history:
        * v0: first version (0.1.0).
    """

    _action_in_words, _states = "a spot and a wish [x, y, 0 to 1]", ("sensor-field", 2)

    def __init__(self, **arguments: Any) -> None:
        if arguments.get("field") is None:
            arguments["field"] = _DEFAULT_FIELD
        settings = self._settings_of(require_table(arguments))
        super().__init__(settings, [f"sensor_{i}" for i in range(settings.sensors)])
        self.field = build_field_in_time(settings.field, _MAX_SITES)
        self.stations = Stations(settings, self.field.first)
        self._world = World(settings, self.field, self.stations, self.possible_agents)
        self._links = RadioLinks(self.possible_agents)
        seen, reach = observation_ends(self._world), zip(self.stations.low, self.stations.high, strict=True)
        self._set_spaces(
            {
                agent: (np.append(low, 0.0), np.append(high, 1.0))
                for agent, (low, high) in zip(self.possible_agents, reach, strict=True)
            },
            dict.fromkeys(self.possible_agents, seen),
            (np.tile(seen[0], settings.sensors), np.tile(seen[1], settings.sensors)),
        )

    @property
    def task(self) -> Task:
        """Aim of the team: ``peak``, ``map`` or ``level``."""
        return self.settings.task

    @property
    def level(self) -> float | None:
        """Watched level; None for other tasks."""
        return self.settings.level

    @property
    def score(self) -> float:
        """Score of the belief behind the rewards, larger is better: minus its map error, or its F1; 0 for the task
        ``peak``.

        A round's rewards of all sensors plus costs equal its increase.
        """
        return self._current().score

    def _settings_changed(self) -> None:
        self._world = World(self.settings, self.field, self.stations, self.possible_agents)

    def _begin(self, seed: int, number: int) -> Episode:
        return self._world.begin(seed, number)

    def _first_infos(self, episode: Episode) -> Infos:
        """Sample at every sensor's position, at no cost."""
        infos = {agent: self._world.measure(episode, sensor) for sensor, agent in enumerate(self.agents)}
        self._world.learn(episode, infos)
        return infos

    def _play(self, episode: Episode, asked: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        infos = {agent: self._world.look(episode, sensor, asked[agent]) for sensor, agent in enumerate(asked)}
        return infos, self._world.rewards(infos, self._world.learn(episode, infos))

    def candidates(self, agent: str) -> Float[np.ndarray, "k 2"]:
        """Locations that an agent can sample in this round; empty once its energy does not suffice.

        Raises:
            ConfigError: If there is no such agent.
        """
        episode, sensor = self._current(), self._number_of(agent)
        return self.stations.spots[sensor][: None if self._world.can_sample(episode, sensor) else 0]

    def sites(self) -> Float[np.ndarray, "k 2"]:
        """All locations offered to any sensor, without duplicates."""
        return np.unique(np.concatenate(self.stations.spots), axis=0)

    def prices(self) -> dict[str, float]:
        """Price of a sample for each agent, in the unit of the field; abstaining costs nothing."""
        return dict.fromkeys(self.possible_agents, self._world.price)

    def standpoints(self) -> dict[str, Float[np.ndarray, " 2"]]:
        """Fixed positions of the agents."""
        return dict(zip(self.possible_agents, self.stations.places, strict=True))

    def interaction_graph(self) -> "nx.Graph[str]":
        """Links of agents in radio range, frozen; edges carry their ``distance`` in metres."""
        return self._links.at(self.stations.places, self.stations.radio_range_m)

    def ground_truth(self) -> GroundTruth:
        """Noise-free field of the present round, and of other rounds by its ``at``; for metrics and figures."""
        return self._truth(self._current().round)

    def _description(self) -> dict[str, Any]:
        return self._world.description()

    def _read(self, saved: SavedState) -> Episode:
        world, n = self._world, len(self.possible_agents)
        k = 0 if world.scorer is None else len(world.scorer.knots)
        spots, spent = saved.array("spots", "f", (n, 2)), saved.array("spent_j", "f", (n,))
        saved.hold(bool(np.isfinite(spots).all()), "spots that are finite")
        saved.hold(bool((np.isfinite(spent) & (spent >= 0.0)).all()), "'spent_j' of 0 or more")
        return Episode(
            **saved.common,
            spots=spots,
            last=saved.array("last", "f", (n,)),
            spent_j=spent,
            sampled=saved.array("sampled", "b", (n,)),
            failed=saved.array("failed", "b", (n,)),
            knots_mean=saved.array("knots_mean", "f", (k,)),
            knots_covariance=saved.array("knots_covariance", "f", (k, k)),
            score=float(saved.array("score", "f", ())),
        )

    def _picture(self) -> NDArray[np.uint8]:
        from swarmbo_envs.sensor_field.rendering import frame  # figures take a second to import

        return frame(self._world, self._current(), self.interaction_graph(), self.max_cycles)

    def _truth(self, round_number: int) -> GroundTruth:
        at_round = self._truth if self.field.moves else None
        return self.field.at(round_number).truth(self.settings.task, self.settings.level, at_round)

    def _text(self) -> str:
        from swarmbo_envs.sensor_field.world import text_table

        return text_table(self._world, self._current(), self.max_cycles)

    def _observe(self, episode: Episode) -> dict[str, Array]:
        seen = observe(episode, self._world, self._observation_spaces[self.possible_agents[0]])
        return dict(zip(self.possible_agents, seen, strict=True))
