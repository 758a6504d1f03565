"""Settings of the robot team: counts, limits, noise, and rovers in an engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np

from swarmbo.settings import Distance, Fraction, NoiseStd, NonNegative, Settings, require, within
from swarmbo_envs.fields.settings import FieldWorldSettings, StaticField
from swarmbo_envs.shared import Pair

MOST_CELLS = 512  # along the longer side of a map, for path search
Speed = Annotated[float, within(1e-6, 1e12, "a speed", "m/s")]
TurnRate = Annotated[float, within(1e-6, 1e6, "a turn rate", "rad/s")]
Duration = Annotated[float, within(1e-6, 1e12, "a time", "s")]
Number = TypeVar("Number")


class MujocoSettings(Settings, frozen=True):
    """Rovers in MuJoCo.

    Args:
        rover_m: Length of a rover, 0.05 to 100 m; all its other sizes are in proportion.
        pace: Share of its largest speed and turn rate that a rover plans with, > 0 and at most 1: the rest is a reserve
            for slopes.
        reserve: Share by which a battery must outlast the planned return to base, >= 0.
        relief_m: Height range of the terrain, m. Default: the field's own heights if it is an elevation, else a
            twentieth of the map's longer side, or less so that no slope is beyond 19°.
        smoothing_cells: Standard deviation of the Gaussian that smooths the terrain, in its cells, 0 to 16.
        terrain_cells: Cells of the terrain along the map's longer side, 8 to 1024.
        friction: Friction of wheels on the ground, 0 to 10: about the tangent of the steepest slope that they climb.
        step_s: Step of the integration, 0.0001 to 0.02 s.
    """

    rover_m: Annotated[float, within(0.05, 100, "a length", "m")] = 3.0
    pace: Fraction = 0.8
    reserve: NonNegative = 0.2
    relief_m: Distance | None = None
    smoothing_cells: Annotated[float, within(0, 16)] = 1.0
    terrain_cells: Annotated[int, within(8, 1024)] = 128
    friction: Annotated[float, within(0, 10)] = 1.0
    step_s: Annotated[float, within(1e-4, 0.02, "a time", "s")] = 0.01


class PhysicsSettings(Settings, frozen=True):
    """Table of a physics engine: ``{mujoco = {...}}``."""

    mujoco: MujocoSettings = MujocoSettings()


@dataclass(frozen=True)
class Rules:
    """Limits of the robots, one number for each; by default those of version 0.

    None means: ``radio_ranges`` that depend on the size of the map, unlimited ``batteries`` (seconds of driving), the
    starts as ``bases``, and for ``sample_every_m``, that ``samples_per_leg`` states the measurements en route.
    """

    speeds: Sequence[float]
    turn_rates: Sequence[float]
    radio_ranges: Sequence[float] | None
    noise_stds: Sequence[float]
    reports_noise: bool = False
    batteries: Sequence[float] | None = None
    bases: Sequence[Pair] | None = None
    separation_m: float = 0.0
    wind: Pair = (0.0, 0.0)
    samples_per_leg: int = 0
    sample_every_m: float | None = None


class RobotTeamSettings(FieldWorldSettings, frozen=True):
    """Arguments of the robot team; see ``RobotTeam``."""

    version: ClassVar[int] = 0

    field: StaticField | None = None
    robots: Annotated[int, within(1, 1024)] = 4
    starts: list[Pair] | None = None
    speed_m_s: Speed = 5.0
    turn_rate_rad_s: TurnRate = 0.5
    round_time_s: Duration | None = None
    radio_range_m: Distance | None = None
    travel_cost: Annotated[float, within(0, 1e12, "a cost per metre")] = 0.0
    max_sites: Annotated[int, within(4, 10**6)] = 16_384

    def __post_init__(self) -> None:
        super().__post_init__()
        is_each = self.starts is None or len(self.starts) == self.robots
        require(self, "starts", lambda _: is_each, f"one [x, y] per robot: {self.robots}")

    @property
    def rovers(self) -> MujocoSettings | None:
        """Settings of robots in a physics engine; None if there is none."""
        return None

    def rules(self) -> Rules:
        """Limits of each robot."""
        return Rules(
            speeds=each(self.speed_m_s, self.robots),
            turn_rates=each(self.turn_rate_rad_s, self.robots),
            radio_ranges=None if self.radio_range_m is None else each(self.radio_range_m, self.robots),
            noise_stds=each(self.noise_std, self.robots),
        )


class RobotTeamV1Settings(RobotTeamSettings, frozen=True):
    """Arguments of version 1 of the robot team; see ``RobotTeamV1``."""

    version: ClassVar[int] = 1

    speed_m_s: Speed | list[Speed] = 5.0  # pyright: ignore[reportIncompatibleVariableOverride]
    turn_rate_rad_s: TurnRate | list[TurnRate] = 0.5  # pyright: ignore[reportIncompatibleVariableOverride]
    radio_range_m: Distance | list[Distance] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    noise_std: NoiseStd | list[NoiseStd] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]
    battery_s: Duration | list[Duration] | None = None
    bases: list[Pair] | None = None
    separation_m: NonNegative = 0.0
    wind: Pair = (0.0, 0.0)
    samples_per_leg: Annotated[int, within(0, 64)] = 0
    sample_every_m: Distance | None = None
    no_go: list[dict[str, Any]] | None = None
    clearance_m: NonNegative = 0.0
    route_cells: Annotated[int, within(8, MOST_CELLS)] = 128
    physics: Literal["kinematic", "mujoco"] | PhysicsSettings = "kinematic"

    def __post_init__(self) -> None:
        super().__post_init__()
        each_one = f"for each of {self.robots} robots"
        for name in ("speed_m_s", "turn_rate_rad_s", "radio_range_m", "noise_std", "battery_s"):
            given = getattr(self, name)
            is_each = not isinstance(given, list) or len(given) == self.robots
            require(self, name, lambda _, holds=is_each: holds, f"a number, or one {each_one}")
        n_bases = None if self.bases is None else len(self.bases)
        require(self, "bases", lambda _: n_bases in (None, 1, self.robots), f"one [x, y], or one {each_one}")
        one_of_them = "none together with samples_per_leg: both state where robots measure en route"
        require(self, "sample_every_m", lambda it: it is None or self.samples_per_leg == 0, one_of_them)
        slowest = min(each(self.speed_m_s, self.robots))
        below = f"[east, north] in m/s, less than 95 % of the slowest robot's speed, {slowest:g} m/s"
        require(self, "wind", lambda wind: bool(np.hypot(*wind) < 0.95 * slowest), below)
        are_own = n_bases in (None, self.robots)
        require(self, "separation_m", lambda it: it == 0.0 or are_own, "0 where robots share a base")
        on_wheels = "no current, [0, 0]: physics = 'mujoco' moves robots with wheels"
        require(self, "wind", lambda wind: self.rovers is None or not any(wind), on_wheels)

    @property
    def rovers(self) -> MujocoSettings | None:
        """Settings of robots in a physics engine; None if there is none."""
        if isinstance(self.physics, PhysicsSettings):
            return self.physics.mujoco
        return MujocoSettings() if self.physics == "mujoco" else None

    def rules(self) -> Rules:
        """Limits of each robot."""
        batteries = None if self.battery_s is None else each(self.battery_s, self.robots)
        bases = None if self.bases is None else self.bases * (self.robots if len(self.bases) == 1 else 1)
        own = {name: getattr(self, name) for name in ("separation_m", "wind", "samples_per_leg", "sample_every_m")}
        reports_noise = isinstance(self.noise_std, list)
        return replace(super().rules(), reports_noise=reports_noise, batteries=batteries, bases=bases, **own)


def each(value: Number | list[Number], robots: int) -> tuple[Number, ...]:
    """One number per robot, from one for all or one for each."""
    return tuple(value) if isinstance(value, list) else (value,) * robots
