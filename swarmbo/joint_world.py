"""What a team with a factor graph asks of a PettingZoo environment whose agents set the variables of one function."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import networkx as nx
import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from swarmbo.belief.model import OutcomeMode
from swarmbo.checks import real_array, reported_number
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.settings import convert
from swarmbo.spaces import Domain

_AT = "$.environment"


class ToldGraph(msgspec.Struct, frozen=True):
    """What ``env.unwrapped.factor_graph()`` returns.

    Args:
        bounds: (low, high) of every variable, physical; their order is that of joint points.
        variable_owners: The agent that sets each of them.
        scopes: Variables of each factor; None where agents are not told the structure.
        owners: Agent of each factor.
        outcomes: What agents are told after an evaluation.
    """

    bounds: dict[str, tuple[float, float]]
    variable_owners: dict[str, str]
    scopes: dict[str, list[str]] | None = None
    owners: dict[str, str] | None = None
    outcomes: OutcomeMode = "total"


class Evaluation(NamedTuple):
    """What one evaluation came to: where it was really made, if that is known, and its total or table of factors."""

    point: dict[str, float] | None
    outcome: float | Mapping[str, float | None] | None


class JointWorld:
    """A function as its team sees it: variables, factors, links and outcomes; never the truth.

    Variables that are in no factor stay in the middle of their range.

    Args:
        env: A ``ParallelEnv`` that has ``factor_graph()``. The ``Box`` of an agent's actions has its own variables, in
            the order of ``bounds``. Infos carry ``"measurement"``, the total, or ``"factors"`` where outcomes are told
            by factor, and ``"location"``. If it offers ``interaction_graph()``, that is used.
        told: The graph, for an environment that does not tell one.

    Raises:
        ConfigError: If the graph and the action spaces do not fit, or there is no graph.
    """

    def __init__(self, env: "ParallelEnv[str, Any, Any]", told: ToldGraph | None = None) -> None:
        self._env = env
        self._world: Any = env.unwrapped
        if told is None:
            told = convert(self._told(), ToldGraph, f"{_AT}.factor_graph")
        self.agents = tuple(env.possible_agents)
        self.variables = tuple(told.bounds)
        self.outcomes: OutcomeMode = told.outcomes
        self.variable_owners = told.variable_owners
        if set(told.variable_owners) != set(told.bounds):
            raise ConfigError("got owners of other variables than those with bounds", at=f"{_AT}.factor_graph")
        if strangers := sorted({*told.variable_owners.values(), *(told.owners or {}).values()} - set(self.agents)):
            raise ConfigError(f"got owners {strangers}; wanted agents {list(self.agents)}", at=f"{_AT}.factor_graph")
        self.domain = Domain(*np.array([told.bounds[variable] for variable in self.variables]).T)
        self.graph = None if told.scopes is None else self._ordered(told.scopes, told.owners)
        within = set(self.variables) if self.graph is None else set(self.graph.variables)
        self.bounds = {variable: told.bounds[variable] for variable in self.variables if variable in within}
        self._own = {
            agent: [variable for variable in self.variables if told.variable_owners[variable] == agent]
            for agent in self.agents
        }
        for agent, own in self._own.items():
            space, box = env.action_space(agent), np.array([told.bounds[variable] for variable in own])
            fits = isinstance(space, Box) and space.shape == (len(own),) and np.allclose([space.low, space.high], box.T)
            if not fits:
                raise ConfigError(f"got action space {space} of {agent!r}; wanted the bounds of {own}", at=_AT)

    def _told(self) -> Any:
        if not hasattr(self._world, "factor_graph"):
            raise ConfigError(
                "got an environment without factor_graph(); make its team with Team.for_env(env, measurement=…), which "
                "load_state_dict then brings to a saved state",
                at=_AT,
            )
        return self._world.factor_graph()

    def _ordered(self, scopes: Mapping[str, Sequence[str]], owners: Mapping[str, str] | None) -> FactorGraph:
        """The graph, its variables in the world's order."""
        covered = {variable for scope in scopes.values() for variable in scope}
        if strangers := sorted(covered - set(self.variables)):
            raise ConfigError(f"got scopes with {strangers}, which have no bounds", at=f"{_AT}.factor_graph")
        inside = [variable for variable in self.variables if variable in covered]
        acted = {variable: self.variable_owners[variable] for variable in inside}
        graph = FactorGraph.from_scopes(scopes, owners=owners, variable_owners=acted)
        return FactorGraph(graph.factors, graph.scopes, graph.factor_owners, tuple(inside), tuple(acted.values()))

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode, where the environment says."""
        return getattr(self._world, "max_cycles", None)

    def links(self) -> "nx.Graph[str] | None":
        """Who hears whom now; None if the environment does not say."""
        return self._world.interaction_graph() if hasattr(self._world, "interaction_graph") else None

    def place(self, point: Mapping[str, float]) -> list[float]:
        """A joint point as the world has it: all variables in its order."""
        middle = ((self.domain.low + self.domain.high) / 2.0).tolist()
        return [float(point.get(variable, centre)) for variable, centre in zip(self.variables, middle, strict=True)]

    def actions(self, point: Mapping[str, float], agents: Sequence[str]) -> dict[str, np.ndarray]:
        """The actions of agents that together set a joint point, inside their spaces and in their number type."""
        values = dict(zip(self.variables, self.place(point), strict=True))
        actions: dict[str, np.ndarray] = {}
        for agent in agents:
            space = cast(Box, self._env.action_space(agent))  # __init__ has seen to that
            own = np.array([values[variable] for variable in self._own[agent]])
            actions[agent] = np.clip(own.astype(space.dtype), space.low, space.high)
        return actions

    def point(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, float] | None:
        """The joint point that was evaluated, as agents report it; None unless all do."""
        point: dict[str, float] = {}
        for agent, own in self._own.items():
            location = real_array(infos.get(agent, {}).get("location"))
            if location is None or location.shape != (len(own),) or not np.isfinite(location).all():
                return None
            point |= dict(zip(own, location.tolist(), strict=True))
        return {variable: point[variable] for variable in self.variables}

    def outcome(self, infos: Mapping[str, Mapping[str, Any]]) -> float | dict[str, float | None] | None:
        """What came out: the total as the first agent that reports has it, or a table of the factors that were told.

        None where it failed, as does what is no number.
        """
        if self.outcomes == "total":
            return _known(next((info["measurement"] for info in infos.values() if "measurement" in info), None))
        known = () if self.graph is None else self.graph.factors
        tables = [info["factors"] for info in infos.values() if isinstance(info.get("factors"), Mapping)]
        return {factor: _known(own[factor]) for own in tables for factor in known if factor in own}

    def begin(self) -> None:
        """Give up what is going on; one step is one evaluation, so there is nothing."""

    def held(self, agents: Sequence[str]) -> dict[str, np.ndarray] | None:
        """The actions that go on with an evaluation of several steps; None, as one step is one evaluation."""
        return None

    def evaluated(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, Any],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Mapping[str, Mapping[str, Any]],
    ) -> Evaluation | None:
        """What an evaluation came to, of what ``env.step`` returned; None while it goes on."""
        return Evaluation(self.point(infos), self.outcome(infos))


def _known(outcome: object) -> float | None:
    number = reported_number(outcome)
    return None if np.isnan(number) else number
