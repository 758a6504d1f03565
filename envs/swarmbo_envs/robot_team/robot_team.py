"""The robot team as a PettingZoo environment."""

from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from swarmbo.records import GroundTruth
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.landscape import build_field
from swarmbo_envs.fields.settings import Task, require_table
from swarmbo_envs.ground import Ground
from swarmbo_envs.robot_team.episode import Episode, observation_ends, observe
from swarmbo_envs.robot_team.laid_out import laid_out
from swarmbo_envs.robot_team.settings import RobotTeamSettings
from swarmbo_envs.robot_team.world import World
from swarmbo_envs.saved_state import SavedState
from swarmbo_envs.simulated_world import Array, Infos, SimulatedWorld


class RobotTeam(SimulatedWorld[RobotTeamSettings, Episode], arguments=RobotTeamSettings, name="robot_team_v0"):
    """Robots drive over a map and measure a field; together they search for its maximum, map it, or watch a level.

    Every robot is a unicycle with bounds on speed and turn rate. In each round every agent names a location; its robot
    drives there on the quickest path it knows and measures. A robot that runs out of time measures where it is. Robots
    exchange messages by radio within a range.

    | | |
    |---|---|
    | Agents | ``robot_0`` ... ``robot_{n-1}``, fixed for the episode |
    | Action | location to measure next: Box (2,), x to the east and y to the north in m, over the map, float64 |
    | Observation | Box (5,), float64: x (m), y (m), heading (rad from east, anticlockwise, -pi to pi), last good \
measurement (unit of the field; the lower bound while there is none; clipped into the box), share of rounds left |
    | State | the observations of all robots, joined: Box (5 n,) |
    | Reward | own measurement less own cost; less the cost alone if the measurement failed |
    | End | all agents are truncated after ``max_cycles`` rounds |

    ``infos[agent]``, from ``reset`` too (every robot measures its start at no cost):

    | key | type | meaning |
    |---|---|---|
    | ``measurement`` | float | noisy value, unit of the field; missing if it failed |
    | ``location`` | array (2,) | location of the measurement, m |
    | ``distance`` | float | driven this round, m |
    | ``cost`` | float | ``travel_cost`` times distance, unit of the field |
    | ``reached`` | bool | True if the robot reached the requested location (``sites = "only"``: the unmeasured \
    site nearest to it) |
    | ``interpolated`` | bool | True if the field between measured points is interpolated |

    The key of the ``field`` table selects the kind of field:

    * ``{elevation = "jacksboro" | "topobathy", window = [row, column, rows, columns]}``: a real landscape, in metres
      from the window's south-west corner, bilinear between its cells. The default is a window of ``jacksboro``.
    * ``{csv = PATH, x = COLUMN, y = COLUMN, value = COLUMN, unit = "m", sites = "only" | "interpolated"}``: measured
      points; coordinates are taken as metres. With ``only`` (the default) a robot samples the unmeasured site nearest
      to the requested location among those within reach in the round. Robots choose in the order of their numbers, and
      no site is measured twice. A robot without a site within reach drives towards the nearest and measures nothing. A
      site stays open if its measurement failed. With ``interpolated`` the field between the sites is kriged; no two
      sites may then be nearer than a thousandth of the median distance between neighbours.
    * ``{raster = PATH, band = 1, value = "elevation", unit = "m"}``: a GeoTIFF (extra ``geo``), or a ``.npy`` array
      with the size of its cells, ``cell_m``; see ``RasterFieldSettings``. Cells without a value are no-go: robots drive
      round them, as round the no-go regions of version 1.
    * ``{gp = {kernel, lengthscale_m, std, mean, seed, size_m}}``: a draw from a Gaussian process prior.
    * ``{survey = "oxford-ph", sites = "only" | "interpolated"}``: measurements shipped with swarmbo, used as a CSV.

    Starts, noise and failures come from separate random streams, named by seed, robot and round: methods compared with
    the same seed meet equal randomness at any locations.

    Args:
        robots: Number of robots, 1 to 256.
        field: Table as above; None for the default landscape.
        task: ``peak``, ``map`` or ``level``: the aim of the team. It decides ``ground_truth`` and so the scores of
            runs; rewards are the same.
        level: Watched level, in the unit of the field; required by the task ``level``, and refused otherwise.
        starts: One [x, y] in m per robot, all different. Default: drawn at ``reset``, separated from each other. With
            ``sites = "only"`` a robot starts at the free site nearest to its start.
        speed_m_s: Largest speed, 1e-6 to 1e12 m/s.
        turn_rate_rad_s: Largest turn rate, 1e-6 to 1e6 rad/s.
        round_time_s: Time to drive in a round, 1e-6 to 1e12 s. Default: enough to turn about and cover 15 % of the
            map's longer side; with ``sites = "only"`` at least 1.5 times the largest distance between neighbouring
            sites.
        radio_range_m: Largest distance at which two robots can exchange messages, > 0. Default: half the map's
            diagonal.
        noise_std: Standard deviation of the measurement noise, unit of the field, 0 to 1e12.
        failure_rate: Probability that a measurement fails, 0 to 1.
        travel_cost: Cost per metre driven, unit of the field, 0 to 1e12.
        max_cycles: Rounds of an episode, >= 1.
        max_sites: Largest number of candidate sites on a map that can be measured everywhere, 4 to 1000000. Candidates
            are a lattice. On an interpolated map they are the measured sites, thinned evenly, if the lattice covers at
            most half as many of them.
        render_mode: ``rgb_array`` (picture), ``ansi`` (text), ``human`` (text to the terminal after every round), None.

    Raises:
        ConfigError: If an argument is wrong; the message has its path, as in ``$.field.window``.

    Example:
        >>> from swarmbo_envs import robot_team_v0
        >>> env = robot_team_v0.parallel_env(robots=2, noise_std=1.0, max_cycles=3)
        >>> observations, infos = env.reset(seed=0)
        >>> while env.agents:
        ...     actions = {agent: env.candidates(agent)[0] for agent in env.agents}
        ...     observations, rewards, terminations, truncations, infos = env.step(actions)
        >>> infos["robot_1"]["reached"]
        True

    Version history:
        * v0: first version (0.1.0).
    """

    _action_in_words, _states = "[x, y]", ("robot-team", 2)

    def __init__(self, **arguments: Any) -> None:
        settings = self._settings_of(require_table(arguments))
        field_of_it = build_field(settings.field, settings.max_sites)
        self._set_up(settings, *laid_out(field_of_it, {"starts": settings.starts}))

    def _set_up(self, settings: RobotTeamSettings, field: Field, ground: Ground) -> None:
        """Build the world from the settings of a version, the measurable field, and the ground that robots may drive
        on.
        """
        super().__init__(settings, [f"robot_{i}" for i in range(settings.robots)])
        self.field, self.ground = field, ground
        self._world = World(settings, field, self.possible_agents, ground)
        seen = observation_ends(field, max(self._world.rules.noise_stds), self._world.rules.batteries is not None)
        self._set_spaces(
            dict.fromkeys(self.possible_agents, (field.low, field.high)),
            dict.fromkeys(self.possible_agents, seen),
            (np.tile(seen[0], settings.robots), np.tile(seen[1], settings.robots)),
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
    def round_time_s(self) -> float:
        """Time to drive in a round, s."""
        return self._world.round_time_s

    @property
    def radio_range_m(self) -> float:
        """Largest distance at which any two robots can exchange messages, m."""
        return max(self._world.radio_ranges_m)

    def _settings_changed(self) -> None:
        self._world = World(self.settings, self.field, self.possible_agents, self.ground)

    def _begin(self, seed: int, number: int) -> Episode:
        return self._world.begin(seed, number)

    def _first_infos(self, episode: Episode) -> Infos:
        """Measure at every robot's start."""
        return {agent: self._world.measure(episode, robot) for robot, agent in enumerate(self.agents)}

    def _play(self, episode: Episode, asked: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        """Drive every robot towards its location for one round, and measure."""
        infos = dict(zip(asked, self._world.drive(episode, list(asked.values())), strict=True))
        return infos, {agent: info.get("measurement", 0.0) - info["cost"] for agent, info in infos.items()}

    def candidates(self, agent: str) -> Float[np.ndarray, "k 2"]:
        """Sites that an agent can reach and measure this round, in the order of ``field.sites``; may be empty.

        Raises:
            ConfigError: If there is no such agent.
        """
        return self._world.candidates(self._current(), self._number_of(agent))

    def travel_rounds(
        self, agent: str, origins: Float[np.ndarray, "n 2"], places: Float[np.ndarray, "m 2"]
    ) -> Int[np.ndarray, "n m"]:
        """Least number of rounds in which an agent gets from each origin to each place (m), without turns at origins.

        Returns:
            0 if the agent is already there; ``np.iinfo(int).max // 4`` if there is no path.
        """
        origins, places = (np.asarray(X, dtype=float).reshape(-1, 2) for X in (origins, places))
        return self._world.travel_rounds(self._number_of(agent), origins, places)

    def rounds_left(self, agent: str) -> int:
        """Whole rounds that an agent can drive on its battery; ``np.iinfo(int).max // 4`` without a battery."""
        return self._world.homes.rounds_left(self._current(), self._number_of(agent))

    def base(self, agent: str) -> Float[np.ndarray, " 2"] | None:
        """Base where an agent charges its battery; None without one."""
        robot, episode = self._number_of(agent), self._current()
        return None if self._world.rules.batteries is None else episode.bases[robot].copy()

    def no_go(self) -> list[list[Float[np.ndarray, "k 2"]]]:
        """Regions that no robot enters, for figures: each a list of rings, a hole being a ring within another."""
        return [[ring.copy() for ring in region.rings] for region in self.ground.regions]

    def sites(self) -> Float[np.ndarray, "k 2"]:
        """All measurable sites: ``candidates`` of all agents, over all rounds."""
        return self.field.sites

    def interaction_graph(self) -> "nx.Graph[str]":
        """Links of agents in radio range now, frozen; edges carry their ``distance`` in metres."""
        return self._world.links(self._current())

    def ground_truth(self) -> GroundTruth:
        """Noise-free field, for metrics and figures."""
        return self.field.truth(self.settings.task, self.settings.level)

    def _description(self) -> dict[str, Any]:
        return self._world.description()

    def _arrays(self, episode: Episode) -> dict[str, Any]:
        arrays = {name: getattr(episode, name) for name in ("poses", "last", "measured", "samples")}
        arrays |= {
            "trail_ends": np.cumsum([len(trail) for trail in episode.trails]),
            "trails": np.concatenate(episode.trails),
        }
        if self.settings.version > 0:
            arrays |= {name: getattr(episode, name) for name in ("batteries", "bases", "on_the_way")}
        return arrays if self.settings.rovers is None else {**arrays, "engine": episode.engine}

    def _read(self, saved: SavedState) -> Episode:
        plain, robots = saved.plain, self.settings.robots
        poses = saved.array("poses", "f", (robots, 3))
        last = saved.array("last", "f", (robots,))
        measured = saved.array("measured", "b", (len(self.field.sites),))
        samples = saved.array("samples", "f", (robots * (plain.round + 1), 4))
        ends = saved.array("trail_ends", "i", (robots,))
        trails = saved.array("trails", "f", (int(ends[-1]), 2))
        engine = np.empty((robots, 0))
        batteries, bases, on_the_way = np.full(robots, np.inf), poses[:, :2].copy(), np.empty((0, 4))
        if self.settings.version > 0:
            batteries, bases = saved.array("batteries", "f", (robots,)), saved.array("bases", "f", (robots, 2))
            on_the_way = saved.array("on_the_way", "f", (saved.rows_of("on_the_way"), 4))
            is_one = np.isin(on_the_way[:, 0], np.arange(robots)).all() and np.isfinite(on_the_way[:, :3]).all()
            saved.hold(bool(is_one), "measurements on the way of its robots")
            saved.hold(bool((batteries >= 0.0).all() and np.isfinite(bases).all()), "batteries >= 0, and bases")
        if self.settings.rovers is not None:
            engine = saved.array("engine", "f", (robots, self._world.mover.n_state))
            saved.hold(bool(np.isfinite(engine).all()), "an engine's state that is finite")
        saved.hold(bool((np.diff(ends, prepend=0) > 0).all()), "'trail_ends' that rise from above 0")
        saved.hold(
            bool((samples[:, 0] == np.tile(np.arange(robots), plain.round + 1)).all()), "one sample per robot and round"
        )
        saved.hold(all(np.isfinite(known).all() for known in (poses, trails, samples[:, :3])), "places that are finite")
        return Episode(
            **saved.common,
            poses=poses,
            last=last,
            measured=measured,
            trails=np.split(trails, ends[:-1]),
            samples=samples,
            on_the_way=on_the_way,
            batteries=batteries,
            bases=bases,
            engine=engine,
        )

    def _picture(self) -> NDArray[np.uint8]:
        from swarmbo_envs.robot_team.rendering import frame  # figures take a second to import

        return frame(self._world, self._current(), self.interaction_graph(), self.max_cycles)

    def _text(self) -> str:
        from swarmbo_envs.robot_team.episode import text_map

        return text_map(self.field, self._current(), self.max_cycles)

    def _observe(self, episode: Episode) -> dict[str, Array]:
        box, charge = self._observation_spaces[self.possible_agents[0]], self._world.homes.charge(episode)
        seen = observe(episode, self.max_cycles, box, charge)
        return dict(zip(self.possible_agents, seen, strict=True))
