"""Worlds of agents that jointly set the variables of one function."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from swarmbo.boundary.values import reported_number
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.problem import OutcomeMode, Problem
from swarmbo.problem.data import News
from swarmbo.settings import convert
from swarmbo.spaces import Domain
from swarmbo.worlds.infos import Infos, Report, Step
from swarmbo.worlds.protocol import Offers, Positions, World

_AT = "$.environment"


class ToldGraph(msgspec.Struct, frozen=True):
    """Result of ``env.unwrapped.factor_graph()``.

    ``bounds`` are (low, high) of every variable, in the order of joint points; the agent that owns a variable sets it.
    ``scopes`` and ``owners`` are of factors, None if hidden.
    """

    bounds: dict[str, tuple[float, float]]
    variable_owners: dict[str, str]
    scopes: dict[str, list[str]] | None = None
    owners: dict[str, str] | None = None
    outcomes: OutcomeMode = "total"


class FunctionWorld(World):
    """A function as its team sees it: variables, factors, links and outcomes; never the ground truth.

    Variables in no factor stay in the middle of their range. The ``Box`` of an agent's actions has its own variables,
    in the order of ``bounds``. ``told`` is the graph of an environment without one.
    """

    def __init__(self, env: "ParallelEnv[str, Any, Any]", told: ToldGraph | None = None) -> None:
        super().__init__(env)
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
        own_variables = {variable: told.variable_owners[variable] for variable in self.bounds}
        self.problem = Problem.of(self.graph, self.bounds, own_variables, self.outcomes)
        for agent, own in self._own.items():
            space, box = env.action_space(agent), np.array([told.bounds[variable] for variable in own])
            fits = isinstance(space, Box) and space.shape == (len(own),) and np.allclose([space.low, space.high], box.T)
            if not fits:
                raise ConfigError(f"got action space {space} of {agent!r}; wanted the bounds of {own}", at=_AT)

    def _told(self) -> Any:
        if not hasattr(self._world, "factor_graph"):
            fix = "make its team with Team.for_env(env, measurement=…), which load_state_dict brings to a saved state"
            raise ConfigError(f"got an environment without factor_graph(); {fix}", at=_AT)
        return self._world.factor_graph()

    def _ordered(self, scopes: Mapping[str, Sequence[str]], owners: Mapping[str, str] | None) -> FactorGraph:
        covered = {variable for scope in scopes.values() for variable in scope}
        if strangers := sorted(covered - set(self.variables)):
            raise ConfigError(f"got scopes with {strangers}, which have no bounds", at=f"{_AT}.factor_graph")
        inside = [variable for variable in self.variables if variable in covered]
        acted = {variable: self.variable_owners[variable] for variable in inside}
        graph = FactorGraph.from_scopes(scopes, owners=owners, variable_owners=acted)
        return FactorGraph(graph.factors, graph.scopes, graph.factor_owners, tuple(inside), tuple(acted.values()))

    def offers(self, agents: Sequence[str] | None = None) -> Offers:
        """Present links; any participants choose the whole joint point."""
        return Offers() if agents is None else Offers(links=self.links())

    def place(self, point: Mapping[str, float]) -> list[float]:
        """Joint point in the world's form: all variables in its order."""
        middle = ((self.domain.low + self.domain.high) / 2.0).tolist()
        return [float(point.get(variable, centre)) for variable, centre in zip(self.variables, middle, strict=True)]

    def begin(self, infos: Infos) -> News | None:
        """None: a reset evaluates nothing, and nothing continues."""

    def actions(
        self, point: Mapping[str, float], agents: Sequence[str], now: Positions | None = None
    ) -> dict[str, np.ndarray]:
        """Actions that jointly set a joint point, inside the agents' spaces and in their number type."""
        values = dict(zip(self.variables, self.place(point), strict=True))
        own = {agent: np.array([values[variable] for variable in self._own[agent]]) for agent in agents}
        return {agent: self._within(agent, action) for agent, action in own.items()}

    def point(self, infos: Infos) -> dict[str, float] | None:
        """Evaluated joint point, as reported by agents; None unless all report."""
        point: dict[str, float] = {}
        for agent, own in self._own.items():
            place = Report.of(infos.get(agent, {})).place
            if place is None or len(place) != len(own):
                return None
            point |= dict(zip(own, place.tolist(), strict=True))
        return {variable: point[variable] for variable in self.variables}

    def outcome(self, infos: Infos) -> float | dict[str, float | None] | None:
        """Outcome: the first reported total, or a table of the reported factors; None if it failed."""
        reports = [Report.of(info) for info in infos.values()]
        if self.outcomes == "total":
            return _known(next((report.outcome for report in reports if report.is_measured), np.nan))
        known = () if self.graph is None else self.graph.factors
        return {f: _known(report.factors[f]) for report in reports for f in known if f in report.factors}

    def noise_std(self, infos: Infos) -> float | dict[str, float]:
        """Reported standard deviation of the outcome's noise: of the total (NaN if unknown), or by factor."""
        reports = [Report.of(info) for info in infos.values()]
        if self.outcomes == "total":
            return next((report.noise_std for report in reports if report.is_measured), np.nan)
        return {f: std for report in reports for f, std in report.factor_noise.items() if f in report.factors}

    def news(self, sent: Mapping[str, float] | None, step: Step) -> News | None:
        """Result of an evaluation from ``env.step``; None without a query. All of one out of bounds have failed."""
        if sent is None:
            return None
        return self._news(sent, self.point(step.infos), self.outcome(step.infos), self.noise_std(step.infos))

    def _news(
        self,
        sent: Mapping[str, float],
        point: Mapping[str, float] | None,
        outcome: float | Mapping[str, float | None] | None,
        noise_std: float | Mapping[str, float] = np.nan,
    ) -> News:
        problem = self.problem
        if point is not None and not problem.has_point(point):
            point, outcome = None, None
        place = problem.placed(sent if point is None else point)
        if problem.outcomes == "total":
            return News(place, reported_number(outcome), {}, np.nan if isinstance(noise_std, Mapping) else noise_std)
        told = outcome if isinstance(outcome, Mapping) else {}
        factors = {channel: reported_number(told.get(channel)) for channel in problem.channels}
        return News(place, None, factors, noise=noise_std if isinstance(noise_std, Mapping) else {})


def _known(outcome: float) -> float | None:
    return None if np.isnan(outcome) else outcome
