"""What a robot team is made of: counts, limits, noise, and the field it measures."""

from typing import Any, Literal

from swarmbo.errors import ConfigError
from swarmbo.kernels import KernelName, require_kernel
from swarmbo.settings import Settings, convert, require

Pair = tuple[float, float]
Window = tuple[int, int, int, int]


class ElevationSettings(Settings, frozen=True):
    """A window of a real elevation model that comes with matplotlib.

    Args:
        elevation: ``jacksboro`` (Tennessee, 344 x 403 cells of about 74 m x 93 m) or ``topobathy`` (Vancouver Island
            with the sea floor, 91 x 120 cells of about 2.4 km).
        window: First row, first column, rows and columns in the model's own array. Default: for ``jacksboro``
            [200, 128, 128, 128], which has the model's summit and several lesser peaks; for ``topobathy`` all of it.
    """

    elevation: Literal["jacksboro", "topobathy"]
    window: Window | None = None


class MeasuredSettings(Settings, frozen=True):
    """Points measured by somebody, in a CSV file with a header line.

    Args:
        csv: Path of the file; relative to the current directory.
        x: Column of the coordinate to the east, m, above -1e12 and below 1e12.
        y: Column of the coordinate to the north, likewise.
        value: Column of the measured value, likewise in its unit.
        unit: Its unit, for labels.
        sites: ``only``: robots sample the measured sites themselves, each site once. ``interpolated``: they sample a
            smooth interpolant (ordinary kriging) anywhere in the sites' bounding box.
    """

    csv: str
    x: str
    y: str
    value: str
    unit: str = ""
    sites: Literal["only", "interpolated"] = "only"


class DrawSettings(Settings, frozen=True):
    """A draw from a Gaussian process prior.

    Args:
        kernel: Its covariance function.
        lengthscale_m: Its lengthscale, 1e-6 to 1e12 m.
        std: Prior standard deviation, 1e-12 to 1e12.
        mean: Prior mean, -1e12 to 1e12.
        seed: Which draw; the field stays the same from reset to reset.
        size_m: Width and height of the region, each 1e-6 to 1e12 m.
    """

    kernel: KernelName = "matern52"
    lengthscale_m: float = 500.0
    std: float = 1.0
    mean: float = 0.0
    seed: int = 0
    size_m: Pair = (3000.0, 3000.0)

    def __post_init__(self) -> None:
        require_kernel(self)
        require(self, "lengthscale_m", lambda value: 1e-6 <= value <= 1e12, "a length from 1e-6 to 1e12 m")
        require(self, "std", lambda value: 1e-12 <= value <= 1e12, "a number from 1e-12 to 1e12")
        require(self, "mean", lambda value: abs(value) <= 1e12, "a number from -1e12 to 1e12")
        require(self, "seed", lambda value: value >= 0, "an integer >= 0")
        require(
            self,
            "size_m",
            lambda sides: all(1e-6 <= side <= 1e12 for side in sides),
            "width and height from 1e-6 to 1e12 m",
        )


class DrawnSettings(Settings, frozen=True):
    """The field table that asks for a draw: ``{gp = {...}}``."""

    gp: DrawSettings


FieldSettings = ElevationSettings | MeasuredSettings | DrawnSettings
_FIELD_BY_KEY: dict[str, type[FieldSettings]] = {
    "elevation": ElevationSettings,
    "csv": MeasuredSettings,
    "gp": DrawnSettings,
}


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


def field_settings(table: dict[str, Any] | None, at: str = "$.field") -> FieldSettings:
    """The settings of a field table, whose kind is told by the key it has.

    Args:
        table: As in a scenario file; None for the default, the elevation model.
        at: Path of the table, for messages.

    Raises:
        ConfigError: If the kind can't be told, or a value is wrong.
    """
    if table is None:
        return ElevationSettings(elevation="jacksboro")
    kinds = [key for key in _FIELD_BY_KEY if key in table]
    if len(kinds) != 1:
        got = ", ".join(map(repr, table)) or "an empty table"
        raise ConfigError(f"got {got}; wanted exactly one of the keys 'elevation', 'csv', 'gp'", at=at)
    return convert(table, _FIELD_BY_KEY[kinds[0]], at=at)
