"""Evaluation of single points by copies of a scenario's world, and their infos as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from swarmbo.boundary.values import short
from swarmbo.errors import ConfigError
from swarmbo.evaluations.executor import Evaluate
from swarmbo.runs.attended import entry_point_of, register
from swarmbo.runs.rounds import reset
from swarmbo.runs.scenario import Scenario, make_environment
from swarmbo.runs.world import Environment
from swarmbo.worlds import FunctionWorld

_AT = "$.environment"
# of an agent's info: all that a record or a team reads
_KEYS = ("location", "measurement", "factors", "noise_std", "sampled", "cost", "distance", "source", "failure")


@dataclass(frozen=True)
class CopiedWorld:
    """Work of a worker: a copy of the world, with its maker in the registry of this process."""

    scenario: Scenario
    entry_point: Any
    trust: bool

    @classmethod
    def of(cls, scenario: Scenario, trust: bool) -> "CopiedWorld":
        """Work of a scenario."""
        return cls(scenario, entry_point_of(scenario, "$.workers"), trust)

    def __call__(self) -> Evaluate:
        """Make the copy, and again after a step that raised."""
        register(self.scenario.environment["id"], self.entry_point)
        made: tuple[Environment, FunctionWorld] | None = self._make()

        def evaluate(task: str, point: Mapping[str, float]) -> Any:
            nonlocal made
            (env, world), made = made or self._make(), None  # until the step has succeeded
            env.unwrapped.at_query(number_of(task))
            infos = env.step(world.actions(point, env.possible_agents))[4]
            made = env, world
            return plain_infos(infos)

        return evaluate

    def _make(self) -> tuple[Environment, FunctionWorld]:
        env = make_environment(self.scenario, self.trust)
        reset(env, self.scenario.seed)
        require_copies(env)
        return env, FunctionWorld(env)


def number_of(query_id: str) -> int:
    """Number of a query, from 1: that of its round, if all are evaluated in turn.

    Example:
        >>> number_of("q00012")
        12
    """
    return int(query_id.removeprefix("q"))


def require_copies(env: Environment) -> None:
    """Refuse a world whose copies could answer differently; it has been reset."""
    world, name = env.unwrapped, type(env.unwrapped).__name__
    if not hasattr(world, "factor_graph"):
        raise ConfigError(
            f"got workers, but agents of {name} measure from where they are; wanted no workers, or a world whose "
            "agents set the variables of one function",
            at=_AT,
        )
    if not hasattr(world, "at_query"):
        raise ConfigError(
            f"got workers, but {name} does not state that an outcome depends on the joint point alone; wanted no "
            "workers, or a method at_query(number) of the world",
            at=_AT,
        )
    world.at_query(1)


def plain_infos(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Infos of a step as plain data, as far as records and teams read them."""
    found = {agent: info for agent, info in infos.items() if isinstance(info, Mapping)}
    return {agent: {key: _plain(info[key]) for key in _KEYS if key in info} for agent, info in found.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):  # as JSON keeps it, so that a result found on the disk is the same
        return value if np.isfinite(value) else None
    return short(value)
