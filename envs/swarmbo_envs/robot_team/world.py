"""Rules of a round: robots drive over the ground that they can reach, and measure at their stops."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from jaxtyping import Float, Int

from swarmbo.boundary import rng
from swarmbo.errors import ConfigError, DataWarning
from swarmbo_envs.fields.field import Field, separated_sites
from swarmbo_envs.fields.world import RadioLinks
from swarmbo_envs.ground import Ground, PathPlanner, Region
from swarmbo_envs.ground.grid import widest_closed_passage
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode, Ideal, Mover, Robots, Sensors, Tracks
from swarmbo_envs.robot_team.motion import Driver
from swarmbo_envs.robot_team.safety import SLACK, BatteryLimits, Spacing
from swarmbo_envs.robot_team.settings import MOST_CELLS, RobotTeamSettings
from swarmbo_envs.shared import Path, Place, Places, grid_points

_PLACES_FOR_MAXIMUM = 400  # along the longer side
# width in cells of a passage that is surely open, along an axis and diagonally
_OPEN = (2.0, 2.0 * np.sqrt(2.0))
_LOOKED_AT = 32  # sites between which all paths are compared
_DETOUR = 0.1  # of the map's longer side: a detour that causes a warning
_SHARE = 0.05  # of the map: an unreachable share that causes a warning


def ground_of_field(
    field: Field,
    anchors: Mapping[str, Sequence[tuple[float, float]] | None],
    regions: Sequence[Region] = (),
    cells: int = 128,
    clearance_m: float = 0.0,
) -> tuple[Field, Ground]:
    """Measurable part of a field, and its ground; ``anchors`` must be free. Warns of a closed passage that matters."""
    at = "$.no_go" if regions else "$.field"
    if field.gaps is not None:
        (west, south), (east, north) = field.low.tolist(), field.high.tolist()
        regions = [*regions, Region.of_cells(field.gaps, (west, south, east, north))]
    stated = ((f"$.{name}[{n}]", place) for name, own in anchors.items() for n, place in enumerate(own or ()))
    anchor_places: dict[str, Place] = {path: np.array(place, dtype=float) for path, place in stated}
    for path, place in anchor_places.items():
        field.require_on_map(place, path)
    ground = Ground(field.low, field.high, regions, cells, clearance_m, anchor_places, at)
    _warn_of_closed_passages(ground, field.sites, anchor_places, at)
    return measurable(field, ground, at), ground


def _warn_of_closed_passages(ground: Ground, sites: Places, anchors: Mapping[str, Place], at: str) -> None:
    """Warn about the widest closed passage, if it matters."""
    if (width := widest_closed_passage(ground)) is None:
        return
    side, cell = float((ground.high - ground.low).max()), float(ground.cell.max())
    resolutions = [int(np.ceil(number * side / width)) + 1 for number in _OPEN]
    is_cut_off = (ground.blocked & ~ground.touched()).mean() >= _SHARE
    fix = "they are too narrow for any cells" if is_cut_off and resolutions[0] > MOST_CELLS else ""
    for cells in (cells for cells in resolutions if ground.shape.max() < cells <= MOST_CELLS):
        try:
            finer = Ground(ground.low, ground.high, ground.regions, cells, ground.clearance_m, anchors, at)
        except ConfigError:
            fix = "regions have too many corners for finer cells" if is_cut_off else ""
            break
        if gain := _gain_of_finer(ground, finer, sites):
            fix = f"route_cells = {cells} would leave them open, and {gain}"
            break
    if fix:
        closed = f"passages of up to about {width:.3g} m are shut by cells of {cell:.3g} m, and no robot drives through"
        warnings.warn(f"{at}: {closed}: {fix}", DataWarning, stacklevel=3)


def _gain_of_finer(ground: Ground, finer: Ground, sites: Places) -> str:
    """Gain of finer cells, as a phrase; empty if it does not matter."""
    is_free, is_free_then = ground.part_of(sites) > 0, finer.part_of(sites) > 0
    if (share := float((is_free_then & ~is_free).mean())) >= _SHARE:
        return f"bring {100.0 * share:.0f} % more of the sites within reach"
    sample = sites[is_free & is_free_then]
    sample = sample[np.linspace(0, len(sample) - 1, min(_LOOKED_AT, len(sample))).astype(int)]
    # at 1 m/s times are lengths
    lengths, finer_lengths = (PathPlanner(each, 1.0, 1.0).times_between(sample, sample) for each in (ground, finer))
    detours = np.subtract(lengths, finer_lengths, out=np.zeros_like(lengths), where=np.isfinite(finer_lengths))
    detour_m = float(detours.max(initial=0.0))
    if detour_m < _DETOUR * float((ground.high - ground.low).max()):
        return ""
    return f"make ways up to {float(f'{detour_m:.2g}'):,g} m shorter" if np.isfinite(detour_m) else "join what is apart"


def measurable(field: Field, ground: Ground, at: str = "$.field") -> Field:
    """Field restricted to free places: its sites, the points of its truth, and its maximum."""
    if ground.is_open:
        return field
    sites, points = (X[ground.part_of(X) > 0] for X in (field.sites, field.points))
    if not len(sites):
        raise ConfigError("got no-go regions that leave no site to measure; wanted at least one", at=at)
    points = points if len(points) else sites
    best = field.argmax
    if field.sites_only or not ground.part_of(best[None])[0]:
        best = sites[field.value(sites).argmax()] if field.sites_only else _highest(field, ground, sites)
    maximum, minimum = float(field.value(best[None])[0]), float(field.value(sites).min())
    return replace(field, sites=sites, points=points, maximum=maximum, argmax=best, minimum=minimum)


def _highest(field: Field, ground: Ground, sites: Places) -> Place:
    """Best free location of a lattice over the map, then of ever finer lattices around the best so far."""
    best, half_size = (field.low + field.high) / 2, (field.high - field.low) / 2
    highest = sites[field.value(sites).argmax()]
    steps = np.linspace(-1.0, 1.0, _PLACES_FOR_MAXIMUM + 1)
    for _ in range(3):
        places = np.clip(best + grid_points(steps, steps) * half_size, field.low, field.high)
        places = np.vstack([highest, places[ground.part_of(places) > 0]])
        highest = best = places[field.value(places).argmax()]
        half_size, steps = half_size * 4 / _PLACES_FOR_MAXIMUM, np.linspace(-1.0, 1.0, 41)
    return highest


def checked_starts(settings: RobotTeamSettings, field: Field) -> Float[np.ndarray, "robots 2"] | None:
    """Starts of the settings; None to draw them. If only sites can be measured, starts are the nearest free sites."""
    if (settings.starts is None or field.sites_only) and settings.robots > len(field.sites):
        raise ConfigError(f"got {settings.robots}; wanted at most one per site: {len(field.sites)}", at="$.robots")
    bases = settings.rules().bases
    if settings.starts is None and bases is not None:
        places = np.array(bases, dtype=float)
        is_distinct = len(np.unique(places, axis=0)) == len(places)
        return places if is_distinct and not field.sites_only else nearest_free_sites(places, field.sites)
    if settings.starts is None:
        return None
    starts = field.distinct_places(settings.starts, "$.starts")
    return nearest_free_sites(starts, field.sites) if field.sites_only else starts


def nearest_free_sites(starts: Float[np.ndarray, "robots 2"], sites: Places) -> Float[np.ndarray, "robots 2"]:
    """For each start, one after another, the nearest site that is still free."""
    free, chosen = np.ones(len(sites), dtype=bool), list[int]()
    for start in starts:
        chosen.append(int(np.where(free, ((sites - start) ** 2).sum(axis=1), np.inf).argmin()))
        free[chosen[-1]] = False
    return sites[chosen]


class _Goal(NamedTuple):
    """Location to which a robot drives; True if it is the requested location; True if the robot can measure there."""

    place: Place
    is_as_requested: bool = True
    is_open: bool = True


class World:
    """Immutable rules of the robot team; all changing state is in the episode that methods receive."""

    def __init__(self, settings: RobotTeamSettings, field: Field, agents: list[str], ground: Ground) -> None:
        self.settings, self.field, self.ground = settings, field, ground
        self.rules = rules = settings.rules()
        limits = list(zip(rules.speeds, rules.turn_rates, strict=True))
        self.round_time_s = settings.round_time_s or max(np.pi / rate + field.reach_m / speed for speed, rate in limits)
        self.mover: Mover = Ideal(field.low, field.high)
        if settings.rovers is not None:
            from swarmbo_envs.robot_team.rovers import Rovers  # needs an extra

            self.mover = Rovers(field, self.ground, settings.rovers, limits, self.round_time_s)
        drivers: dict[tuple[float, float], Driver] = {}
        for speed, rate in dict.fromkeys(limits):
            unicycle = motion.Unicycle(speed * self.mover.pace, rate * self.mover.pace, field.low, field.high)
            drivers[speed, rate] = Driver(unicycle, self.ground, rules.wind)
        self.drivers = [drivers[limit] for limit in limits]
        reserve, off_m = self.mover.reserve, self.mover.off_m
        self.battery_limits = BatteryLimits(rules, self.drivers, self.round_time_s, reserve, off_m)
        self.radio_ranges_m = rules.radio_ranges or (0.5 * float(np.hypot(*(field.high - field.low))),) * len(agents)
        self._links = RadioLinks(agents)
        self._fastest = [speed + float(np.hypot(*rules.wind)) for speed in rules.speeds]  # over ground
        spacing = Spacing(rules.separation_m, self._fastest, self.round_time_s, off_m)
        self.spacing = spacing if rules.separation_m else None
        self.sensors = Sensors(settings, rules, field, agents, max(self._fastest) * self.round_time_s)
        self._starts = checked_starts(settings, field)
        self._there_m = 1e-9 * float((field.high - field.low).max())
        self._columns, self._parts = np.ascontiguousarray(field.sites.T), self.ground.part_of(field.sites)
        if self._starts is not None:
            self._require_separation(self._starts)
            self.battery_limits.require_reach(self._starts, agents)

    def begin(self, seed: int, number: int, *score_and_belief: Any) -> Episode:
        """Begin an episode with every robot at its start, nothing measured, and a score with the belief behind it."""
        generator = rng.stream(seed, "robot_team", "starts", episode=number)
        starts = self._starts
        if starts is None:
            starts = separated_sites(generator, self.field.sites, self.settings.robots)
            self._require_separation(starts)
        poses = np.column_stack([starts, generator.uniform(-np.pi, np.pi, size=len(starts))])
        return Episode(
            *(seed, number, 0, True),
            *score_and_belief,
            poses=poses,
            batteries=np.full(len(starts), np.inf) if self.rules.batteries is None else np.array(self.rules.batteries),
            bases=starts.copy() if self.rules.bases is None else np.array(self.rules.bases, dtype=float),
            last=np.full(len(starts), np.nan),
            measured=np.zeros(len(self.field.sites), dtype=bool),
            trails=[start[None].copy() for start in starts],
            samples=np.empty((0, 4)),
            on_the_way=np.empty((0, 4)),
            engine=self.mover.begin(poses),
        )

    def links(self, episode: Episode) -> "nx.Graph[str]":
        """Links of agents in radio range."""
        return self._links.at(episode.poses[:, :2], self.radio_ranges_m)

    def reachable(self, episode: Episode, robot: int) -> Int[np.ndarray, " k"]:
        """Indices of the sites that a robot can reach and measure in one round, and return to base from."""
        pose, sites = episode.poses[robot], self.field.sites
        limit = self._fastest[robot] * self.round_time_s * SLACK
        east, north = self._columns - pose[:2, None]
        indices = np.flatnonzero((east**2 + north**2 <= limit**2) & ~episode.measured)
        if self.spacing is not None:
            indices = indices[self.spacing.is_clear(robot, sites[indices], episode.poses[:, :2])]
        driver, time_s = self.drivers[robot], self.round_time_s * SLACK
        # without batteries the arrival heading has no effect, and the cheaper test suffices
        if driver.is_plain and self.rules.batteries is None:
            return indices[driver.unicycle.is_within(pose, sites[indices], time_s)]
        times, headings = driver.arrivals(pose, sites[indices]).T
        possible = times <= time_s
        stops = np.column_stack([sites[indices], headings])[possible]
        possible[possible] = self.battery_limits.can_return(episode, robot, times[possible], stops)
        return indices[possible]

    def drive(self, episode: Episode, places: Sequence[Place]) -> list[dict[str, Any]]:
        """Play one round of all robots, in the order of their numbers, and return their infos; changes the episode."""
        positions = episode.poses[:, None, :2]
        tracks = None if self.spacing is None else np.repeat(positions, len(self.spacing.moments), axis=1)
        infos = [self._drive_and_measure(episode, robot, place, tracks) for robot, place in enumerate(places)]
        episode.note(infos)
        return infos

    def _drive_and_measure(self, episode: Episode, robot: int, place: Place, tracks: Tracks | None) -> dict[str, Any]:
        """Play one robot's round and return its info; its row of ``tracks`` changes, if separation is kept."""
        limits = self.battery_limits
        must_return = limits.must_return(episode, robot)
        requested = self._goal(episode, robot, place, must_return=must_return)
        # a path too long for the return is replaced here: after this, paths are only shortened
        whole, goal = self._planned_path(episode, robot, requested, must_return=must_return)
        is_homeward = self.rules.batteries is not None and bool((goal.place == episode.bases[robot]).all())
        planned = limits.cut_return(robot, whole) if is_homeward else motion.cut(whole, self.round_time_s * SLACK)
        # in the tracks, earlier robots have driven and later ones stand: a robot that drives later makes way
        path = planned if tracks is None else self._separated_path(episode, robot, planned, tracks)
        # a known end is assigned exactly, so that integration does not let it drift
        is_whole = bool((path[:, 0] == whole[:, 0]).all())
        drive = self.mover.drive(episode, robot, path, goal.place if is_whole else None, self.sensors.stops)
        if tracks is not None and self.mover.off_m:  # it may have left the path
            moments, numbers = np.linspace(0.0, len(drive.trace) - 1.0, tracks.shape[1]), np.arange(len(drive.trace))
            tracks[robot] = np.column_stack([np.interp(moments, numbers, axis) for axis in drive.trace.T])
        episode.trails[robot] = np.concatenate([episode.trails[robot], drive.trace[1:]])
        stops = [self.sensors.sample(episode, robot, stop, number) for number, stop in enumerate(drive.stops, start=1)]
        # discharge before the measurement at the end, whose info has the remaining charge
        episode.poses[robot] = drive.pose
        limits.discharge(episode, robot, drive.busy_s)
        is_there = is_whole and drive.is_done
        returns_as_planned = must_return and drive.is_done and bool((path[:, 0] == planned[:, 0]).all())
        is_as_requested = goal.is_as_requested and (is_there or returns_as_planned)
        is_measurable = drive.failure is None and ((is_there and goal.is_open) or not self.field.sites_only)
        info = self.sensors.measure(episode, robot, drive.length_m, is_as_requested, is_measurable)
        if not requested.is_open and drive.failure is None:
            # en route to its base, or with no site left, a robot has nothing to measure, and that is no failure
            info["sampled"] = False
        if drive.failure is not None:
            info["failure"] = drive.failure
        if self.settings.version > 0:
            info["path"] = drive.trace
        return info | ({"on_the_way": stops} if self.sensors.is_used_on_the_way else {})

    def _goal(self, episode: Episode, robot: int, place: Place, *, must_return: bool) -> _Goal:
        if must_return:
            is_open, stop = not self.field.sites_only, self.battery_limits.stop_on_return(episode, robot)
            is_as_requested = is_open and np.allclose(place, stop, rtol=0.0, atol=self._there_m)
            return _Goal(episode.bases[robot], is_as_requested, is_open)
        if self.field.sites_only:
            return self._site_to_sample(episode, robot, place)
        position = episode.poses[robot, :2]
        if self.ground.is_open:
            return _Goal(place)
        part, place_part = self.ground.part_of(np.stack([position, place]))
        if part == place_part:
            return _Goal(place)
        # no path leads to the place: the goal is the nearest site with a path to it
        squared = np.where(self._parts == part, ((self.field.sites - place) ** 2).sum(axis=1), np.inf)
        nearest = self.field.sites[squared.argmin()] if np.isfinite(squared).any() else position
        return _Goal(nearest.copy(), is_as_requested=False)

    def _planned_path(self, episode: Episode, robot: int, goal: _Goal, *, must_return: bool) -> tuple[Path, _Goal]:
        """Whole path that a robot sets out on, and the goal at its end; empty without a path to the goal."""
        pose, driver = episode.poses[robot], self.drivers[robot]
        if must_return:
            return self.battery_limits.return_path(episode, robot), goal
        path = driver.path(pose, goal.place)
        if path is None:
            return np.zeros((0, 3)), _Goal(pose[:2].copy(), is_as_requested=False, is_open=False)
        if self.battery_limits.can_return_after(episode, robot, motion.cut(path, self.round_time_s * SLACK)):
            return path, goal
        # the robot could not return from its stop at the end of the round: it returns at once
        base = _Goal(episode.bases[robot].copy(), is_as_requested=False, is_open=False)
        return self.battery_limits.return_path(episode, robot), base

    def _separated_path(self, episode: Episode, robot: int, path: Path, tracks: Tracks) -> Path:
        """Longest part of a path that keeps the separation and lets the robot reach its base."""
        assert self.spacing is not None
        pose, moments = episode.poses[robot], self.spacing.moments
        positions = motion.poses_at(pose, path, moments)[:, :2]
        bases = None if self.rules.batteries is None else episode.bases
        for moment in self.spacing.stops(robot, positions, tracks, bases):
            part = path if moment == len(moments) - 1 else motion.cut(path, float(moments[moment]))
            if moment == 0 or self.battery_limits.can_return_after(episode, robot, part):
                tracks[robot] = positions[np.minimum(np.arange(len(positions)), moment)]
                return part
        raise AssertionError("the first moment is always one at which it may stay")

    def _require_separation(self, starts: Robots) -> None:
        if self.spacing is None:
            return
        bases = starts if self.rules.bases is None else np.array(self.rules.bases)
        for places, name in ((starts, "starts"), (bases, "bases")):
            if not all(self.spacing.is_clear(robot, place[None], places).all() for robot, place in enumerate(places)):
                needed_m = max(float(self.spacing.least(robot).max()) for robot in range(len(places)))
                got = f"got {self.rules.separation_m:g} m and {name} nearer than that"
                why = "as distances are checked at moments of the round only"
                raise ConfigError(f"{got}; wanted {name} at least {needed_m:g} m apart, {why}", at="$.separation_m")

    def _site_to_sample(self, episode: Episode, robot: int, place: Place) -> _Goal:
        """Goal if only sites can be measured."""
        sites = self.field.sites
        squared = np.where(episode.measured, np.inf, ((sites - place) ** 2).sum(axis=1))
        nearest = int(squared.argmin())
        reachable, position = self.reachable(episode, robot), episode.poses[robot, :2]
        if not len(reachable):
            squared[self._parts != self.ground.part_of(position[None])[0]] = np.inf
        chosen = int(reachable[squared[reachable].argmin()] if len(reachable) else squared.argmin())
        # every site with a path to it was measured: stay
        if np.isinf(squared[chosen]):
            return _Goal(position.copy(), is_as_requested=False, is_open=False)
        return _Goal(sites[chosen], is_as_requested=chosen == nearest)
