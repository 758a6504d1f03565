"""How each kind decides a round: by messages over what agents own, or as a baseline has it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import (
    Acquisition,
    BoxFunctions,
    ChainAcquisition,
    Decision,
    LocalProblem,
    Situation,
)
from swarmbo.acquisition.success_bound import bounded, gone_back, is_met, parts_together
from swarmbo.acquisition.thompson import SampledFunctions
from swarmbo.agent import ContinuousCoordination, Coordination, maximise_with_agents, solve_with_agents
from swarmbo.baselines import LawnMower, Random
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, Learned, Model
from swarmbo.belief.model.ensemble_model import learn_ensemble
from swarmbo.belief.model.failures import reference, requirements
from swarmbo.belief.model.structured import in_structure, learn_model
from swarmbo.belief.model.success import Requirement
from swarmbo.boundary.values import real_array
from swarmbo.coordination import Solution
from swarmbo.coordination.agreement import Agreement
from swarmbo.deciding.setup import JointBelief, JointPolicy, Maximiser, Planner, Solver
from swarmbo.deciding.sharing import check_traffic, draw_traffic, spread_traffic
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.own_code import checked_as, not_wanted
from swarmbo.records import SolveReport
from swarmbo.rng import stream
from swarmbo.transport import InProcess, Routes

_NO_AGENTS = "got true, but {} knows no agents"


def decide(
    situation: Situation,
    acquisition: ChainAcquisition,
    coordination: Solver | Planner,
    transport: InProcess,
) -> Decision:
    """Where everybody measures next: by messages over the local acquisitions, or as a baseline has it.

    Args:
        situation: What is known.
        acquisition: What a query is worth.
        coordination: How the agents agree.
        transport: What carries their messages.
    """
    if not isinstance(coordination, Random | LawnMower):  # these weigh nothing
        situation = situation.likely()
    if not isinstance(coordination, Solver):
        return _checked_decision(coordination.decide(situation, acquisition), situation, coordination)
    problem = checked_as(LocalProblem | None, acquisition.local_problem(situation), acquisition, "local_problem")
    if problem is None:
        return Decision({}, SolveReport(status="not_needed"))
    graph, tables, links = problem.graph, problem.tables, situation.links
    if transport.as_agents:
        if not isinstance(coordination, Coordination):
            raise ConfigError(_NO_AGENTS.format(type(coordination).__name__), at="$.transport.as_agents")
        solution = solve_with_agents(coordination, graph, tables, transport.open(graph.agents, links), situation.round)
    else:
        solution = _checked_solution(coordination.solve(graph, tables, links), problem, coordination)
    points: dict[str, np.ndarray] = {}
    for agent, index in solution.assignment.items():
        point = problem.shortlists[agent][index]
        if np.isnan(point).any():
            continue  # it declines
        if solution.value > -np.inf or not any((point == other).all() for other in points.values()):
            points[agent] = point  # max-sum on loops may end in a clash: then the later robot stays
    if problem.safeguard is None:
        return Decision(points, solution.report)
    settled = problem.safeguard.settle(points)
    looking = problem.safeguard.traffic(Routes(graph.agents, links), situation.domain.n_dims)
    report = msgspec.structs.replace(solution.report, traffic=solution.report.traffic + looking)
    if any(settled.get(agent) is not points.get(agent) for agent in graph.agents):
        value = problem.value_of(settled)
        gap = None if solution.upper_bound is None or value is None else solution.upper_bound - value
        report = msgspec.structs.replace(report, value=value, gap=gap)
        if report.status == "infeasible" and value is not None and value > -np.inf:
            report = msgspec.structs.replace(report, status="sequential", violated=())  # max-sum had ended in a clash
    return Decision(settled, report)


def learned_model(
    situation: JointSituation,
    belief: JointBelief,
    acquisition: Acquisition,
    previous: Learned | None,
    last: Model | None,
) -> Model:
    """What is made of a history.

    Args:
        situation: What is known.
        belief: Settings of the belief.
        acquisition: May have transforms or models of its own.
        previous: What was learned before the last decision.
        last: The last model; going on from it where that can be done saves time, and changes nothing.
    """
    if isinstance(belief, EnsembleSettings):
        return learn_ensemble(situation, belief, previous, last)
    if isinstance(belief, AdditiveGPSettings):
        return learn_model(acquisition.learn, situation, belief, previous)
    return checked_as(Model, belief.learn(situation, acquisition, previous), belief, "learn")


def decide_joint(
    situation: JointSituation,
    model: Model,
    acquisition: Acquisition,
    coordination: Maximiser | JointPolicy,
    transport: InProcess,
) -> tuple[Float[np.ndarray, " n"], SolveReport]:
    """The next joint point: by messages over the local functions, or as a baseline has it.

    Args:
        situation: What is known.
        model: What was made of it.
        acquisition: What a point is worth.
        coordination: How the agents agree.
        transport: What carries their messages.

    Returns:
        The point (n,) in the unit cube, and how it was agreed. Traffic includes what a joint draw of the factors costs.

    Raises:
        ConfigError: If agents are to run as such, and the method knows none.
        ShapeError: If what comes out is no point.
    """
    if not isinstance(coordination, Maximiser):
        chosen: Any = coordination.decide_joint(situation, acquisition)
        if not (isinstance(chosen, tuple) and len(chosen) == 2 and isinstance(chosen[1], SolveReport)):
            raise not_wanted(chosen, "a point and a SolveReport", coordination, "decide_joint")
        return _checked(chosen[0], situation, coordination), chosen[1]
    inside = in_structure(situation, model.learned.structure)
    functions = checked_as(BoxFunctions, acquisition.local_functions(inside, model), acquisition, "local_functions")
    graph = functions.graph
    links = _links(situation, graph)
    names = {"evaluations": len(situation.history), "pending": len(situation.pending)}
    seed = int(stream(situation.seed, "agreement", **names).integers(2**63))
    agree = _Agree(coordination, transport, links, seed, situation.round)
    if needed := requirements(inside, model.belief.hyperparameters.times):
        agreement = _agreed_within(needed, situation, functions, model.incumbent(), agree)
    else:
        agreement = agree(functions)
    report = agreement.report
    if isinstance(functions, SampledFunctions) and model.belief.is_tied:
        drawing = draw_traffic(graph, Routes(graph.agents, links), model.belief.n_data)
        report = msgspec.structs.replace(report, traffic=report.traffic + drawing)
    return _checked(agreement.point, situation, coordination), report


@dataclass(frozen=True)
class _Agree:
    """How agents agree in this round."""

    coordination: Maximiser
    transport: InProcess
    links: "nx.Graph[str] | None"
    seed: int
    round: int

    def __call__(self, functions: BoxFunctions, *, again: bool = False) -> Agreement:
        if not self.transport.as_agents:
            agreement = self.coordination.maximise(functions, self.links, self.seed)
            return checked_as(Agreement, agreement, self.coordination, "maximise")
        if not isinstance(self.coordination, ContinuousCoordination):
            raise ConfigError(_NO_AGENTS.format(type(self.coordination).__name__), at="$.transport.as_agents")
        opened = self.transport.open(functions.graph.agents, self.links)
        decision = 2 * self.round + int(again)  # there may be two in a round
        return maximise_with_agents(self.coordination, functions, opened, self.seed, decision)


def _agreed_within(
    needed: Sequence[Requirement],
    situation: JointSituation,
    functions: BoxFunctions,
    incumbent: Float[np.ndarray, " n"],
    agree: _Agree,
) -> Agreement:
    """A joint point that will probably succeed: bounded factor by factor, checked together, and taken back if need be.

    Where the check fails, agents agree once more, each within an equal share of what there is to spare.
    """
    graph, origin = situation.graph, reference(situation, needed, incumbent)
    agreement, traffic = None, spread_traffic(functions.graph, Routes(functions.graph.agents, agree.links))
    parts = parts_together(graph, needed)
    for tight in (False, True):
        agreement = agree(bounded(functions, needed, origin, agree.seed, tight=tight), again=tight)
        traffic += agreement.report.traffic
        for _, _, agents in parts:
            traffic += check_traffic(graph, Routes(graph.agents, agree.links), agents)
        if is_met(needed, agreement.point, origin):
            break
    point = agreement.point.copy()
    for columns, own, _ in parts:
        back = origin.copy()
        back[columns] = point[columns]
        if not is_met(own, back, origin):
            point[columns] = gone_back(own, back, origin)[columns]
    report = msgspec.structs.replace(agreement.report, traffic=traffic)
    return replace(agreement, point=point, report=report)


def _links(situation: JointSituation, graph: FactorGraph) -> "nx.Graph[str] | None":
    """Who hears whom while agreeing; None: everyone.

    On scopes that are not the team's own, agents must talk who need not be in contact. Such scopes come from totals,
    which reach everybody over a base station where no relay does, and so do messages then.
    """
    links = situation.links
    is_own = graph.scopes == situation.graph.scopes or situation.outcomes != "total"
    return links if links is None or is_own or nx.is_connected(links) else None


def _checked_solution(solution: object, problem: LocalProblem, coordination: object) -> Solution:
    """The solution, if it is one: a method may be a user's own."""
    found = checked_as(Solution, solution, coordination, "solve")
    for agent, places in problem.shortlists.items():
        index = found.assignment.get(agent)
        if not isinstance(index, int | np.integer) or not 0 <= index < len(places):
            wanted = f"an index from 0 to {len(places) - 1} for {agent!r}"
            raise not_wanted(index, wanted, coordination, "solve")
    return found


def _checked_decision(decision: object, situation: Situation, coordination: object) -> Decision:
    """The decision, if it is one: a planner may be a user's own."""
    found = checked_as(Decision, decision, coordination, "decide")
    d, points = situation.domain.n_dims, dict[str, np.ndarray]()
    for agent, point in checked_as(dict, found.points, coordination, "decide").items():
        place = real_array(point)
        if agent not in situation.agents or place is None or place.shape != (d,) or not np.isfinite(place).all():
            wanted = f"{d} finite numbers for some of {', '.join(map(repr, situation.agents))}"
            raise not_wanted({agent: point}, wanted, coordination, "decide")
        points[agent] = place
    return replace(found, points=points)


def _checked(point: object, situation: JointSituation, coordination: object) -> Float[np.ndarray, " n"]:
    """The point, if it is one: a method may be a user's own."""
    place, n = np.asarray(point, dtype=float), situation.domain.n_dims
    if place.shape != (n,) or not np.isfinite(place).all():
        got = f"shape {place.shape}" if place.shape != (n,) else str(place.tolist())
        raise ShapeError(f"point of {type(coordination).__name__}: got {got}; wanted {n} finite numbers from 0 to 1")
    return place
