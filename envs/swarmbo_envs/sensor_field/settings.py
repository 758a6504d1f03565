"""What a sensor field is made of: sensors, reach, noise, energy, and the task."""

from typing import Annotated, Any, Literal

from swarmbo.settings import Count, Distance, NoiseStd, Probability, Settings, Whole, require, within
from swarmbo_envs.watched import Task, require_level

Pair = tuple[float, float]


class SensorFieldSettings(Settings, frozen=True):
    """The arguments of the sensor field; SensorField describes them."""

    sensors: Annotated[int, within(1, 1024)] = 24
    field: dict[str, Any] | None = None
    task: Task = "map"
    level: float | None = None
    places: list[Pair] | None = None
    place_seed: Whole = 0
    reach_m: Distance | None = None
    spots: Annotated[int, within(1, 1024)] = 25
    radio_range_m: Distance | None = None
    noise_std: NoiseStd = 0.0
    failure_rate: Probability = 0.0
    sample_energy_j: Annotated[float, within(0, 1e12, "an energy", "J")] = 1.0
    energy_price: Annotated[float, within(0, 1e12, "a price per joule")] = 0.0
    battery_j: Annotated[float, within(0, 1e15, "an energy", "J")] | None = None
    max_cycles: Count = 25
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_level(self)
        require(
            self,
            "places",
            lambda places: places is None or len(places) == self.sensors,
            f"one [x, y] per sensor: {self.sensors}",
        )
