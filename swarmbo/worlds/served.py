"""Worlds without a simulation: their outcomes come from clients of ``swarmbo serve``."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pettingzoo
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from swarmbo.boundary.values import table
from swarmbo.errors import ConfigError, TransportError
from swarmbo.problem import OutcomeMode
from swarmbo.records import Goal
from swarmbo.spaces.variables import MixedDomain


class _Served(ParallelEnv[str, Any, Any]):
    """World that only states its problem."""

    def __init__(self, name: str, unit: str, boxes: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
        self.metadata = {"name": name or "served"}
        self.labels = {"name": name, "unit": unit}
        self.possible_agents, self.agents = list(boxes), list[str]()
        try:
            self._boxes = {agent: Box(*np.array(ends, dtype=float), dtype=np.float64) for agent, ends in boxes.items()}
        except (TypeError, ValueError, AssertionError) as error:
            raise ConfigError(f"got bounds that are no (low, high): {error}; wanted numbers", at="$.bounds") from error

    def action_space(self, agent: str) -> Box:
        return self._boxes[agent]

    def observation_space(self, agent: str) -> Box:
        return Box(0.0, 1.0, (0,))

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(0) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        raise TransportError("the outcomes of this world come from clients; wanted `swarmbo serve`")


class ServedFunction(_Served):
    """Function whose outcomes come from clients of ``swarmbo serve``. One agent sets each variable.

    Args:
        bounds: (low, high) of each variable, or the table of its type, as in a ``Problem``.
        scopes: Variables of each factor, if the function is known to be a sum of factors.
        outcomes: ``total``, or ``per-factor`` if clients tell the outcome of each factor.
        name: Name of the function, for titles.
        unit: Unit of the outcome.
        max_cycles: Number of queries; that of the scenario.
    """

    def __init__(
        self,
        bounds: Mapping[str, Any],
        scopes: Mapping[str, Sequence[str]] | None = None,
        outcomes: OutcomeMode = "total",
        name: str = "",
        unit: str = "",
        max_cycles: int | None = None,
    ) -> None:
        table(bounds, "{variable: (low, high)}", "$.bounds")
        axes = {variable: of.axis for variable, of in MixedDomain.types_of(bounds, "$.bounds").items()}
        super().__init__(name, unit, {variable: ([axis.low], [axis.high]) for variable, axis in axes.items()})
        self.max_cycles, self._bounds, self._scopes, self._outcomes = max_cycles, bounds, scopes, outcomes

    def factor_graph(self) -> dict[str, Any]:
        """The problem, as ``swarmbo.worlds.functions.ToldGraph``."""
        told = {"bounds": self._bounds, "variable_owners": {name: name for name in self._bounds}}
        if self._scopes is None:
            return {**told, "outcomes": self._outcomes}
        owners = {factor: scope[0] for factor, scope in self._scopes.items()}
        return {**told, "scopes": self._scopes, "owners": owners, "outcomes": self._outcomes}


class ServedField(_Served):
    """Field that agents measure elsewhere, each anywhere in a box; outcomes come from clients of ``swarmbo serve``.

    Args:
        agents: Names of the agents.
        low: Lower bounds (d,) of a location.
        high: Upper bounds (d,).
        task: Task: the ``peak``, a ``map``, or the set above a ``level``.
        level: That level.
        name: Name of the field, for titles.
        unit: Unit of the outcome.
        max_cycles: Number of queries; that of the scenario.
    """

    def __init__(
        self,
        agents: Sequence[str],
        low: Sequence[float],
        high: Sequence[float],
        task: Goal = "peak",
        level: float | None = None,
        name: str = "",
        unit: str = "",
        max_cycles: int | None = None,
    ) -> None:
        super().__init__(name, unit, dict.fromkeys(agents, (low, high)))
        self.max_cycles, self.task, self.level = max_cycles, task, level


def register_served() -> None:
    """Register the worlds with PettingZoo, once."""
    for name, world in (("served/function-v0", ServedFunction), ("served/field-v0", ServedField)):
        if name not in pettingzoo.parallel_registry:
            pettingzoo.register("parallel", name, world)
