"""Any PettingZoo environment as a function of its joint action; and worlds with outcomes from clients of a service."""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, SupportsFloat

import numpy as np
import pettingzoo
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from swarmbo.boundary import values
from swarmbo.errors import ConfigError, TransportError
from swarmbo.problem import OutcomeMode
from swarmbo.problem.data import News
from swarmbo.records import Goal
from swarmbo.spaces.variables import MixedDomain
from swarmbo.worlds.actions import variables_of
from swarmbo.worlds.functions import FactorGraphSpec, FunctionWorld
from swarmbo.worlds.protocol import Infos, Positions, Step, require_parallel

Measurement = Callable[[Any, Any, Mapping[str, Any]], SupportsFloat | None]
Scopes = Mapping[str, Sequence[str]]


class OneShotWorld(FunctionWorld):
    """An environment without factors, evaluated at one configuration: the action of every agent.

    An evaluation is one joint action, held for ``hold`` steps or until the episode ends. Every entry of an agent's
    action is a variable, ``agent[0]``, ``agent[1]``, …; in a ``Dict``, ``agent[key]``. Discrete actions are choices
    among integers. ``measurement`` is a function of an agent's observation, reward and info; the outcome of its factor
    is the mean over the steps, and failed if one number is None or not finite. Without scopes, the only outcome is the
    total over agents. Agents in no scope act in the middle of their spaces; agents without a scope are not measured.

    The environment is reset only by the user's loop. Reset it before every evaluation, with the same seed, if outcomes
    should depend on the configuration alone. An agent that is not live when an evaluation begins sets nothing: factors
    that depend on it fail, and so does the total.
    """

    def __init__(
        self, env: "ParallelEnv[str, Any, Any]", measurement: Measurement, scopes: Scopes | None = None, hold: int = 1
    ) -> None:
        if not callable(measurement):
            got = f"got {measurement!r}; wanted a function of (observation, reward, info)"
            raise ConfigError(got, at="$.measurement")
        super().__init__(env, _graph_spec(env, scopes))
        self._measurement, self._hold = measurement, values.whole_number(hold, 1, "$.hold")
        needed: Scopes = {agent: (agent,) for agent in self.agents} if scopes is None else scopes
        self._needed_agents = {agent: tuple(scope) for agent, scope in needed.items()}  # whose actions a factor needs
        self._sent_actions: dict[str, Any] | None = None  # the actions of the current evaluation
        self._step_measurements: list[dict[str, float]] = []  # its measurements, step by step

    @property
    def horizon(self) -> int | None:
        """None: an episode's length does not give the number of evaluations."""
        return None

    def begin(self, infos: Infos) -> None:
        """Abandon the current evaluation."""
        self._sent_actions, self._step_measurements = None, []

    def actions(self, point: Mapping[str, Any], agents: Sequence[str], now: Positions | None = None) -> dict[str, Any]:
        """Actions of the live agents that begin an evaluation of a joint point."""
        live = [agent for agent in agents if agent in self._env.agents]
        self._sent_actions, self._step_measurements = super().actions(point, live), []
        return self._repeated_actions(live)

    def continued_actions(self, agents: Sequence[str]) -> dict[str, Any] | None:
        """Actions that continue an evaluation; None if no evaluation is in progress."""
        return self._repeated_actions(agents) if self._sent_actions is not None and self._step_measurements else None

    def news(self, sent: Mapping[str, Any] | None, step: Step) -> News | None:
        """Result of an evaluation after its last step; None before that, or without a query."""
        if sent is None:
            return None
        present = [agent for agent in self._needed_agents if agent in step.observations and agent in step.rewards]
        self._step_measurements.append({agent: self._measured(agent, step) for agent in present})
        is_over = all(step.terminations.get(agent) or step.truncations.get(agent) for agent in step.observations)
        if len(self._step_measurements) < self._hold and not is_over:
            return None
        outcomes = {agent: self._mean(agent) for agent in self._needed_agents}
        # the point as sent, rounded to the number type of the actions
        point = self.point({agent: {"location": own} for agent, own in (self._sent_actions or {}).items()}, sent)
        self.begin({})
        return self._news(sent, point, math.fsum(outcomes.values()) if self.outcomes == "total" else outcomes)

    def _repeated_actions(self, agents: Sequence[str]) -> dict[str, Any]:
        sent = self._sent_actions or {}
        return {agent: deepcopy(sent[agent]) for agent in agents if agent in sent and agent in self._env.agents}

    def _measured(self, agent: str, step: Step) -> float:
        value = self._measurement(step.observations[agent], step.rewards[agent], step.infos.get(agent, {}))
        return values.outcome_from_user(value, repr(agent))

    def _mean(self, agent: str) -> float:
        """Mean of an agent's measurements in this evaluation; NaN if its outcome failed."""
        measured = [step[agent] for step in self._step_measurements if agent in step]
        needed, sent = self._needed_agents[agent], self._sent_actions
        has_absent = sent is not None and any(other not in sent for other in needed)
        return np.nan if has_absent or not measured else math.fsum(measured) / len(measured)


def _graph_spec(env: "ParallelEnv[str, Any, Any]", scopes: Scopes | None) -> FactorGraphSpec:
    require_parallel(env)
    own = {agent: variables_of(env.action_space(agent), agent) for agent in env.possible_agents}
    bounds = {name: variable for variables in own.values() for name, variable in variables.items()}
    variable_owners = {variable: agent for agent, variables in own.items() for variable in variables}
    if scopes is None:
        return FactorGraphSpec(bounds, variable_owners)
    for agent, scope in values.table(scopes, "{agent: [agents that its factor depends on]}", "$.scopes").items():
        if isinstance(scope, str):
            raise ConfigError(f"got the string {scope!r}; wanted a list of agents", at=f"$.scopes.{agent}")
        values.known_names((agent, *scope), own, f"$.scopes.{agent}")
    named = {agent: [variable for name in scope for variable in own[name]] for agent, scope in scopes.items()}
    return FactorGraphSpec(bounds, variable_owners, named, {agent: agent for agent in scopes}, outcomes="per-factor")


class _Served(ParallelEnv[str, Any, Any]):
    """Environment that states its problem, and refuses to evaluate anything."""

    def __init__(self, name: str, unit: str, boxes: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
        self.metadata = {"name": name or "served"}
        self.labels = {"name": name, "unit": unit}
        self.possible_agents, self.agents = list(boxes), list[str]()
        try:
            self._boxes = {agent: Box(*np.array(ends, dtype=float), dtype=np.float64) for agent, ends in boxes.items()}
        except (TypeError, ValueError, AssertionError) as error:
            raise ConfigError(f"got bounds that are not (low, high): {error}; wanted numbers", at="$.bounds") from error

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
        bounds: (low, high) of each variable, or a table of its type, as in a ``Problem``.
        scopes: Variables of each factor, if the function is known to be a sum of factors.
        outcomes: ``total``, or ``per-factor`` if clients tell the outcome of each factor.
        name: Name of the function, for titles.
        unit: Unit of the outcome.
        max_cycles: Number of queries, as in the scenario.
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
        values.table(bounds, "{variable: (low, high)}", "$.bounds")
        axes = {variable: of.axis for variable, of in MixedDomain.types_of(bounds, "$.bounds").items()}
        super().__init__(name, unit, {variable: ([axis.low], [axis.high]) for variable, axis in axes.items()})
        self.max_cycles, self._bounds, self._scopes, self._outcomes = max_cycles, bounds, scopes, outcomes

    def factor_graph(self) -> dict[str, Any]:
        """The problem, as ``swarmbo.worlds.functions.FactorGraphSpec``."""
        told = {"bounds": self._bounds, "variable_owners": {name: name for name in self._bounds}}
        return {**told, "scopes": self._scopes, "outcomes": self._outcomes}


class ServedField(_Served):
    """Field that agents measure elsewhere, each anywhere in a box; outcomes come from clients of ``swarmbo serve``.

    Args:
        agents: Names of the agents.
        low: Lower bounds (d,) of a location.
        high: Upper bounds (d,).
        task: Task: the ``peak``, a ``map``, or the set above a ``level``.
        level: Level of the task ``level``.
        name: Name of the field, for titles.
        unit: Unit of the outcome.
        max_cycles: Number of queries, as in the scenario.
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
        super().__init__(name, unit, dict.fromkeys(values.distinct_names(agents, "agent", "$.agents"), (low, high)))
        self.max_cycles, self.task, self.level = max_cycles, task, level


def register_served() -> None:
    """Register the worlds with PettingZoo, once."""
    for name, world in (("served/function-v0", ServedFunction), ("served/field-v0", ServedField)):
        if name not in pettingzoo.parallel_registry:
            pettingzoo.register("parallel", name, world)
