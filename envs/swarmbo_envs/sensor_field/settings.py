"""What a sensor field is made of: sensors, reach, noise, energy, and the task."""

from typing import Any, Literal

from swarmbo.settings import Settings, require

Pair = tuple[float, float]
Task = Literal["peak", "map", "level"]


class SensorFieldSettings(Settings, frozen=True):
    """The arguments of the sensor field; SensorField describes them."""

    sensors: int = 24
    field: dict[str, Any] | None = None
    task: Task = "map"
    level: float | None = None
    places: list[Pair] | None = None
    place_seed: int = 0
    reach_m: float | None = None
    spots: int = 25
    radio_range_m: float | None = None
    noise_std: float = 0.0
    failure_rate: float = 0.0
    sample_energy_j: float = 1.0
    energy_price: float = 0.0
    battery_j: float | None = None
    max_cycles: int = 25
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        require(self, "sensors", lambda value: 1 <= value <= 256, "an integer from 1 to 256")
        if self.task == "level":
            require(self, "level", lambda value: value is not None, "the level that is watched, for the task 'level'")
        else:
            require(self, "level", lambda value: value is None, "no level, or the task 'level'")
        require(
            self,
            "places",
            lambda places: places is None or len(places) == self.sensors,
            f"one [x, y] per sensor: {self.sensors}",
        )
        require(self, "place_seed", lambda value: value >= 0, "an integer >= 0")
        for field in ("reach_m", "radio_range_m"):
            require(self, field, lambda value: value is None or value > 0, "a distance > 0 m, or nothing")
        require(self, "spots", lambda value: 1 <= value <= 1024, "an integer from 1 to 1024")
        require(self, "noise_std", lambda value: 0 <= value <= 1e12, "a standard deviation from 0 to 1e12")
        require(self, "failure_rate", lambda value: 0 <= value <= 1, "a probability from 0 to 1")
        require(self, "sample_energy_j", lambda value: 0 <= value <= 1e12, "an energy from 0 to 1e12 J")
        require(self, "energy_price", lambda value: 0 <= value <= 1e12, "a price per joule from 0 to 1e12")
        require(self, "battery_j", lambda value: value is None or 0 <= value <= 1e15, "an energy >= 0 J, or nothing")
        require(self, "max_cycles", lambda value: value >= 1, "an integer >= 1")
