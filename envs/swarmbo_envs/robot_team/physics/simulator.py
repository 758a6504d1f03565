"""One rover in MuJoCo: it is put on the ground, and drives a route."""

from dataclasses import dataclass
from math import atan2, hypot, pi
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.extras import needed
from swarmbo_envs.robot_team.physics.following import Follower
from swarmbo_envs.robot_team.physics.model import HALF_TRACK, SIDES, WHEEL, mjcf
from swarmbo_envs.robot_team.physics.settings import MujocoSettings
from swarmbo_envs.robot_team.physics.terrain import Terrain

_CONTROL_S = 0.1  # between commands
_SETTLES_S = 1.0
_TIPPED = 0.3  # of the way up that the rover's own upward axis still points: beyond 72 degrees it has tipped over
_PATIENCE_S = 10.0  # in which it must get on by half a length, besides the time to turn about
_ASTRAY = 0.75  # lengths of a rover off its way, at which it is stopped: it so stays within one
_STANDS_M_S = 0.05
_CLOSE = 0.25  # lengths of a rover from the end of its route at which it has arrived
_DROP = 0.02  # lengths of a rover above the ground from which it is let down

Failure = Literal["tipped over", "stuck", "off its way", "battery empty"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a drive went.

    Args:
        state: Of the engine at its end.
        poses: (x, y, heading) at each command, and at the end.
        busy_s: How long the motors ran.
        failure: What went wrong; None if it arrived, or its time was over.
        back: Where on the route it had got to.
    """

    state: Float[np.ndarray, " n"]
    poses: Float[np.ndarray, "k 3"]
    busy_s: float
    failure: Failure | None
    back: Float[np.ndarray, " 2"]


class Simulator:
    """A rover and its ground. It keeps nothing: what changes is the state that it is given, and returns.

    Args:
        terrain: The ground.
        settings: Of the rover.
        speed_m_s: Its largest speed.
        turn_rate_rad_s: Its largest turn rate.

    Raises:
        MissingPackageError: If MuJoCo is not installed.
    """

    def __init__(self, terrain: Terrain, settings: MujocoSettings, speed_m_s: float, turn_rate_rad_s: float) -> None:
        self._mujoco: Any = needed("mujoco", "mujoco", "physics = 'mujoco'", "$.physics")
        self._terrain, self._settings = terrain, settings
        self._speed, self._turn_rate = speed_m_s, turn_rate_rad_s
        self._model = self._mujoco.MjModel.from_xml_string(mjcf(terrain, settings, speed_m_s, turn_rate_rad_s))
        self._model.hfield_data[:] = (terrain.heights / terrain.relief_m).ravel()
        self._data = self._mujoco.MjData(self._model)
        self._whole = int(self._mujoco.mjtState.mjSTATE_INTEGRATION)
        self._substeps = max(1, round(_CONTROL_S / settings.step_s))
        self._tick_s = self._substeps * settings.step_s

    @property
    def n_state(self) -> int:
        """Numbers of a state."""
        return int(self._mujoco.mj_stateSize(self._model, self._whole))

    def parked(self, pose: Float[np.ndarray, " 3"]) -> Float[np.ndarray, " n"]:
        """The state of a rover that is put upright on the ground, and has settled there."""
        length = self._settings.rover_m
        self._mujoco.mj_resetData(self._model, self._data)
        frame = self._terrain.upright(pose[:2], float(pose[2]), length / 2)
        ground = float(self._terrain.heights_at(pose[None, :2])[0])
        self._data.qpos[:3] = np.array([pose[0], pose[1], ground]) + frame[:, 2] * length * (WHEEL + _DROP)
        self._mujoco.mju_mat2Quat(self._data.qpos[3:7], np.ascontiguousarray(frame).ravel())
        self._stand(round(_SETTLES_S / self._tick_s))
        return self._state()

    def drive(
        self, state: Float[np.ndarray, " n"], route: Float[np.ndarray, "k 2"], most_s: float, battery_s: float
    ) -> Outcome:
        """Follow a route for as long as there is time, then stand.

        Args:
            state: From ``parked`` or an earlier drive.
            route: Places from where the rover stands to where it goes.
            most_s: Time of the round.
            battery_s: Time for which the motors can run.
        """
        self._mujoco.mj_setState(self._model, self._data, state, self._whole)
        length = self._settings.rover_m
        follower = Follower(route, self._speed, self._turn_rate, length)
        patience = _PATIENCE_S + 2 * pi / self._turn_rate
        poses, busy, failure = [self._pose()], 0.0, None
        best, since = 0.0, 0.0
        while failure is None and follower.left_m > _CLOSE * length and busy < most_s:
            x, y, heading = poses[-1]
            self._command(*follower.command(x, y, heading, most_s - busy))
            busy += self._tick_s
            poses.append(self._pose())
            if follower.done_m > best + length / 2:
                best, since = follower.done_m, busy
            failure = self._failure(follower, busy - since > patience, busy >= battery_s)
        if failure is None:  # else it is helped at once
            self._stand(round(_SETTLES_S / self._tick_s), poses)
            failure = self._failure(follower, False, False)
        return Outcome(self._state(), np.array(poses), min(busy, most_s), failure, follower.back_on_route())

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
        """Turn the wheels for a moment."""
        rim = turn_rate * HALF_TRACK * self._settings.rover_m
        self._data.ctrl[:] = [(speed - side * rim) / (WHEEL * self._settings.rover_m) for side in SIDES]
        self._mujoco.mj_step(self._model, self._data, self._substeps)

    def _stand(self, most: int, poses: list[tuple[float, float, float]] | None = None) -> None:
        """Hold the wheels until the rover stands, for a number of moments at the most."""
        for moment in range(most):
            self._command(0.0, 0.0)
            if poses is not None:
                poses.append(self._pose())
            if moment > 2 and hypot(*self._data.qvel[:2]) < _STANDS_M_S:
                return

    def _pose(self) -> tuple[float, float, float]:
        x, y, _, w, i, j, k = self._data.qpos[:7].tolist()
        return x, y, atan2(2.0 * (w * k + i * j), 1.0 - 2.0 * (j * j + k * k))

    def _state(self) -> Float[np.ndarray, " n"]:
        state = np.empty(self.n_state)
        self._mujoco.mj_getState(self._model, self._data, state, self._whole)
        return state
