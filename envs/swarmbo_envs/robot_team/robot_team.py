"""The robot team as a PettingZoo environment: its observations, saved states and text map."""

import warnings
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from swarmbo.errors import DataWarning
from swarmbo.records import GroundTruth
from swarmbo.settings import convert
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.landscape import build_field
from swarmbo_envs.fields.settings import require_table
from swarmbo_envs.fields.world import FieldWorld
from swarmbo_envs.ground import Ground, read_regions
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.safety import NEVER, SLACK
from swarmbo_envs.robot_team.settings import RobotTeamSettings, RobotTeamV1Settings
from swarmbo_envs.robot_team.world import World, ground_of_field, measurable
from swarmbo_envs.saved_state import SavedState
from swarmbo_envs.shared import Ends, Place, Places, Starts, grid_points
from swarmbo_envs.simulated_world import Array, Infos, plain

# of the text map
_SHADES = " .:-=+*#%@"
_COLUMNS, _ROWS = 64, 24
_GROWING = ("trails", "samples", "on_the_way")  # arrays of an episode that grow from round to round
# distance between centres, in rover lengths, at which two rovers never touch
_LENGTHS_APART = 1.5


class RobotTeam(FieldWorld[RobotTeamSettings, Episode], arguments=RobotTeamSettings, name="robot_team_v0"):
    """Robots drive over a map and measure a field; together they search for its maximum, map it, or watch a level.

    Every robot is a unicycle with bounds on speed and turn rate. In each round, every agent names a location; its robot
    drives there on the quickest path it knows and measures. A robot that runs out of time measures where it is. Robots
    exchange messages by radio within a range.

    | | |
    |---|---|
    | Agents | ``robot_0`` ... ``robot_{n-1}``, fixed for the episode |
    | Action | location to measure next: Box (2,), x to the east and y to the north in m, over the map, float64 |
    | Observation | Box (5,), float64: x (m), y (m), heading (rad from east, anticlockwise, -pi to pi), last good \
measurement (unit of the field; the lower bound while there is none; clipped into the box), share of rounds left |
    | State | the observations of all robots, joined: Box (5 n,) |
    | Reward | an equal share of the increase of the task's score, less the agent's cost; see ``reward`` |
    | End | all agents are truncated after ``max_cycles`` rounds |

    ``infos[agent]`` after ``reset`` (every robot measures its start at no cost) and ``step``:

    | key | type | meaning |
    |---|---|---|
    | ``measurement`` | float | noisy value, unit of the field; missing if it failed |
    | ``location`` | array (2,) | location of the measurement, m |
    | ``distance`` | float | driven this round, m |
    | ``cost`` | float | ``travel_cost`` times distance, unit of the field |
    | ``reached`` | bool | True if the robot reached the requested location (``sites = "only"``: the unmeasured \
    site nearest to it) |
    | ``interpolated`` | bool | True if the field between measured points is interpolated |

    The key of the ``field`` table selects the kind of field; ``swarmbo explain environment.field.csv`` and the like
    explain its settings:

    * ``elevation``: a real landscape, in metres from its south-west corner; values between cells are bilinear.
    * ``csv``: measured points. With ``sites = "only"`` (the default) a robot samples the unmeasured site nearest to the
      requested location among those within reach in the round. Robots choose in the order of their numbers, and no site
      is measured twice. If none is within reach, a robot drives towards the nearest with a path to it. A site stays
      open if its measurement failed. With ``interpolated``, the field between the sites is kriged; no two sites may
      then be nearer to each other than a thousandth of the median distance between neighbours.
    * ``raster``: a GeoTIFF or an array. Cells without a value are no-go: robots drive round them.
    * ``gp``: a draw from a Gaussian process prior. ``survey``: measurements shipped with swarmbo, used as a CSV.

    Starts, noise and failures come from separate random streams, one for each seed, robot and round. So methods that
    are compared at one seed have equal randomness, wherever they measure.

    Args:
        robots: Number of robots, 1 to 1024.
        field: Table whose key is the kind of field: ``elevation``, ``csv``, ``raster``, ``gp`` or ``survey``; None for
            the default landscape.
        task: ``peak``, ``map`` or ``level``: the aim of the team. It decides rewards, and the scores of runs.
        level: Watched level, in the unit of the field; required by the task ``level``, and refused otherwise.
        reward: ``task``: an equal share of the increase of ``score``. The score is minus the simple regret
            (``peak``) or minus the map error (``map``), both in the unit of the field, or the F1 score (``level``).
            ``team``: an equal share of the sum of all measurements. ``own``: the agent's measurement, or 0 if it
            failed. The agent's cost is subtracted.
        worlds: ``fixed``: one for all episodes. ``drawn``: each reset draws another ``gp`` field of the same settings,
            with another seed; ``reset(options={"world": number})`` picks one.
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
            are a lattice. On an interpolated map, they are the measured sites, thinned evenly, if a lattice in their
            hull has at most ``max_sites / 2`` points.
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
    """

    _action_in_words, _state_format = "[x, y]", ("robot-team", 3)

    def __init__(self, **arguments: Any) -> None:
        settings = self._settings_of(require_table(arguments))
        field = build_field(settings.field, settings.max_sites)
        self._set_up(settings, *ground_of_field(field, {"starts": settings.starts}))

    def _set_up(self, settings: RobotTeamSettings, field: Field, ground: Ground) -> None:
        """Build the world of a version on the measurable field, and on the ground that robots may drive on."""
        super().__init__(settings, [f"robot_{i}" for i in range(settings.robots)])
        self.ground = ground
        self._set_world(field)
        rules = self._world.rules
        least, most = self._shown_range(max(rules.noise_stds))
        low, high = [*field.low, -np.pi, least, 0.0], [*field.high, np.pi, most, 1.0]
        if rules.batteries is not None:
            low, high = [*low, 0.0], [*high, 1.0]
        actions = dict.fromkeys(self.possible_agents, (field.low, field.high))
        self._set_like_spaces(actions, (np.array(low), np.array(high)))

    def _set_world(self, field: Field) -> None:
        self._world = World(self.settings, field, self.possible_agents, self.ground)
        self._set_field(field, max(self._world.rules.noise_stds))

    def _draw(self, number: int) -> None:
        self._set_world(measurable(build_field(self._table_with_seed(number), self.settings.max_sites), self.ground))

    @property
    def round_time_s(self) -> float:
        """Time to drive in a round, s."""
        return self._world.round_time_s

    @property
    def radio_range_m(self) -> float:
        """Largest distance at which any two robots can exchange messages, m."""
        return max(self._world.radio_ranges_m)

    def _begin(self, seed: int, number: int) -> Episode:
        return self._world.begin(seed, number, *self._initial_score())

    def _initial_infos(self, episode: Episode) -> Infos:
        infos = {agent: self._world.sensors.measure(episode, robot) for robot, agent in enumerate(self.agents)}
        episode.note(infos.values())
        self._score_gain(episode, infos)
        return infos

    def _play(self, episode: Episode, actions: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        infos = dict(zip(actions, self._world.drive(episode, list(actions.values())), strict=True))
        return infos, self._rewards(infos, self._score_gain(episode, infos))

    def candidates(self, agent: str) -> Places:
        """Sites that an agent can reach and measure this round, in the order of ``field.sites``; may be empty.

        Raises:
            ConfigError: If there is no such agent.
        """
        limits, episode, robot = self._world.battery_limits, self._current(), self._number_of(agent)
        if limits.must_return(episode, robot):  # it has one candidate, its stop on the return
            return np.empty((0, 2)) if self.field.sites_only else limits.stop_on_return(episode, robot)[None]
        return self.field.sites[self._world.reachable(episode, robot)]

    def travel_rounds(self, agent: str, origins: Starts, places: Ends) -> Int[np.ndarray, "n m"]:
        """Least number of rounds in which an agent gets from each origin to each place (m), without turns at origins.

        Returns:
            0 if the agent is already there; ``np.iinfo(int).max // 4`` if there is no path.
        """
        starts, ends = (np.asarray(X, dtype=float).reshape(-1, 2) for X in (origins, places))
        times = self._world.drivers[self._number_of(agent)].planner.times_between(starts, ends)
        rounds, is_reachable = np.full(times.shape, NEVER), np.isfinite(times)
        rounds[is_reachable] = np.minimum(np.ceil(times[is_reachable] / (self.round_time_s * SLACK)), NEVER)
        return rounds

    def rounds_left(self, agent: str) -> int:
        """Whole rounds that an agent can drive on its battery; ``np.iinfo(int).max // 4`` without a battery."""
        return self._world.battery_limits.rounds_left(self._current(), self._number_of(agent))

    def base(self, agent: str) -> Place | None:
        """Base where an agent charges its battery; None without a battery."""
        robot, episode = self._number_of(agent), self._current()
        return None if self._world.rules.batteries is None else episode.bases[robot].copy()

    def no_go(self) -> list[list[Places]]:
        """Regions that no robot enters, for figures. Each is a list of rings; a ring within another is a hole."""
        return [[ring.copy() for ring in region.rings] for region in self.ground.regions]

    def sites(self) -> Places:
        """All measurable sites: ``candidates`` of all agents, over all rounds."""
        return self.field.sites.copy()

    def interaction_graph(self) -> "nx.Graph[str]":
        """Links of agents in radio range now, frozen; edges carry their ``distance`` in metres."""
        return self._world.links(self._current())

    def ground_truth(self) -> GroundTruth:
        """Noise-free field, for metrics and figures."""
        return self.field.truth(self.settings.task, self.settings.level)

    def _description(self) -> dict[str, Any]:
        description = super()._description()
        return description if self.ground.is_open else {**description, "no_go": f"data {self.ground.digest}"}

    def _arrays(self, episode: Episode) -> dict[str, Any]:
        ends = np.cumsum([len(trail) for trail in episode.trails])
        return super()._arrays(episode) | {"trail_ends": ends, "trails": np.concatenate(episode.trails)}

    def _read(self, saved: SavedState) -> Episode:
        content, robots = saved.plain, self.settings.robots
        episode = self._begin(content.seed, content.number)
        episode = saved.restore(episode, [name for name in super()._arrays(episode) if name not in _GROWING])
        saved.require_belief(episode.score, episode.knots_mean, episode.knots_covariance)
        ends = saved.array("trail_ends", "i", (robots,))
        trails = saved.array("trails", "f", (int(ends[-1]), 2))
        saved.require(bool((np.diff(ends, prepend=0) > 0).all()), "increasing 'trail_ends', above 0")
        episode.trails = np.split(trails, ends[:-1])
        episode.samples = samples = saved.array("samples", "f", (robots * (content.round + 1), 4))
        is_each = bool((samples[:, 0] == np.tile(np.arange(robots), content.round + 1)).all())
        saved.require(is_each, "one sample per robot and round")
        arrays = episode.poses, trails, samples[:, :3], episode.bases, episode.engine
        saved.require(all(np.isfinite(array).all() for array in arrays), "finite places and states of the engine")
        saved.require(bool((episode.batteries >= 0.0).all()), "batteries >= 0")
        episode.on_the_way = on_the_way = saved.array("on_the_way", "f", (saved.rows_of("on_the_way"), 4))
        are_valid = np.isin(on_the_way[:, 0], np.arange(robots)).all() and np.isfinite(on_the_way[:, :3]).all()
        saved.require(bool(are_valid), "measurements en route by its robots at finite places")
        return episode

    def _rows(self, episode: Episode) -> Array:
        left = np.full(len(episode.last), episode.share_left(self.max_cycles))
        charge = self._world.battery_limits.charge(episode)
        return np.column_stack([episode.poses, episode.last, left, *([] if charge is None else [charge])])

    def _picture(self) -> NDArray[np.uint8]:
        from swarmbo_envs.pictures import robot_frame  # figures take a second to import

        return robot_frame(self._world, self._current(), self.max_cycles)

    def _text(self) -> str:
        """Text map of the field, denser where values are larger, with the robots' numbers, and a line per robot."""
        field, episode = self.field, self._current()
        xs = np.linspace(field.low[0], field.high[0], _COLUMNS)
        ys = np.linspace(field.high[1], field.low[1], _ROWS)
        values = field.value(grid_points(xs, ys)).reshape(_ROWS, _COLUMNS)
        share = (values - values.min()) / (np.ptp(values) or 1.0)
        cells = np.array(list(_SHADES))[(share * (len(_SHADES) - 1)).round().astype(int)]
        for robot, (x, y, _) in enumerate(episode.poses):
            cells[np.abs(ys - y).argmin(), np.abs(xs - x).argmin()] = str(robot % 10)
        lines = [f"{field.name}: round {episode.round} of {self.max_cycles}", *("".join(row) for row in cells)]
        for robot, (x, y, heading) in enumerate(episode.poses):
            measurement = episode.samples[episode.samples[:, 0] == robot][-1, 3]
            outcome = "failed" if np.isnan(measurement) else f"{measurement:.4g} {field.unit}".rstrip()
            direction = f"heading {np.degrees(heading):.0f}°"
            lines.append(f"robot_{robot}: x {x:.1f} m, y {y:.1f} m, {direction}, measured {outcome}")
        return "\n".join(lines) + "\n"


class RobotTeamV1(RobotTeam, arguments=RobotTeamV1Settings, name="robot_team_v1"):
    """A ``RobotTeam`` with no-go regions, unequal robots, batteries, separation, a current and simulated rovers.

    Without the arguments below, results are bit-identical to those of ``RobotTeam``.

    **No-go regions.** No robot is ever in one, at its stop or en route. The map is divided into cells; cells that a
    region touches are blocked, and robots drive round them. Round a region they drive the shortest path on a visibility
    graph: straight lines, with turns in place at the bends. In the open, they drive arcs, like robots of ``RobotTeam``.
    An action in a region, or without a path, is replaced by the nearest site. The ground truth covers the locations
    that can be measured.

    **Heterogeneous robots.** ``speed_m_s``, ``turn_rate_rad_s``, ``radio_range_m``, ``noise_std`` and ``battery_s``
    take one number, or a list of one per robot. If sensors differ, infos have the noise of each measurement. Two robots
    can exchange messages within the smaller of their ranges.

    **Batteries.** ``candidates`` has only locations from which the robot can return to its base. A robot sent beyond
    its range returns to base. A robot also returns if its battery does not last for another round and the return; its
    only candidate is then its stop en route. A base charges it fully. Turning and driving discharge it, standing does
    not. If only sites can be measured, a robot that returns or has no site left does not; ``sampled`` is then False.

    **Separation.** Robots drive in the order of their numbers. A robot stops and measures before it comes too near to a
    robot earlier in the order, or to the position of a later one.

    **Current.** Robots hold their course against it; travel times then depend on the direction.

    **En route** robots measure ``samples_per_leg`` times or every ``sample_every_m`` metres, in addition to their stop.
    The rewards ``own`` and ``team`` count the stop only.

    **Physics.** With ``physics = "mujoco"`` robots are rovers in MuJoCo: a body with two driven wheels and two casters.
    The field is their terrain, and the map has walls at its edge. They plan as above, with four fifths of their speed,
    follow their paths as well as the ground permits, and measure at their true position. A location or base counts as
    reached within a rover's length. A rover fails in a round if it tips over, cannot move on, or slides off its path by
    more than three quarters of its length. It is then put upright on its path at the point it had reached. A rover with
    an empty battery is carried to its base. Rovers also stay a rover's length away from no-go regions, and stop only
    where no other rover is during the round. Each drives in a separate simulation. If ``separation_m`` is below 1.5
    rover lengths, as by default, they may pass through each other, and a warning is given. With ``sites = "only"`` they
    measure the site at which they stand.

    | ``infos[agent]`` also has | type | meaning |
    |---|---|---|
    | ``noise_std`` | float | noise of the measurement, if sensors differ |
    | ``on_the_way`` | list | measurements en route, in order: ``location``, ``measurement``, ``noise_std`` |
    | ``path`` | array (k, 2) | points along the driven path of this round, m |
    | ``battery`` | float | share of the battery that is left, with batteries |
    | ``failure`` | str | reason why a rover measured nothing: ``tipped over``, ``stuck``, ``off its way`` or \
``battery empty`` |

    With batteries, observations end with the share that is left: Box (6,).

    Args:
        battery_s: Time that a robot can turn and drive on one charge, 1e-6 to 1e12 s. Default: unlimited.
        bases: Charging sites: one [x, y] in m for all, or one per robot. Default: the start of each. Without ``starts``
            robots start at their bases, or at the free sites nearest to a shared base.
        separation_m: Least distance of two robots at any moment, >= 0. Robots keep a little more, because paths are
            compared at 513 moments of a round.
        wind: The current (east, north) in m/s, below 95 % of the slowest robot's speed.
        samples_per_leg: Measurements en route in a round, evenly over the driven path, before the one at its end, 0 to
            64.
        sample_every_m: Alternative to ``samples_per_leg``: metres between measurements; at most 64 en route in a round.
        no_go: Tables ``{corners = [[x, y], ...]}`` in m on the map, ``{geojson = FILE, coordinates = "degrees" |
            "metres"}``, or ``{raster = FILE, nodata = NUMBER, extent = [west, south, east, north]}`` with a ``.npy``
            array or a GeoTIFF (extra ``geo``). True cells, NaN and nodata are no-go; the first row is in the north.
        clearance_m: Extra distance that robots keep from these regions, >= 0.
        route_cells: Cells along the map's longer side for path search, 8 to 512. Passages narrower than two cells may
            be closed; a warning is given if that cuts off sites.
        physics: ``kinematic``: robots obey their equations of motion. ``mujoco`` (extra ``mujoco``): rovers. Their
            settings are ``{mujoco = {rover_m = 3.0, ...}}``, see ``MujocoSettings``.
        **others: As for ``RobotTeam``.

    Raises:
        ConfigError: If an argument is wrong; the message has its path, as in ``$.no_go[0].geojson``.
        MissingPackageError: If a GeoTIFF or an engine is named, and its extra is not installed.

    Warns:
        DataWarning: If cells close a passage to sites, or rovers may pass through each other.

    Example:
        >>> import numpy as np
        >>> from swarmbo_envs import robot_team_v1
        >>> lake = {"corners": [[3000, 3000], [6000, 3000], [6000, 8000], [3000, 8000]]}
        >>> env = robot_team_v1.parallel_env(robots=1, starts=[[2500, 5000]], no_go=[lake], speed_m_s=[8.0])
        >>> observations, infos = env.reset(seed=0)
        >>> env.travel_rounds("robot_0", [[2500, 5000]], [[2500, 6000], [6500, 5000], [5000, 5000]]).tolist()[0][:2]
        [1, 5]
        >>> _, _, _, _, infos = env.step({"robot_0": np.array([6500.0, 5000.0])})
        >>> infos["robot_0"]["reached"], env.ground.is_free(infos["robot_0"]["location"][None]).tolist()
        (False, [True])
    """

    def __init__(self, **arguments: Any) -> None:
        settings = convert(require_table(plain(arguments)), RobotTeamV1Settings)
        rover_m = 0.0 if settings.rovers is None else settings.rovers.rover_m
        if settings.robots > 1 and settings.separation_m < _LENGTHS_APART * rover_m:
            risk = f"$.separation_m: at {settings.separation_m:g} m rovers of {rover_m:g} m may pass through each other"
            fix = f"separation_m = {_LENGTHS_APART * rover_m:g} or more keeps them apart"
            warnings.warn(f"{risk}, since their drives are simulated separately; {fix}", DataWarning, stacklevel=2)
        field = build_field(settings.field, settings.max_sites)
        regions = read_regions(settings.no_go, field.low, field.high, field.coordinates, field.cells)
        anchors, clearance = {"starts": settings.starts, "bases": settings.bases}, settings.clearance_m + rover_m
        self._set_up(settings, *ground_of_field(field, anchors, regions, settings.route_cells, clearance))
