"""What a function world is made of."""

from typing import Any, Literal

import msgspec

from swarmbo.settings import Settings, require


class FunctionSettings(Settings, frozen=True):
    """The arguments of the function world; FunctionWorld describes them."""

    function: str = "powell"
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    moved: bool = False
    rescaled: bool = False
    function_seed: int = 0
    outcomes: Literal["total", "per-factor"] = "total"
    structure: Literal["known", "hidden"] = "known"
    agents: int | None = None
    noise_std: float = 0.0
    relative_noise: float = 0.0
    failure_rate: float = 0.0
    max_cycles: int = 100
    render_mode: Literal["rgb_array", "ansi", "human"] | None = None

    def __post_init__(self) -> None:
        require(self, "parameters", _are_within_reason, "counts up to 4096, other numbers from 1e-6 to 1e6 in size")
        require(self, "function_seed", lambda value: value >= 0, "an integer >= 0")
        require(self, "agents", lambda value: value is None or 1 <= value <= 4096, "an integer from 1 to 4096")
        require(self, "noise_std", lambda value: 0 <= value <= 1e12, "a standard deviation from 0 to 1e12")
        require(self, "relative_noise", lambda value: 0 <= value <= 10, "a share from 0 to 10")
        require(self, "failure_rate", lambda value: 0 <= value <= 1, "a probability from 0 to 1")
        require(self, "max_cycles", lambda value: value >= 1, "an integer >= 1")
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
