"""Motion of a robot: a unicycle with bounds on speed and turn rate in closed form, and paths round blocked cells.

A pose is (x, y, heading): metres to the east, metres to the north, radians from east, anticlockwise. A path is two
segments of constant command, each (duration in s, speed in m/s, turn rate in rad/s).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from swarmbo_envs.ground import Ground, PathPlanner
from swarmbo_envs.ground.path_planner import PathTree, turn_between
from swarmbo_envs.shared import Mask, Path, Place, Places, Pose, Values

Angle = TypeVar("Angle", float, np.ndarray)
_FULL_TURN = 2 * np.pi
_POINTS_PER_ARC = 24


@dataclass(frozen=True, eq=False)
class Unicycle:
    """A robot with 0 <= speed <= ``speed_m_s`` and |turn rate| <= ``turn_rate_rad_s`` on a rectangular map."""

    speed_m_s: float
    turn_rate_rad_s: float
    low: Place
    high: Place

    def paths(self, pose: Pose, goals: Places) -> Float[np.ndarray, "k 2 3"]:
        """Commands of the quickest known path to each goal; the heading on arrival is free.

        Compares turning on the spot, then straight, with an arc to a side at full speed and turn rate, then straight.

        Source: arcs and tangents as in Dubins, Amer. J. Math. 79 (1957), with free final heading.
        """
        arcs = [self._arc(pose, goals, side) for side in (1.0, -1.0)]
        options = np.stack([self._turn_then_drive(pose, goals), *arcs])
        return options[options[:, :, :, 0].sum(axis=2).argmin(axis=0), np.arange(len(goals))]

    def is_within(self, pose: Pose, goals: Places, time_s: float) -> Mask:
        """Mask of goals whose quickest known path takes at most ``time_s``; arcs are tried if turns are too slow."""
        turn, distance = self._turns(pose, goals)
        within = np.abs(turn) / self.turn_rate_rad_s + distance / self.speed_m_s <= time_s
        for side in (1.0, -1.0):
            left = np.flatnonzero(~within)
            within[left] = self._arc(pose, goals[left], side)[:, :, 0].sum(axis=1) <= time_s
        return within

    def _turns(self, pose: Pose, goals: Places) -> tuple[Values, Values]:
        offset = goals - pose[:2]
        distance = np.hypot(offset[:, 0], offset[:, 1])
        return np.where(distance > 0, wrap_angle(np.arctan2(offset[:, 1], offset[:, 0]) - pose[2]), 0.0), distance

    def _turn_then_drive(self, pose: Pose, goals: Places) -> Float[np.ndarray, "k 2 3"]:
        turn, distance = self._turns(pose, goals)
        path = np.zeros((len(goals), 2, 3))
        path[:, 0, 0] = np.abs(turn) / self.turn_rate_rad_s
        path[:, 0, 2] = np.sign(turn) * self.turn_rate_rad_s
        path[:, 1, 0] = distance / self.speed_m_s
        path[:, 1, 1] = self.speed_m_s
        return path

    def _arc(self, pose: Pose, goals: Places, side: float) -> Float[np.ndarray, "k 2 3"]:
        """Arc to one side (1 left, -1 right), then the tangent to the goal; infinite durations if there is none."""
        radius, rate = self.speed_m_s / self.turn_rate_rad_s, side * self.turn_rate_rad_s
        start = pose[2] - side * np.pi / 2  # direction from the circle's centre to the robot
        centre = pose[:2] - radius * np.array([np.cos(start), np.sin(start)])
        offset = goals - centre
        straight = np.sqrt(np.maximum((offset**2).sum(axis=1) - radius**2, 0.0))
        leave = np.arctan2(offset[:, 1], offset[:, 0]) - side * np.arctan2(straight, radius)
        sweep = np.mod(side * (leave - start), _FULL_TURN)
        # rounding must not send the robot round the circle to a goal ahead
        sweep[sweep > _FULL_TURN - 1e-9] = 0.0
        outside = np.hypot(offset[:, 0], offset[:, 1]) >= radius
        possible = outside & self._stays_on_map(centre, radius, start, side, sweep)
        path = np.empty((len(goals), 2, 3))
        path[:, 0, 0], path[:, 0, 1:] = sweep / self.turn_rate_rad_s, (self.speed_m_s, rate)
        path[:, 1, 0], path[:, 1, 1:] = straight / self.speed_m_s, (self.speed_m_s, 0.0)
        path[~possible, :, 0] = np.inf
        return path

    def _stays_on_map(self, centre: Place, radius: float, start: float, side: float, sweep: Values) -> np.ndarray:
        """Mask of arcs on the map; an arc's extremes are its ends and its points due east, north, west and south."""
        slack = 1e-9 * (self.high - self.low).max()
        inside = np.ones(sweep.shape, dtype=bool)
        # most arcs: the whole circle lies on the map
        if (centre - radius >= self.low).all() and (centre + radius <= self.high).all():
            return inside
        for direction in (*np.arange(4) * np.pi / 2, start + side * sweep):
            point = centre + radius * np.stack([np.cos(direction), np.sin(direction)], axis=-1)
            on_map = ((point >= self.low - slack) & (point <= self.high + slack)).all(axis=-1)
            passed = np.mod(side * (direction - start), _FULL_TURN) <= sweep
            inside &= on_map | ~passed
        return inside


def cut(path: Path, time_s: float, spare_s: float = 0.0) -> Path:
    """Part of a path driven within a time; all of it if at most ``spare_s`` would remain."""
    if path[:, 0].sum() <= time_s + spare_s:
        return path.copy()
    begins = np.cumsum(path[:, 0]) - path[:, 0]
    # keeps the path's own durations bit-identical if time suffices: completeness is tested by equality
    return np.column_stack([np.minimum(path[:, 0], np.maximum(time_s - begins, 0.0)), path[:, 1:]])


def length(path: Path) -> float:
    """Metres driven along a path."""
    return float(path[:, 0] @ path[:, 1])


def advance(pose: Pose, path: Path) -> Pose:
    """Pose at the end of a path: the unicycle's equations of motion, integrated exactly."""
    x, y, heading = pose.tolist()
    for duration, speed, rate in path.tolist():
        turn = rate * duration
        chord = speed * duration * float(np.sinc(turn / _FULL_TURN))  # np.sinc(z) = sin(pi z) / (pi z)
        x += chord * np.cos(heading + turn / 2)
        y += chord * np.sin(heading + turn / 2)
        heading += turn
    return np.array([x, y, wrap_angle(heading)])


def ends_of_arcs(pose: Pose, segments: Float[np.ndarray, "k 3"]) -> Places:
    """End points of segments that all begin at one pose."""
    turn = segments[:, 2] * segments[:, 0]
    chord = segments[:, 1] * segments[:, 0] * np.sinc(turn / _FULL_TURN)
    return pose[:2] + chord[:, None] * np.column_stack([np.cos(pose[2] + turn / 2), np.sin(pose[2] + turn / 2)])


def poses_at(pose: Pose, path: Path, times: Values) -> Float[np.ndarray, "k 3"]:
    """Poses on a path at increasing times in s from its beginning; a robot stays at the end."""
    poses, start, begin = np.tile(pose, (len(times), 1)), pose, 0.0
    for number, segment in enumerate(path):
        end = begin + segment[0]
        now = (times >= begin) if number == len(path) - 1 else (times >= begin) & (times < end)
        part = np.tile(segment, (int(now.sum()), 1))
        part[:, 0] = np.minimum(times[now] - begin, segment[0])
        poses[now, :2], poses[now, 2] = ends_of_arcs(start, part), wrap_angle(start[2] + part[:, 0] * part[:, 2])
        start, begin = advance(start, segment[None]), end
    return poses


def places_along(pose: Pose, path: Path, distances: Values) -> Places:
    """Points at increasing distances along a path, m."""
    driven, passed = (np.append(0.0, np.cumsum(amount)) for amount in (path[:, 0] * path[:, 1], path[:, 0]))
    return poses_at(pose, path, np.interp(distances, driven, passed))[:, :2]


def trace(pose: Pose, path: Path) -> Places:
    """Points along a path, for drawing: arcs sampled, straight segments by their ends."""
    points, heading = [pose[None, :2]], float(pose[2])
    for duration, speed, rate in path.tolist():
        pieces = _POINTS_PER_ARC if rate and duration * speed > 0 else 1
        piece_s = duration * (1 / pieces)
        turn = rate * piece_s
        middles: list[float] = []  # headings of the chords
        for _ in range(pieces):
            middles.append(heading + turn / 2)
            heading = wrap_angle(heading + turn)
        if duration * speed > 0:
            chord = speed * piece_s * float(np.sinc(turn / _FULL_TURN))
            steps = chord * np.column_stack([np.cos(middles), np.sin(middles)])
            # Sums from point to point, not from the start, so that rounding equals that of ``advance`` by pieces.
            points.append(np.add.accumulate(np.vstack([points[-1][-1:], steps]))[1:])
    return np.concatenate(points)


def wrap_angle(angle: Angle) -> Angle:
    """The angle in [-pi, pi)."""
    return (angle + np.pi) % _FULL_TURN - np.pi


@dataclass(frozen=True, eq=False)
class Driver:
    """Motion of a robot on a map with blocked cells.

    In the open, it drives as a ``Unicycle``. Round blocked cells or in a current, it turns on the spot and drives the
    straight courses of a ``PathPlanner``. ``wind`` is the current (east, north), m/s.
    """

    unicycle: Unicycle
    ground: Ground
    wind: tuple[float, float] = (0.0, 0.0)

    @cached_property
    def planner(self) -> PathPlanner:
        """Paths round blocked cells."""
        return PathPlanner(self.ground, self.unicycle.speed_m_s, self.unicycle.turn_rate_rad_s, self.wind)

    @property
    def is_plain(self) -> bool:
        """True without blocked cells and current."""
        return self.ground.is_open and not any(self.wind)

    def arrivals(self, pose: Pose, places: Places) -> Places:
        """Earliest known arrival times at places, s, and headings there; infinite if unreachable."""
        if self.is_plain:
            paths = self.unicycle.paths(pose, places)
            return np.column_stack([paths[:, :, 0].sum(axis=1), _last_headings(pose, paths)])
        times, bends, headings = self.planner.arrivals(self.planner.paths_from(pose), places)
        straight = np.flatnonzero(bends == 0)
        paths, is_open = self._arcs(pose, places[straight])
        sooner = is_open & (paths[:, :, 0].sum(axis=1) < times[straight])
        times[straight[sooner]] = paths[sooner, :, 0].sum(axis=1)
        headings[straight[sooner]] = _last_headings(pose, paths[sooner])
        return np.column_stack([times, headings])

    def path(self, pose: Pose, place: Place) -> Path | None:
        """Quickest known path to a place; None if there is none."""
        if self.is_plain:
            return self.unicycle.paths(pose, place[None])[0]
        tree = self.planner.paths_from(pose)
        times, bends, _ = self.planner.arrivals(tree, place[None])
        if bends[0] < 0:
            return None
        if bends[0] == 0:
            paths, is_open = self._arcs(pose, place[None])
            if is_open[0] and paths[0, :, 0].sum() < times[0]:
                return paths[0]
        from_bend = tree.linked(int(bends[0]))  # to the pose
        return self._course_path(pose, [*from_bend[-2::-1], place])

    def return_path(self, tree: PathTree, pose: Pose) -> Path:
        """Path to the base; it, and any remainder of it, takes the time that ``PathPlanner.returns`` states."""
        return self._course_path(pose, tree.linked(int(self.planner.returns(tree, pose[None])[1][0])))

    def _course_path(self, pose: Pose, stops: list[Place]) -> Path:
        position, heading, path = pose[:2], float(pose[2]), list[tuple[float, float, float]]()
        rate = self.unicycle.turn_rate_rad_s
        for stop in stops:
            offset = stop - position
            time = float(self.planner.straight_times(position[None], stop[None])[0, 0])
            if not time > 0.0:  # up to rounding, the robot is there
                continue
            course, distance = float(np.arctan2(offset[1], offset[0])), float(np.hypot(*offset))
            side = float(np.sign(wrap_angle(course - heading)))
            path.append((turn_between(heading, course) / rate, 0.0, side * rate))
            path.append((time, distance / time, 0.0))
            position, heading = stop, course
        return np.array(path).reshape(-1, 3)

    def _arcs(self, pose: Pose, places: Places) -> tuple[Float[np.ndarray, "k 2 3"], np.ndarray]:
        paths = self.unicycle.paths(pose, places)
        diameter = 2 * self.unicycle.speed_m_s / self.unicycle.turn_rate_rad_s
        if not len(places) or any(self.wind) or np.isnan(pose[2]) or not self.ground.is_free_around(pose[:2], diameter):
            return paths, np.zeros(len(places), dtype=bool)
        return paths, self.ground.sees(ends_of_arcs(pose, paths[:, 0]), places)


def _last_headings(pose: Pose, paths: Float[np.ndarray, "k s 3"]) -> Values:
    return wrap_angle(pose[2] + (paths[:, :, 0] * paths[:, :, 2]).sum(axis=1))
