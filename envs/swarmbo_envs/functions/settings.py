"""Settings of a function world, and owners of its factors and variables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from swarmbo.errors import ConfigError
from swarmbo.settings import Count, NoiseStd, Probability, Settings, Whole, require, within


class FunctionSettings(Settings, frozen=True):
    """Arguments of the function world; see ``FunctionWorld``."""

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
            "'total' where the structure is hidden: outcomes per factor would reveal it",
        )


def _are_within_reason(parameters: dict[str, Any]) -> bool:
    counts = [value for value in parameters.values() if isinstance(value, int)]
    others = [abs(value) for value in parameters.values() if isinstance(value, float)]
    return all(value <= 4096 for value in counts) and all(value == 0.0 or 1e-6 <= value <= 1e6 for value in others)


@dataclass(frozen=True)
class Ownership:
    """Owner of each factor and variable; each agent owns at least one variable."""

    agents: tuple[str, ...]
    factors: dict[str, str]
    variables: dict[str, str]

    def of(self, agent: str) -> tuple[str, ...]:
        """Variables that an agent sets, in the function's order."""
        return tuple(variable for variable, owner in self.variables.items() if owner == agent)


def share_out(variables: Sequence[str], scopes: Mapping[str, Sequence[str]], n_agents: int | None) -> Ownership:
    """Give every factor and every variable one owner, so that every agent owns a variable.

    A variable belongs to the owner of the first factor that it is in. A factor without new variables belongs to the
    owner of its first variable. Factors that add variables are dealt out evenly, in order, by default one per agent.
    Variables in no factor go to the last agent.
    """
    brings: list[str] = []
    seen: set[str] = set()
    for factor, scope in scopes.items():
        if not seen.issuperset(scope):
            brings.append(factor)
        seen.update(scope)
    count = len(brings) if n_agents is None else n_agents
    if count > len(brings):
        raise ConfigError(
            f"got {count} agents; wanted at most {len(brings)}, one per factor with new variables",
            at="$.agents",
        )
    agents = tuple(f"agent_{i}" for i in range(count))
    leader = {factor: agents[place * count // len(brings)] for place, factor in enumerate(brings)}
    owner_of: dict[str, str] = {}
    factors: dict[str, str] = {}
    for factor, scope in scopes.items():
        factors[factor] = leader[factor] if factor in leader else owner_of[scope[0]]
        for variable in scope:
            owner_of.setdefault(variable, factors[factor])
    return Ownership(agents, factors, {variable: owner_of.get(variable, agents[-1]) for variable in variables})
