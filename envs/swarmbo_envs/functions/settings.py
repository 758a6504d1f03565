"""What a function world is made of."""

from typing import Annotated, Any, Literal

import msgspec

from swarmbo.settings import Count, NoiseStd, Probability, Settings, Whole, require, within


class FunctionSettings(Settings, frozen=True):
    """The arguments of the function world; FunctionWorld describes them."""

    function: str = "powell"
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    moved: bool = False
    rescaled: bool = False
    function_seed: Whole = 0
    outcomes: Literal["total", "per-factor"] = "total"
    structure: Literal["known", "hidden"] = "known"
    agents: Annotated[int, within(1, 4096)] | None = None
    noise_std: NoiseStd = 0.0
    relative_noise: Annotated[float, within(0, 10, "a share")] = 0.0
    failure_rate: Probability = 0.0
    max_cycles: Count = 100
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "parameters", _are_within_reason, "counts up to 4096, other numbers from 1e-6 to 1e6 in size")
        require(
            self,
            "outcomes",
            lambda value: value == "total" or self.structure == "known",
            "'total' where the structure is hidden: outcomes of factors would tell it",
        )


def _are_within_reason(parameters: dict[str, Any]) -> bool:
    counts = [value for value in parameters.values() if isinstance(value, int)]
    others = [abs(value) for value in parameters.values() if isinstance(value, float)]
    return all(value <= 4096 for value in counts) and all(value == 0.0 or 1e-6 <= value <= 1e6 for value in others)
