"""Rovers in MuJoCo: each follows its route on the ground, and is recovered from failures."""

from dataclasses import dataclass, replace
from math import atan2, cos, hypot, pi, sqrt
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError, needed
from swarmbo_envs.fields.field import Field
from swarmbo_envs.ground import Ground
from swarmbo_envs.robot_team import motion, rover_model as model
from swarmbo_envs.robot_team.episode import Drive, Episode, Mover, Stops
from swarmbo_envs.robot_team.settings import MujocoSettings
from swarmbo_envs.shared import Path, Place, Places, Pose

_SHARP = 0.35  # rad: smallest bend of a route at which the rover stops and turns
_AHEAD_S, _AHEAD = 0.8, 1.0  # look-ahead of pure pursuit: this time at full speed, at least this many rover lengths
_BRAKES = 1.5  # m/s²: deceleration that a rover plans with
_CREEPS = 0.15  # share of its speed with which a rover creeps on the last metres
_THERE = 0.1  # rover lengths from a bend at which the bend counts as reached
_GAIN = 2.5  # 1/s: turn rate per heading error
_OFF = 0.5  # rad: largest heading error at which it drives
_CONTROL_S = 0.1  # between commands
_SETTLES_S = 1.0
_TIPPED = 0.3  # vertical part of the rover's upward unit vector: below it, beyond 72 degrees, it has tipped over
_PATIENCE_S = 10.0  # time, besides that of a full turn, in which a rover must advance by half a length
_ASTRAY = 0.75  # rover lengths off its path at which a rover is stopped, so that it stays within one length
_STANDS_M_S = 0.05
_CLOSE = 0.25  # rover lengths from the end of its route at which it has arrived
_DROP = 0.02  # rover lengths above the ground from which a rover is let down
_LEAST_MAP = 20.0  # rover lengths
_STRIDE = 0.2  # of a rover's length: largest motion of a wheel in a step
_MOST_STEPS = 1_000_000
_TRACE = 10  # control moments between two points of a trace: a second
Failure = Literal["tipped over", "stuck", "off its way", "battery empty"]


class Follower:
    """Commands for a rover on its route: pure pursuit (Coulter 1992, CMU-RI-TR-92-01), with stops at sharp bends."""

    def __init__(self, route: Places, speed_m_s: float, turn_rate_rad_s: float, length_m: float) -> None:
        self.speed_m_s, self.turn_rate_rad_s, self.length_m = speed_m_s, turn_rate_rad_s, length_m
        self.done_m, self._piece = 0.0, 0
        route = route[np.append(True, (np.diff(route, axis=0) != 0).any(axis=1))]
        steps = np.diff(route, axis=0)
        along = np.append(0.0, np.cumsum(np.hypot(steps[:, 0], steps[:, 1])))
        courses = np.arctan2(steps[:, 1], steps[:, 0])
        turns = np.abs(np.mod(np.diff(courses) + pi, 2 * pi) - pi)
        self._points = [(x, y) for x, y in route.tolist()]
        self._along = along.tolist()
        self.route_m = float(along[-1])
        self._stops = [*along[1:-1][turns > _SHARP].tolist(), self.route_m]

    def off_m(self, x: float, y: float) -> float:
        """Distance of a place from the route; only the current piece and its two neighbours count."""
        first, last = max(0, self._piece - 1), min(len(self._points) - 2, self._piece + 1)
        if len(self._points) < 2:
            return hypot(x - self._points[0][0], y - self._points[0][1])
        return min(self._nearest(piece, x, y)[1] for piece in range(first, last + 1))

    def command(self, x: float, y: float, heading: float, seconds_left: float) -> tuple[float, float]:
        """Speed and turn rate for the next control moment, ``seconds_left`` before the rover must stand still."""
        self._go_on(x, y)
        stop = self._stops[0]
        ahead = max(_AHEAD * self.length_m, _AHEAD_S * self.speed_m_s)
        goal_x, goal_y = self.at(min(self.done_m + ahead, stop))
        dx, dy = goal_x - x, goal_y - y
        if dx == dy == 0.0:
            return 0.0, 0.0
        error = (atan2(dy, dx) - heading + pi) % (2 * pi) - pi
        turn = max(-self.turn_rate_rad_s, min(self.turn_rate_rad_s, _GAIN * error))
        to_stop = hypot(self.at(stop)[0] - x, self.at(stop)[1] - y)
        # slow enough to stop at a bend, v² = 2 a s, and when its time is over, v = a t; creeping lets it arrive
        speed = min(self.speed_m_s, sqrt(2 * _BRAKES * to_stop) + _CREEPS * self.speed_m_s, _BRAKES * seconds_left)
        return (speed * cos(error) * max(0.0, 1.0 - abs(error) / _OFF), turn)

    def _go_on(self, x: float, y: float) -> None:
        while self._piece < len(self._points) - 1:
            share, _ = self._nearest(self._piece, x, y)
            begin, end = self._along[self._piece], self._along[self._piece + 1]
            self.done_m = max(self.done_m, begin + share * (end - begin))
            to_x, to_y = self._points[self._piece + 1]
            is_there = share == 1.0 or hypot(to_x - x, to_y - y) < _THERE * self.length_m
            if not is_there or self._piece == len(self._points) - 2:
                break
            self._piece, self.done_m = self._piece + 1, end
            if end == self._stops[0]:
                self._stops.pop(0)

    def _nearest(self, piece: int, x: float, y: float) -> tuple[float, float]:
        """Share of a piece at which it is nearest to a place, and the distance."""
        (ax, ay), (bx, by) = self._points[piece], self._points[piece + 1]
        dx, dy = bx - ax, by - ay
        share = max(0.0, min(1.0, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy)))
        return share, hypot(ax + share * dx - x, ay + share * dy - y)

    def at(self, along: float) -> tuple[float, float]:
        """Point of the route after a distance, at or beyond the current piece."""
        piece = self._piece
        while piece < len(self._points) - 2 and self._along[piece + 1] < along:
            piece += 1
        if piece >= len(self._points) - 1:
            return self._points[-1]
        begin, end = self._along[piece], self._along[piece + 1]
        share = min(1.0, (along - begin) / (end - begin))
        (ax, ay), (bx, by) = self._points[piece], self._points[piece + 1]
        return ax + share * (bx - ax), ay + share * (by - ay)


@dataclass(frozen=True, eq=False)
class Result:
    """Result of a drive; ``failure`` is None if it arrived or time ran out, ``back`` the point reached on its route."""

    state: Float[np.ndarray, " n"]
    poses: Float[np.ndarray, "k 3"]
    busy_s: float
    failure: Failure | None
    back: Place


class Simulator:
    """A rover and its ground; stateless: states are passed in and returned."""

    def __init__(
        self, terrain: model.Terrain, settings: MujocoSettings, speed_m_s: float, turn_rate_rad_s: float
    ) -> None:
        self._mujoco: Any = needed("mujoco", "mujoco", "physics = 'mujoco'", "$.physics")
        self._terrain, self._settings = terrain, settings
        self._speed, self._turn_rate = speed_m_s, turn_rate_rad_s
        self._model = self._mujoco.MjModel.from_xml_string(model.mjcf(terrain, settings, speed_m_s, turn_rate_rad_s))
        self._model.hfield_data[:] = (terrain.heights / terrain.relief_m).ravel()
        self._data = self._mujoco.MjData(self._model)
        self._full_physics = int(self._mujoco.mjtState.mjSTATE_INTEGRATION)
        self._substeps = max(1, round(_CONTROL_S / settings.step_s))
        self._tick_s = self._substeps * settings.step_s

    def parked(self, pose: Pose) -> Float[np.ndarray, " n"]:
        """State of a rover that was put upright on the ground and has settled there."""
        length = self._settings.rover_m
        self._mujoco.mj_resetData(self._model, self._data)
        frame = self._terrain.upright(pose[:2], float(pose[2]), length / 2)
        ground = float(self._terrain.heights_at(pose[None, :2])[0])
        self._data.qpos[:3] = np.array([pose[0], pose[1], ground]) + frame[:, 2] * length * (model.WHEEL + _DROP)
        self._mujoco.mju_mat2Quat(self._data.qpos[3:7], np.ascontiguousarray(frame).ravel())
        self._stand()
        return self._state()

    def drive(self, state: Float[np.ndarray, " n"], route: Places, most_s: float, battery_s: float) -> Result:
        """Follow a route for at most ``most_s``, with ``battery_s`` of motor time, then stand."""
        self._mujoco.mj_setState(self._model, self._data, state, self._full_physics)
        length = self._settings.rover_m
        follower = Follower(route, self._speed, self._turn_rate, length)
        patience = _PATIENCE_S + 2 * pi / self._turn_rate
        poses, busy, failure = [self._pose()], 0.0, None
        best_m, improved_s = 0.0, 0.0
        while failure is None and follower.route_m - follower.done_m > _CLOSE * length and busy < most_s:
            x, y, heading = poses[-1]
            self._command(*follower.command(x, y, heading, most_s - busy))
            busy += self._tick_s
            poses.append(self._pose())
            if follower.done_m > best_m + length / 2:
                best_m, improved_s = follower.done_m, busy
            failure = self._failure(follower, busy - improved_s > patience, busy >= battery_s)
        if failure is None:  # otherwise it is put upright at once
            self._stand(poses)
            failure = self._failure(follower, False, False)
        back = np.array(follower.at(follower.done_m))
        return Result(self._state(), np.array(poses), min(busy, most_s), failure, back)

    def _failure(self, follower: Follower, is_stuck: bool, is_empty: bool) -> Failure | None:
        q = self._data.qpos
        if 1.0 - 2.0 * (q[4] ** 2 + q[5] ** 2) < _TIPPED:
            return "tipped over"
        if follower.off_m(float(q[0]), float(q[1])) > _ASTRAY * self._settings.rover_m:
            return "off its way"
        if is_stuck:
            return "stuck"
        return "battery empty" if is_empty else None

    def _command(self, speed: float, turn_rate: float) -> None:
        rim = turn_rate * model.HALF_TRACK * self._settings.rover_m
        self._data.ctrl[:] = [(speed - side * rim) / (model.WHEEL * self._settings.rover_m) for side in model.SIDES]
        self._mujoco.mj_step(self._model, self._data, self._substeps)

    def _stand(self, poses: list[tuple[float, float, float]] | None = None) -> None:
        """Hold the wheels until the rover stands still, for at most the time in which it settles."""
        for moment in range(round(_SETTLES_S / self._tick_s)):
            self._command(0.0, 0.0)
            if poses is not None:
                poses.append(self._pose())
            if moment > 2 and hypot(*self._data.qvel[:2]) < _STANDS_M_S:
                return

    def _pose(self) -> tuple[float, float, float]:
        x, y, _, w, i, j, k = self._data.qpos[:7].tolist()
        return x, y, atan2(2.0 * (w * k + i * j), 1.0 - 2.0 * (j * j + k * k))

    def _state(self) -> Float[np.ndarray, " n"]:
        state = np.empty(int(self._mujoco.mj_stateSize(self._model, self._full_physics)))
        self._mujoco.mj_getState(self._model, self._data, state, self._full_physics)
        return state


class Rovers(Mover):
    """Robots with wheels on a terrain, each simulated separately; separation comes from their planned paths.

    A rover that tips over, gets stuck or slides off its path is put upright on the path at the point that it had
    reached, and one with an empty battery is carried to its base. Its round has failed.
    """

    def __init__(
        self,
        field: Field,
        ground: Ground,
        settings: MujocoSettings,
        limits: list[tuple[float, float]],
        round_time_s: float,
    ) -> None:
        at, length, step = "$.physics", settings.rover_m, settings.step_s
        needed("mujoco", "mujoco", "physics = 'mujoco'", at)
        if (least := _LEAST_MAP * length) > (side := float((field.high - field.low).min())):
            wanted = f"wanted a map of at least {least:g} m, or a rover_m of at most {side / _LEAST_MAP:g}"
            fix = f"physics = {{ mujoco = {{ rover_m = {side / (4 * _LEAST_MAP):.2g} }} }}"
            raise ConfigError(f"got rovers of {length:g} m on a map of {side:g} m; {wanted}: {fix}", at=at)
        fastest = max(speed + rate * length for speed, rate in limits)
        if fastest * step > _STRIDE * length:
            why = f"too fast for rovers of {length:g} m and steps of {step:g} s"
            wanted = f"wanted at most {_STRIDE * length / step:g} m/s: lower speeds, longer rovers or shorter steps"
            raise ConfigError(f"got wheels that run at {fastest:g} m/s, {why}; {wanted}", at=at)
        if (steps := round_time_s / step) > _MOST_STEPS:
            got = f"got {steps:,.0f} steps in a round of {round_time_s:g} s; wanted at most {_MOST_STEPS:,}"
            raise ConfigError(f"{got}: a shorter round_time_s, or a smaller map", at=at)
        self.settings, self.ground, self.limits, self.round_time_s = settings, ground, limits, round_time_s
        self.terrain = model.Terrain.of(field, settings)
        self.pace, self.reserve, self.off_m = settings.pace, settings.reserve, settings.rover_m
        self._simulators: dict[tuple[float, float], Simulator] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State without the engine's objects, which are created again on use."""
        return {**self.__dict__, "_simulators": {}}

    def begin(self, poses: Float[np.ndarray, "robots 3"]) -> Float[np.ndarray, "robots n"]:
        """States of the engine, one per rover."""
        return np.stack([self._simulator(robot).parked(pose) for robot, pose in enumerate(poses)])

    def drive(self, episode: Episode, robot: int, path: Path, end: Place | None, stops: Stops) -> Drive:
        """Follow a path as well as the ground permits."""
        route, battery = motion.trace(episode.poses[robot], path), float(episode.batteries[robot])
        if len(route) < 2 or battery <= 0.0:
            return Drive(episode.poses[robot].copy(), route[:1], 0.0, 0.0, len(route) < 2, np.empty((0, 2)))
        simulator = self._simulator(robot)
        result = simulator.drive(episode.engine[robot], route, self.round_time_s, battery)
        result, pose = self._recovered(result, simulator, episode, robot)
        episode.engine[robot] = result.state
        trace = np.clip(result.poses[:, :2], self.ground.low, self.ground.high)
        along = np.append(0.0, np.cumsum(np.hypot(*np.diff(trace, axis=0).T)))
        length = float(along[-1])
        ask = stops(length)
        places = np.column_stack([np.interp(ask, along, trace[:, axis]) for axis in range(2)])
        thin = np.unique(np.append(np.arange(0, len(trace), _TRACE), len(trace) - 1))
        is_done = result.failure is None and bool(np.hypot(*(pose[:2] - route[-1])) <= self.off_m)
        return Drive(pose, np.vstack([trace[thin], pose[:2]]), length, result.busy_s, is_done, places, result.failure)

    def _recovered(self, result: Result, simulator: Simulator, episode: Episode, robot: int) -> tuple[Result, Pose]:
        """Result and pose of a rover, after recovery if the rover needs it."""
        pose = result.poses[-1].copy()
        pose[:2] = np.clip(pose[:2], self.ground.low, self.ground.high)
        if result.failure == "battery empty":
            if np.hypot(*(pose[:2] - episode.bases[robot])) <= self.off_m:
                return replace(result, failure=None), pose
            pose[:2] = episode.bases[robot]
        elif result.failure is not None or not self.ground.is_free(pose[None, :2])[0]:
            pose[:2] = result.back
        else:
            return result, pose
        return replace(result, state=simulator.parked(pose)), pose

    def _simulator(self, robot: int) -> Simulator:
        limits = self.limits[robot]
        if limits not in self._simulators:
            self._simulators[limits] = Simulator(self.terrain, self.settings, *limits)
        return self._simulators[limits]
