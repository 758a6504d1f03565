"""Rules of a round: robots drive over the ground that they can reach, and measure at their stops."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, Int

from swarmbo.boundary import rng
from swarmbo.errors import ConfigError, DataWarning
from swarmbo_envs.fields.field import Field, spread
from swarmbo_envs.fields.world import RadioLinks
from swarmbo_envs.ground import Ground, Region, Ways
from swarmbo_envs.ground.grid import widest_shut
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode, Ideal, Mover, Robots, Sensors, Tracks
from swarmbo_envs.robot_team.motion import Driver
from swarmbo_envs.robot_team.safety import SLACK, Homes, Spacing
from swarmbo_envs.robot_team.settings import MOST_CELLS, RobotTeamSettings
from swarmbo_envs.shared import Path, Place, Places, Pose, grid_points

_PLACES_FOR_MAXIMUM = 400  # along the longer side
# cells in the width of a passage that is surely open, along an axis and across
_OPEN = (2.0, 2.0 * np.sqrt(2.0))
_LOOKED_AT = 32  # sites between which all paths are compared
_DETOUR = 0.1  # of the map's longer side: a detour that is worth a warning
_SHARE = 0.05  # of the map: an unreachable share that is worth a warning


def laid_out(
    field: Field,
    anchors: Mapping[str, Sequence[tuple[float, float]] | None],
    regions: Sequence[Region] = (),
    cells: int = 128,
    clearance_m: float = 0.0,
) -> tuple[Field, Ground]:
    """Ground, and the field's reachable part; ``anchors`` must be free. Warns of a closed passage that matters."""
    at = "$.no_go" if regions else "$.field"
    if field.gaps is not None:
        (west, south), (east, north) = field.low.tolist(), field.high.tolist()
        regions = [*regions, Region.of_cells(field.gaps, (west, south, east, north))]
    named = {f"$.{name}[{n}]": np.array(X, dtype=float) for name, Xs in anchors.items() for n, X in enumerate(Xs or ())}
    for name, place in named.items():
        field.require_on_map(place, name)
    ground = Ground(field.low, field.high, regions, cells, clearance_m, named, at)
    _tell_of_shut(ground, field.sites, named, at)
    return measurable(field, ground, at), ground


def _tell_of_shut(ground: Ground, sites: Places, anchors: Mapping[str, Place], at: str) -> None:
    """Warn about the widest closed passage, if it matters."""
    if (width := widest_shut(ground)) is None:
        return
    side, cell = float((ground.high - ground.low).max()), float(ground.cell.max())
    tries = [int(np.ceil(number * side / width)) + 1 for number in _OPEN]
    is_cut_off = (ground.blocked & ~ground.touched()).mean() >= _SHARE
    fix = "they are too narrow for any cells" if is_cut_off and tries[0] > MOST_CELLS else ""
    for cells in (cells for cells in tries if ground.shape.max() < cells <= MOST_CELLS):
        try:
            finer = Ground(ground.low, ground.high, ground.regions, cells, ground.clearance_m, anchors, at)
        except ConfigError:
            fix = "regions have too many corners for finer cells" if is_cut_off else ""
            break
        if gain := _gain(ground, finer, sites):
            fix = f"route_cells = {cells} would leave them open, and {gain}"
            break
    if fix:
        told = f"passages of up to about {width:.3g} m are shut by cells of {cell:.3g} m, and nobody drives through"
        warnings.warn(f"{at}: {told}: {fix}", DataWarning, stacklevel=3)


def _gain(ground: Ground, finer: Ground, sites: Places) -> str:
    """Gain of finer cells, in words; empty if it does not matter."""
    free, then_free = ground.part_of(sites) > 0, finer.part_of(sites) > 0
    if (gained := float((then_free & ~free).mean())) >= _SHARE:
        return f"bring {100.0 * gained:.0f} % more of the sites within reach"
    some = sites[free & then_free]
    some = some[np.linspace(0, len(some) - 1, min(_LOOKED_AT, len(some))).astype(int)]
    now, then = (Ways(each, 1.0, 1.0).times_between(some, some) for each in (ground, finer))  # at 1 m/s: metres
    shorter = float(np.subtract(now, then, out=np.zeros_like(now), where=np.isfinite(then)).max(initial=0.0))
    if shorter < _DETOUR * float((ground.high - ground.low).max()):
        return ""
    about = float(f"{shorter:.2g}")
    return f"make ways up to {about:,g} m shorter" if np.isfinite(shorter) else "join what is apart"


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
    """Best free place of a lattice over the map, then of ever finer ones about the best so far."""
    best, half = (field.low + field.high) / 2, (field.high - field.low) / 2
    found = sites[field.value(sites).argmax()]
    steps = np.linspace(-1.0, 1.0, _PLACES_FOR_MAXIMUM + 1)
    for _ in range(3):
        places = np.clip(best + grid_points(steps, steps) * half, field.low, field.high)
        places = np.vstack([found, places[ground.part_of(places) > 0]])
        found = best = places[field.value(places).argmax()]
        half, steps = half * 4 / _PLACES_FOR_MAXIMUM, np.linspace(-1.0, 1.0, 41)
    return found


def checked_starts(settings: RobotTeamSettings, field: Field) -> Float[np.ndarray, "robots 2"] | None:
    """Starts of the settings; None to draw them. If only sites can be measured, they move to the nearest free ones."""
    if (settings.starts is None or field.sites_only) and settings.robots > len(field.sites):
        raise ConfigError(f"got {settings.robots}; wanted at most one per site: {len(field.sites)}", at="$.robots")
    bases = settings.rules().bases
    if settings.starts is None and bases is not None:
        places = np.array(bases, dtype=float)
        is_distinct = len(np.unique(places, axis=0)) == len(places)
        return places if is_distinct and not field.sites_only else nearest_free_sites(places, field.sites)
    if settings.starts is None:
        return None
    starts = np.array(settings.starts, dtype=float)
    for i, start in enumerate(starts):
        if (start == starts[:i]).all(axis=1).any():
            raise ConfigError(f"got {start.tolist()} twice; wanted different locations", at=f"$.starts[{i}]")
    return nearest_free_sites(starts, field.sites) if field.sites_only else starts


def nearest_free_sites(starts: Float[np.ndarray, "robots 2"], sites: Places) -> Float[np.ndarray, "robots 2"]:
    """For each start in turn, the nearest site that is still free."""
    free, chosen = np.ones(len(sites), dtype=bool), list[int]()
    for start in starts:
        chosen.append(int(np.where(free, ((sites - start) ** 2).sum(axis=1), np.inf).argmin()))
        free[chosen[-1]] = False
    return sites[chosen]


class World:
    """Immutable rules of the robot team; all changing state is in the episode that methods receive."""

    def __init__(
        self, settings: RobotTeamSettings, field: Field, agents: list[str], ground: Ground | None = None
    ) -> None:
        self.settings, self.field, self.agents = settings, field, agents
        self.rules = rules = settings.rules()
        self.ground = ground or Ground(field.low, field.high)
        limits = list(zip(rules.speeds, rules.turn_rates, strict=True))
        self.round_time_s = settings.round_time_s or max(np.pi / rate + field.reach_m / speed for speed, rate in limits)
        self.mover: Mover = Ideal(field.low, field.high)
        if settings.rovers is not None:
            from swarmbo_envs.robot_team.rovers import Rovers  # needs an extra

            self.mover = Rovers(field, self.ground, settings.rovers, limits, self.round_time_s)
        made: dict[tuple[float, float], Driver] = {}
        for speed, rate in dict.fromkeys(limits):
            own = motion.Unicycle(speed * self.mover.pace, rate * self.mover.pace, field.low, field.high)
            made[speed, rate] = Driver(own, self.ground, rules.wind)
        self.drivers = [made[limit] for limit in limits]
        self.homes = Homes(rules, self.drivers, self.round_time_s, self.mover.reserve, self.mover.off_m)
        diagonal = float(np.hypot(*(field.high - field.low)))
        self.radio_ranges_m = rules.radio_ranges or (0.5 * diagonal,) * len(agents)
        self._links = RadioLinks(agents)
        self._fastest = [speed + float(np.hypot(*rules.wind)) for speed in rules.speeds]  # over ground
        apart = Spacing(rules.separation_m, self._fastest, self.round_time_s, self.mover.off_m)
        self.spacing = apart if rules.separation_m else None
        self.sensors = Sensors(settings, rules, field, agents, max(self._fastest) * self.round_time_s)
        self._starts = checked_starts(settings, field)
        self._there_m = 1e-9 * float((field.high - field.low).max())
        self._parts = self.ground.part_of(field.sites)
        if self._starts is not None:
            self._require_apart(self._starts)
            self.homes.require(self._starts, agents)

    def begin(self, seed: int, number: int, *belief: Any) -> Episode:
        """Begin an episode with every robot at its start, nothing measured, and a score with the belief behind it."""
        generator = rng.stream(seed, "robot_team", "starts", episode=number)
        starts = self._starts
        if starts is None:
            starts = spread(generator, self.field.sites, self.settings.robots)
            self._require_apart(starts)
        headings = generator.uniform(-np.pi, np.pi, size=len(starts))
        rules, poses = self.rules, np.column_stack([starts, headings])
        return Episode(
            *(seed, number, 0, True),
            *belief,
            poses=poses,
            batteries=np.full(len(starts), np.inf) if rules.batteries is None else np.array(rules.batteries),
            bases=starts.copy() if rules.bases is None else np.array(rules.bases, dtype=float),
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
        east, north = sites.T - pose[:2, None]
        near = np.flatnonzero((east**2 + north**2 <= limit**2) & ~episode.measured)
        if self.spacing is not None:
            near = near[self.spacing.is_clear(robot, sites[near], episode.poses[:, :2])]
        driver, time_s = self.drivers[robot], self.round_time_s * SLACK
        # without batteries the arrival heading has no effect, and the cheaper test suffices
        if driver.is_plain and self.rules.batteries is None:
            return near[driver.unicycle.is_within(pose, sites[near], time_s)]
        when, headings = driver.arrivals(pose, sites[near]).T
        possible = when <= time_s
        there = np.column_stack([sites[near], headings])[possible]
        possible[possible] = self.homes.lasts(episode, robot, when[possible], there)
        return near[possible]

    def drive(self, episode: Episode, places: Sequence[Place]) -> list[dict[str, Any]]:
        """Play one round of all robots, in the order of their numbers, and return their infos; changes the episode."""
        here = episode.poses[:, None, :2]
        tracks = None if self.spacing is None else np.repeat(here, len(self.spacing.moments), axis=1)
        infos = [self._drive_and_measure(episode, robot, place, tracks) for robot, place in enumerate(places)]
        episode.note(infos)
        return infos

    def _drive_and_measure(self, episode: Episode, robot: int, place: Place, tracks: Tracks | None) -> dict[str, Any]:
        """Play one robot's round and return its info; its row of ``tracks`` changes, if separation is kept."""
        pose, is_open, is_due = episode.poses[robot], True, self.homes.is_due(episode, robot)
        if is_due:
            goal, is_open = episode.bases[robot], not self.field.sites_only
            homebound = self.homes.homebound(episode, robot)
            as_asked = is_open and np.allclose(place, homebound, rtol=0.0, atol=self._there_m)
        elif self.field.sites_only:
            goal, as_asked, is_open = self._site_to_sample(episode, robot, place)
        else:
            goal, as_asked = self._free_place(pose, place)
        # a path too long for the return is replaced before any robot drives: from here on only its length is cut
        whole, end = self._way(episode, robot, goal, is_due=is_due)
        if end is not goal:
            goal, as_asked, is_open = end, False, False
        is_homeward = self.rules.batteries is not None and bool((end == episode.bases[robot]).all())
        path = self.homes.cut_home(robot, whole) if is_homeward else motion.cut(whole, self.round_time_s * SLACK)
        meant = path
        # earlier robots have driven in the tracks, later ones stand: a robot that drives later makes way
        if tracks is not None:
            path = self._kept_apart(episode, robot, path, tracks)
        # a known end is assigned exactly, so that integration does not let it drift
        is_whole = bool((path[:, 0] == whole[:, 0]).all())
        drive = self.mover.drive(episode, robot, path, goal if is_whole else None, self.sensors.stops)
        arrived = is_whole and drive.is_done
        if tracks is not None and self.mover.off_m and self.spacing is not None:
            at, own = np.linspace(0.0, len(drive.trace) - 1.0, tracks.shape[1]), np.arange(len(drive.trace))
            tracks[robot] = np.column_stack([np.interp(at, own, drive.trace[:, axis]) for axis in range(2)])
        episode.trails[robot] = np.concatenate([episode.trails[robot], drive.trace[1:]])
        stops = [self.sensors.sample(episode, robot, stop, number) for number, stop in enumerate(drive.stops, start=1)]
        # before the measurement at the end, whose info has the battery that is left
        episode.poses[robot] = drive.pose
        self.homes.use(episode, robot, drive.busy_s)
        measurable = drive.failure is None and ((arrived and is_open) or not self.field.sites_only)
        as_meant = arrived or (is_due and drive.is_done and bool((path[:, 0] == meant[:, 0]).all()))
        info = self.sensors.measure(episode, robot, drive.length_m, as_meant and as_asked, measurable)
        if is_due and self.field.sites_only and drive.failure is None:
            # at the base there is nothing to measure, and that is no failure
            info["sampled"] = False
        if drive.failure is not None:
            info["failure"] = drive.failure
        if self.settings.version > 0:
            info["path"] = drive.trace
        return info | ({"on_the_way": stops} if self.sensors.is_used_on_the_way else {})

    def _way(self, episode: Episode, robot: int, goal: Place, *, is_due: bool) -> tuple[Path, Place]:
        """Whole path that a robot sets out on, and its end; empty without a path to the goal."""
        pose, driver = episode.poses[robot], self.drivers[robot]
        if is_due:
            return self.homes.path(episode, robot), goal
        path = driver.path(pose, goal)
        if path is None:
            return np.zeros((0, 3)), pose[:2].copy()
        if self.homes.lasts_for(episode, robot, motion.cut(path, self.round_time_s * SLACK)):
            return path, goal
        # it could not return from its stop at the end of the round: it returns at once
        return self.homes.path(episode, robot), episode.bases[robot].copy()

    def _kept_apart(self, episode: Episode, robot: int, path: Path, tracks: Tracks) -> Path:
        """Longest part of a path that keeps the separation and lets the robot reach its base."""
        assert self.spacing is not None
        pose, moments = episode.poses[robot], self.spacing.moments
        own = motion.poses_at(pose, path, moments)[:, :2]
        bases = None if self.rules.batteries is None else episode.bases
        for moment in self.spacing.stops(robot, own, tracks, bases):
            part = path if moment == len(moments) - 1 else motion.cut(path, float(moments[moment]))
            if moment == 0 or self.homes.lasts_for(episode, robot, part):
                tracks[robot] = own[np.minimum(np.arange(len(own)), moment)]
                return part
        raise AssertionError("the first moment is always one at which it may stay")

    def _free_place(self, pose: Pose, place: Place) -> tuple[Place, bool]:
        """Goal for a requested location, and True if unchanged: without a path it is the nearest site."""
        if self.ground.is_open:
            return place, True
        part, wanted = self.ground.part_of(np.stack([pose[:2], place]))
        if part == wanted:
            return place, True
        near = np.where(self._parts == part, ((self.field.sites - place) ** 2).sum(axis=1), np.inf)
        return (self.field.sites[near.argmin()] if np.isfinite(near).any() else pose[:2]).copy(), False

    def _require_apart(self, starts: Robots) -> None:
        if self.spacing is None:
            return
        bases = starts if self.rules.bases is None else np.array(self.rules.bases)
        for places, what in ((starts, "starts"), (bases, "bases")):
            if not all(self.spacing.is_clear(robot, place[None], places).all() for robot, place in enumerate(places)):
                room = max(float(self.spacing.least(robot).max()) for robot in range(len(places)))
                got = f"got {self.rules.separation_m:g} m and {what} nearer than that"
                why = "as distances are checked at moments of the round only"
                raise ConfigError(f"{got}; wanted {what} at least {room:g} m apart, {why}", at="$.separation_m")

    def _site_to_sample(self, episode: Episode, robot: int, place: Place) -> tuple[Place, bool, bool]:
        """Goal if only sites can be measured, True if unchanged, and True if it is still open."""
        sites = self.field.sites
        squared = np.where(episode.measured, np.inf, ((sites - place) ** 2).sum(axis=1))
        nearest = int(squared.argmin())
        # every site was measured: stay
        if np.isinf(squared[nearest]):
            return episode.poses[robot, :2].copy(), False, False
        reachable = self.reachable(episode, robot)
        if len(reachable) == 0:
            return sites[nearest], True, True
        chosen = int(reachable[squared[reachable].argmin()])
        return sites[chosen], chosen == nearest, True
