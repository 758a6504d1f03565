"""Settings of the robot team: counts, limits, noise, and rovers in an engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np

from swarmbo.settings import Count, Distance, Fraction, NoiseStd, NonNegative, Probability, Settings, require, within
from swarmbo_envs.fields.settings import Task, require_level

MOST_CELLS = 512  # along the longer side of a map, in which ways are found
Pair = tuple[float, float]
Speed = Annotated[float, within(1e-6, 1e12, "a speed", "m/s")]
TurnRate = Annotated[float, within(1e-6, 1e6, "a turn rate", "rad/s")]
Duration = Annotated[float, within(1e-6, 1e12, "a time", "s")]
Number = TypeVar("Number")


class MujocoSettings(Settings, frozen=True):
    """Rovers in MuJoCo.

    Args:
        rover_m: Length of a rover, 0.05 to 100 m; all else about it is in proportion.
        pace: Share of its largest speed and turn rate that a rover plans with, > 0 and at most 1: the rest is what it
            has left on slopes.
        reserve: Share by which a battery must last longer than the planned way home, >= 0.
        relief_m: Height of the terrain from its lowest place to its highest, m. Default: the field's own heights where
            it is an elevation, else a twentieth of the map's longer side, or less so that no slope is beyond 19°.
        smoothing_cells: Standard deviation of the Gaussian that smooths the terrain, in its cells, 0 to 16.
        terrain_cells: Cells of the terrain along the map's longer side, 8 to 1024.
        friction: Of wheels on the ground, 0 to 10: about the tangent of the steepest slope that they can climb.
        step_s: Of the integration, 0.0001 to 0.02 s.
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
    """The table that asks for an engine: ``{mujoco = {...}}``.

    Args:
        mujoco: Rovers in MuJoCo.
    """

    mujoco: MujocoSettings = MujocoSettings()


@dataclass(frozen=True)
class Rules:
    """Limits of the robots, one number for each; by default those of version 0.

    Args:
        speeds: m/s.
        turn_rates: rad/s.
        radio_ranges: m; None: what fits the map.
        noise_stds: Of measurements.
        is_noise_told: Whether robots say how noisy their sensor is.
        batteries: Seconds of driving; None: without end.
        bases: Where they load; None: where they started.
        separation_m: How far from each other they stay.
        wind: The current (east, north), m/s.
        samples_per_leg: Measurements on the way of a round, besides the one at its end.
        sample_every_m: Metres driven between them; None: as many as that.
    """

    speeds: Sequence[float]
    turn_rates: Sequence[float]
    radio_ranges: Sequence[float] | None
    noise_stds: Sequence[float]
    is_noise_told: bool = False
    batteries: Sequence[float] | None = None
    bases: Sequence[Pair] | None = None
    separation_m: float = 0.0
    wind: Pair = (0.0, 0.0)
    samples_per_leg: int = 0
    sample_every_m: float | None = None


class RobotTeamSettings(Settings, frozen=True):
    """The arguments of the robot team; RobotTeam describes them."""

    version: ClassVar[int] = 0

    robots: Annotated[int, within(1, 256)] = 4
    field: dict[str, Any] | None = None
    task: Task = "peak"
    level: float | None = None
    starts: list[Pair] | None = None
    speed_m_s: Speed = 5.0
    turn_rate_rad_s: TurnRate = 0.5
    round_time_s: Duration | None = None
    radio_range_m: Distance | None = None
    noise_std: NoiseStd = 0.0
    failure_rate: Probability = 0.0
    travel_cost: Annotated[float, within(0, 1e12, "a cost per metre")] = 0.0
    max_cycles: Count = 25
    max_sites: Annotated[int, within(4, 10**6)] = 16_384
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_level(self)
        require(
            self,
            "starts",
            lambda starts: starts is None or len(starts) == self.robots,
            f"one [x, y] per robot: {self.robots}",
        )

    @property
    def rovers(self) -> MujocoSettings | None:
        """Settings of robots in an engine; None where their equations of motion are all there is."""
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
    """The arguments of the robot team in its version 1; RobotTeamV1 describes them."""

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
        for name in ("speed_m_s", "turn_rate_rad_s", "radio_range_m", "noise_std", "battery_s"):
            require(
                self,
                name,
                lambda value: not isinstance(value, list) or len(value) == self.robots,
                f"a number, or one for each of {self.robots} robots",
            )
        require(
            self,
            "bases",
            lambda bases: bases is None or len(bases) in (1, self.robots),
            f"one [x, y], or one for each of {self.robots} robots",
        )
        require(
            self,
            "sample_every_m",
            lambda value: value is None or self.samples_per_leg == 0,
            "none together with samples_per_leg: state one of them, for where robots measure on the way",
        )
        slowest = min(each(self.speed_m_s, self.robots))
        require(
            self,
            "wind",
            lambda wind: bool(np.hypot(*wind) < 0.95 * slowest),
            f"[east, north] in m/s, less than 95 % of the slowest robot's speed, {slowest:g} m/s",
        )
        require(
            self,
            "separation_m",
            lambda value: value == 0.0 or self.bases is None or len(self.bases) == self.robots,
            "0 where robots share a base",
        )
        require(
            self,
            "wind",
            lambda wind: self.rovers is None or not any(wind),
            "no current, [0, 0]: physics = 'mujoco' moves robots with wheels",
        )

    @property
    def rovers(self) -> MujocoSettings | None:
        """Settings of robots in an engine; None where their equations of motion are all there is."""
        if isinstance(self.physics, PhysicsSettings):
            return self.physics.mujoco
        return MujocoSettings() if self.physics == "mujoco" else None

    def rules(self) -> Rules:
        """Limits of each robot."""
        bases = None if self.bases is None else self.bases * (self.robots if len(self.bases) == 1 else 1)
        return replace(
            super().rules(),
            is_noise_told=isinstance(self.noise_std, list),
            batteries=None if self.battery_s is None else each(self.battery_s, self.robots),
            bases=bases,
            separation_m=self.separation_m,
            wind=self.wind,
            samples_per_leg=self.samples_per_leg,
            sample_every_m=self.sample_every_m,
        )


def each(value: Number | list[Number], robots: int) -> tuple[Number, ...]:
    """One number for each robot, of what is one for all or one for each.

    Example:
        >>> each(5.0, 3), each([1.0, 2.0], 2)
        ((5.0, 5.0, 5.0), (1.0, 2.0))
    """
    return tuple(value) if isinstance(value, list) else (value,) * robots
