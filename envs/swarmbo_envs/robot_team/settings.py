"""What a robot team is made of: counts, limits and noise."""

from typing import Annotated, Any, Literal

from swarmbo.settings import Count, Distance, NoiseStd, Probability, Settings, require, within

Pair = tuple[float, float]


class RobotTeamSettings(Settings, frozen=True):
    """The arguments of the robot team; RobotTeam describes them."""

    robots: Annotated[int, within(1, 256)] = 4
    field: dict[str, Any] | None = None
    starts: list[Pair] | None = None
    speed_m_s: Annotated[float, within(1e-6, 1e12, "a speed", "m/s")] = 5.0
    turn_rate_rad_s: Annotated[float, within(1e-6, 1e6, "a turn rate", "rad/s")] = 0.5
    round_time_s: Annotated[float, within(1e-6, 1e12, "a time", "s")] | None = None
    radio_range_m: Distance | None = None
    noise_std: NoiseStd = 0.0
    failure_rate: Probability = 0.0
    travel_cost: Annotated[float, within(0, 1e12, "a cost per metre")] = 0.0
    max_cycles: Count = 25
    max_sites: Annotated[int, within(4, 10**6)] = 16_384
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self,
            "starts",
            lambda starts: starts is None or len(starts) == self.robots,
            f"one [x, y] per robot: {self.robots}",
        )
