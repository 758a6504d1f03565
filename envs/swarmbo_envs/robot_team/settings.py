"""What a robot team is made of: counts, limits and noise."""

from typing import Any, Literal

from swarmbo.settings import Settings, require

Pair = tuple[float, float]


class RobotTeamSettings(Settings, frozen=True):
    """The arguments of the robot team; RobotTeam describes them."""

    robots: int = 4
    field: dict[str, Any] | None = None
    starts: list[Pair] | None = None
    speed_m_s: float = 5.0
    turn_rate_rad_s: float = 0.5
    round_time_s: float | None = None
    radio_range_m: float | None = None
    noise_std: float = 0.0
    failure_rate: float = 0.0
    travel_cost: float = 0.0
    max_cycles: int = 25
    max_sites: int = 16_384
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        require(self, "robots", lambda value: 1 <= value <= 256, "an integer from 1 to 256")
        require(self, "speed_m_s", lambda value: 1e-6 <= value <= 1e12, "a speed from 1e-6 to 1e12 m/s")
        require(self, "turn_rate_rad_s", lambda value: 1e-6 <= value <= 1e6, "a turn rate from 1e-6 to 1e6 rad/s")
        require(
            self,
            "round_time_s",
            lambda value: value is None or 1e-6 <= value <= 1e12,
            "a time from 1e-6 to 1e12 s, or nothing",
        )
        require(self, "radio_range_m", lambda value: value is None or value > 0, "a distance > 0 m, or nothing")
        require(self, "noise_std", lambda value: 0 <= value <= 1e12, "a standard deviation from 0 to 1e12")
        require(self, "failure_rate", lambda value: 0 <= value <= 1, "a probability from 0 to 1")
        require(self, "travel_cost", lambda value: 0 <= value <= 1e12, "a cost per metre from 0 to 1e12")
        require(self, "max_cycles", lambda value: value >= 1, "an integer >= 1")
        require(self, "max_sites", lambda value: 4 <= value <= 10**6, "an integer from 4 to 1000000")
        require(
            self,
            "starts",
            lambda starts: starts is None or len(starts) == self.robots,
            f"one [x, y] per robot: {self.robots}",
        )
