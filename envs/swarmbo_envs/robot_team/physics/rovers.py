"""Rovers of a team: their drives on the ground, and recovery from failures."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.extras import needed
from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import Field
from swarmbo_envs.ground import Ground
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.moving import Drive, Mover, Stops
from swarmbo_envs.robot_team.physics.model import Terrain
from swarmbo_envs.robot_team.physics.scene import Scene
from swarmbo_envs.robot_team.physics.simulator import Outcome, Simulator
from swarmbo_envs.robot_team.settings import MujocoSettings

_MAP = 20.0  # least size of a map in rover lengths
_STRIDE = 0.2  # of a rover's length: largest motion of a wheel in a step
_MOST_STEPS = 1_000_000
_TRACE = 10  # control moments between two points of a trace: a second


@dataclass(eq=False)
class Rovers(Mover):
    """Robots with wheels on a terrain, each simulated separately; separation comes from their planned paths.

    A rover that tips over, gets stuck or slides off its path by more than three quarters of its length is put upright
    on the path at the point that it had reached. A rover with an empty battery is carried to its base. Its round has
    failed.
    """

    settings: MujocoSettings
    terrain: Terrain
    ground: Ground
    limits: list[tuple[float, float]]
    round_time_s: float
    _simulators: dict[tuple[float, float], Simulator] = field(default_factory=dict[Any, Simulator])

    @classmethod
    def on(
        cls,
        field: Field,
        ground: Ground,
        settings: MujocoSettings,
        limits: list[tuple[float, float]],
        round_time_s: float,
    ) -> "Rovers":
        """Build the rovers of a world."""
        at, length, step = "$.physics", settings.rover_m, settings.step_s
        needed("mujoco", "mujoco", "physics = 'mujoco'", at)
        if (least := _MAP * length) > (side := float((field.high - field.low).min())):
            raise ConfigError(
                f"got rovers of {length:g} m on a map of {side:g} m; wanted a map of at least {least:g} m, or a "
                f"rover_m of at most {side / _MAP:g}. Try "
                f"physics = {{ mujoco = {{ rover_m = {side / (4 * _MAP):.2g} }} }}",
                at=at,
            )
        fastest = max(speed + rate * length for speed, rate in limits)
        if fastest * step > _STRIDE * length:
            raise ConfigError(
                f"got wheels that turn by {fastest:g} m/s, too fast for rovers of {length:g} m and steps of {step:g} "
                f"s; wanted at most {_STRIDE * length / step:g} m/s. Take lower speeds, longer rovers or shorter steps",
                at=at,
            )
        if (steps := round_time_s / step) > _MOST_STEPS:
            raise ConfigError(
                f"got {steps:,.0f} steps in a round of {round_time_s:g} s; wanted at most {_MOST_STEPS:,}: a shorter "
                "round_time_s, or a smaller map",
                at=at,
            )
        return cls(settings, Terrain.of(field, settings), ground, limits, round_time_s)

    @property
    def pace(self) -> float:
        """Share of their largest speed and turn rate that they plan with."""
        return self.settings.pace

    @property
    def reserve(self) -> float:
        """Share by which a battery must outlast the planned return to base."""
        return self.settings.reserve

    @property
    def off_m(self) -> float:
        """A rover's length."""
        return self.settings.rover_m

    @property
    def n_state(self) -> int:
        """Size of the engine's state of a rover."""
        return self._simulator(0).n_state

    def __getstate__(self) -> dict[str, Any]:
        """State without the engine's objects, which are created again on use."""
        return {**self.__dict__, "_simulators": {}}

    def begin(self, poses: Float[np.ndarray, "robots 3"]) -> Float[np.ndarray, "robots n"]:
        """States of the engine, one per rover."""
        return np.stack([self._simulator(robot).parked(pose) for robot, pose in enumerate(poses)])

    def drive(
        self,
        episode: Episode,
        robot: int,
        path: Float[np.ndarray, "s 3"],
        end: Float[np.ndarray, " 2"] | None,
        stops: Stops,
    ) -> Drive:
        """Follow a path as well as the ground permits."""
        route, battery = motion.trace(episode.poses[robot], path), float(episode.batteries[robot])
        if len(route) < 2 or battery <= 0.0:
            return Drive(episode.poses[robot].copy(), route[:1], 0.0, 0.0, len(route) < 2, np.empty((0, 2)))
        simulator = self._simulator(robot)
        told = simulator.drive(episode.engine[robot], route, self.round_time_s, battery)
        told, pose = self._helped(told, simulator, episode, robot)
        episode.engine[robot] = told.state
        trace = np.clip(told.poses[:, :2], self.ground.low, self.ground.high)
        steps = np.hypot(*np.diff(trace, axis=0).T)
        along = np.append(0.0, np.cumsum(steps))
        length = float(along[-1])
        ask = stops(length)
        places = np.column_stack([np.interp(ask, along, trace[:, axis]) for axis in range(2)])
        thin = np.unique(np.append(np.arange(0, len(trace), _TRACE), len(trace) - 1))
        is_done = told.failure is None and bool(np.hypot(*(pose[:2] - route[-1])) <= self.off_m)
        return Drive(pose, np.vstack([trace[thin], pose[:2]]), length, told.busy_s, is_done, places, told.failure)

    def scene(self, width: int, height: int) -> Scene:
        """Scene of the rovers on their ground."""
        return Scene(self.terrain, self.settings, len(self.limits), width, height)

    def _helped(
        self, told: Outcome, simulator: Simulator, episode: Episode, robot: int
    ) -> tuple[Outcome, Float[np.ndarray, " 3"]]:
        """Outcome after recovery, if a rover needs it, and its pose."""
        pose = told.poses[-1].copy()
        pose[:2] = np.clip(pose[:2], self.ground.low, self.ground.high)
        if told.failure == "battery empty":
            if np.hypot(*(pose[:2] - episode.bases[robot])) <= self.off_m:
                return replace(told, failure=None), pose
            pose[:2] = episode.bases[robot]
        elif told.failure is not None or not self.ground.is_free(pose[None, :2])[0]:
            pose[:2] = told.back
        else:
            return told, pose
        return replace(told, state=simulator.parked(pose)), pose

    def _simulator(self, robot: int) -> Simulator:
        limits = self.limits[robot]
        if limits not in self._simulators:
            self._simulators[limits] = Simulator(self.terrain, self.settings, *limits)
        return self._simulators[limits]
