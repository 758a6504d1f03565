"""Worlds of agents that jointly set the variables of one function."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float
from pettingzoo import ParallelEnv

from swarmbo.boundary import values
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.problem import OutcomeMode, Problem
from swarmbo.problem.data import News
from swarmbo.settings import convert
from swarmbo.spaces.variables import MixedDomain
from swarmbo.worlds.actions import ActionForm
from swarmbo.worlds.protocol import Infos, Offers, Positions, Report, Step, World

_AT = "$.environment"
_SLACK = 1e-6  # share of a range, since actions may have been rounded to float32


class FactorGraphSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Result of ``env.unwrapped.factor_graph()``.

    ``bounds`` has (low, high) of every variable, in the order of joint points, or the table of its type:
    ``{"kind": "integer", "low": 1, "high": 9}``. The agent that owns a variable sets it. ``scopes`` and ``owners``
    describe the factors; None if hidden. ``present`` has the current value of every variable; None if unknown.
    """

    bounds: dict[str, Any]
    variable_owners: dict[str, str]
    scopes: dict[str, list[str]] | None = None
    owners: dict[str, str] | None = None
    outcomes: OutcomeMode = "total"
    present: dict[str, Any] | None = None


class FunctionWorld(World):
    """A function as its team sees it: variables, factors, links and outcomes; never the ground truth.

    Variables in no factor stay in the middle of their range. An action holds the agent's own variables, in the order of
    ``bounds``, in the form of its action space (``swarmbo.worlds.actions.ActionForm``). Infos have ``"measurement"``,
    the total, or ``"factors"`` with outcomes per factor, and ``"location"``, the action that was carried out. ``spec``
    describes the function of an environment without ``factor_graph()``.
    """

    def __init__(self, env: "ParallelEnv[str, Any, Any]", spec: FactorGraphSpec | None = None) -> None:
        super().__init__(env)
        if spec is None:
            if not hasattr(self._world, "factor_graph"):
                fix = "make its team with Team.for_env(env, measurement=…), and restore its state by load_state_dict"
                raise ConfigError(f"got an environment without factor_graph(); {fix}", at=_AT)
            spec = convert(self._world.factor_graph(), FactorGraphSpec, f"{_AT}.factor_graph")
        self.agents = tuple(env.possible_agents)
        self.variables = tuple(spec.bounds)
        self.outcomes: OutcomeMode = spec.outcomes
        self.variable_owners = spec.variable_owners
        if set(spec.variable_owners) != set(spec.bounds):
            raise ConfigError("got owners of other variables than those with bounds", at=f"{_AT}.factor_graph")
        if strangers := sorted({*spec.variable_owners.values(), *(spec.owners or {}).values()} - set(self.agents)):
            raise ConfigError(f"got owners {strangers}; wanted agents {list(self.agents)}", at=f"{_AT}.factor_graph")
        self.types = MixedDomain.types_of(spec.bounds, f"{_AT}.factor_graph.bounds")
        self.domain = MixedDomain.of(list(self.types.values()))
        middle = (self.domain.low + self.domain.high) / 2.0
        if self.is_typed:
            middle = self.domain.from_unit(np.full(self.domain.n_dims, 0.5))
        self._middle: list[float] = middle.tolist()
        self.graph = None if spec.scopes is None else self._ordered(spec.scopes, spec.owners)
        within = set(self.variables) if self.graph is None else set(self.graph.variables)
        self.bounds = {name: variable for name, variable in self.types.items() if name in within}
        acted = {variable: spec.variable_owners[variable] for variable in self.bounds}
        self.problem = replace(Problem.of(self.graph, self.bounds, acted, self.outcomes), present=spec.present)
        own: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        for name, variable in self.types.items():
            own[spec.variable_owners[name]][name] = variable
        self._forms = {agent: ActionForm.of(env.action_space(agent), own[agent], agent) for agent in self.agents}

    def _ordered(self, scopes: Mapping[str, Sequence[str]], owners: Mapping[str, str] | None) -> FactorGraph:
        covered = {variable for scope in scopes.values() for variable in scope}
        if strangers := sorted(covered - set(self.variables)):
            raise ConfigError(f"got scopes with {strangers}, which have no bounds", at=f"{_AT}.factor_graph")
        acted = {variable: self.variable_owners[variable] for variable in self.variables if variable in covered}
        graph = FactorGraph.from_scopes(scopes, owners=owners, variable_owners=acted)
        return FactorGraph(graph.factors, graph.scopes, graph.factor_owners, tuple(acted), tuple(acted.values()))

    def offers(self, agents: Sequence[str] | None = None) -> Offers:
        """Current links; whichever agents take part, they choose the whole joint point."""
        return Offers() if agents is None else Offers(links=self.links())

    def place(self, point: Mapping[str, Any]) -> list[float]:
        """Codes of all variables at a joint point, in the world's order; if missing, in the middle of their range."""
        pairs = zip(self.types.items(), self._middle, strict=True)
        codes = [variable.code(point[name]) if name in point else middle for (name, variable), middle in pairs]
        return [np.nan if code is None else code for code in codes]

    @property
    def is_typed(self) -> bool:
        """True if some variables are integers, choices, on a grid or on a logarithmic axis."""
        return isinstance(self.domain, MixedDomain)

    def named(self, place: Sequence[float]) -> dict[str, Any]:
        """Values of all variables from their codes; NaN for an invalid code."""
        return self._valued(dict(zip(self.variables, place, strict=True)))

    def _valued(self, codes: Mapping[str, float]) -> dict[str, Any]:
        if not self.is_typed:
            return dict(codes)
        types = self.types
        return {name: types[name].value(code) if types[name].axis.has(code) else np.nan for name, code in codes.items()}

    def coded(self, agent: str, action: object) -> list[float] | None:
        """Codes of an agent's own variables in its action; None if the action has another form."""
        codes = self._forms[agent].codes(action)
        return None if codes is None else [codes[variable] for variable in self._forms[agent].axes]

    def begin(self, infos: Infos) -> News | None:
        """Return None: a reset evaluates nothing, and an evaluation takes one step."""

    def actions(self, point: Mapping[str, Any], agents: Sequence[str], now: Positions | None = None) -> dict[str, Any]:
        """Actions that jointly set a joint point, inside the agents' spaces and in their number type."""
        if gone := [agent for agent in agents if agent not in (self._env.agents or agents)]:
            wanted = "all agents to stay until the episode ends, as each one sets variables of the function"
            raise ConfigError(f"got an environment that {gone[0]!r} has left; wanted {wanted}", at=_AT)
        codes = dict(zip(self.variables, self.place(point), strict=True))
        return {agent: self._forms[agent].action(codes) for agent in agents}

    def point(self, infos: Infos, sent: Mapping[str, Any]) -> dict[str, Any] | None:
        """Values at the evaluated joint point, reported by agents or else as sent. They are NaN for an agent whose
        location is invalid. The point is None if no agent reports a location.
        """
        stated = {agent: at for agent, info in infos.items() if info and (at := info.get("location")) is not None}
        if not stated:
            return None
        codes = dict(zip(self.variables, self.place(sent), strict=True))
        for agent, form in self._forms.items():
            if agent in stated:
                codes |= form.codes(stated[agent]) or dict.fromkeys(form.axes, np.nan)
        return self._valued(codes)

    def outcome(self, infos: Infos) -> float | dict[str, float | None] | None:
        """Outcome: the first reported total, or a table of the reported factors; failed outcomes are None."""
        reports = [Report.of(info) for info in infos.values()]
        if self.outcomes == "total":
            return _known(next((report.outcome for report in reports if report.is_measured), np.nan))
        factors = () if self.graph is None else self.graph.factors
        return {name: _known(report.factors[name]) for report in reports for name in factors if name in report.factors}

    def noise_std(self, infos: Infos) -> float | dict[str, float]:
        """Reported standard deviation of the outcome's noise: of the total (NaN if unknown), or by factor."""
        reports = [Report.of(info) for info in infos.values()]
        if self.outcomes == "total":
            return next((report.noise_std for report in reports if report.is_measured), np.nan)
        return {name: std for report in reports for name, std in report.factor_noise.items() if name in report.factors}

    def place_of(self, actions: Mapping[str, Any]) -> Float[np.ndarray, " n"]:
        """Codes of the joint point that actions set, rounded to the values of each variable's grid."""
        domain, codes = self.problem.domain, dict[str, float]()
        values.known_names(values.table(actions, "{agent: action}", "$.actions"), self.agents, "$.actions")
        for agent, form in self._forms.items():
            codes |= form.codes(actions.get(agent)) or dict.fromkeys(form.axes, np.nan)
        place = np.array([codes[variable] for variable in self.problem.graph.variables])
        is_inside = np.abs(place - (domain.low + domain.high) / 2.0) <= (0.5 + _SLACK) * (domain.high - domain.low)
        if is_inside.all():
            return domain.on_grid(np.clip(place, domain.low, domain.high))
        agent = self.variable_owners[self.problem.graph.variables[int(is_inside.argmin())]]
        raise ConfigError(f"got {actions.get(agent)!r:.60}; wanted an action of its space", at=f"$.actions.{agent}")

    def news(self, sent: Mapping[str, Any] | None, step: Step) -> News | None:
        """Result of an evaluation from ``env.step``; None without a query. Outcomes at a point out of bounds failed."""
        if sent is None:
            return None
        return self._news(sent, self.point(step.infos, sent), self.outcome(step.infos), self.noise_std(step.infos))

    def _news(
        self, sent: Mapping[str, Any], point: Mapping[str, Any] | None, outcome: Any, noise_std: Any = np.nan
    ) -> News:
        problem = self.problem
        if point is not None and not problem.has_point(point):
            point, outcome = None, None
        at = sent if point is None else point
        place = problem.placed({name: at[name] for name in problem.graph.variables})  # a world may report others, too
        if problem.outcomes == "total":
            std = np.nan if isinstance(noise_std, Mapping) else noise_std
            return News(place, values.reported_number(outcome), {}, std)
        outcomes = outcome if isinstance(outcome, Mapping) else {}
        factors = {channel: values.reported_number(outcomes.get(channel)) for channel in problem.channels}
        return News(place, None, factors, noise=noise_std if isinstance(noise_std, Mapping) else {})


def _known(outcome: float) -> float | None:
    return None if np.isnan(outcome) else outcome
