"""How each kind decides a round: by messages over what agents own, or as a baseline has it."""

from dataclasses import replace

import msgspec
import numpy as np

from swarmbo.acquisition import (
    Acquisition,
    ChainAcquisition,
    Decision,
    LocalProblem,
    Situation,
)
from swarmbo.baselines import LawnMower, Random
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, Learned, Model
from swarmbo.belief.model.ensemble_model import learn_ensemble
from swarmbo.belief.model.structured import learn_model
from swarmbo.boundary.values import real_array
from swarmbo.coordination import Solution
from swarmbo.coordination.participant import Coordination, solve_with_agents
from swarmbo.deciding.joint import NO_AGENTS
from swarmbo.deciding.setup import JointBelief, Planner, Solver
from swarmbo.errors import ConfigError
from swarmbo.records import SolveReport
from swarmbo.registry.own_code import checked_as, not_wanted, takes_named
from swarmbo.rng import stream
from swarmbo.transport import InProcess, Routes


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
    seed = int(stream(situation.seed, "agreement", round=situation.round).integers(2**63))
    if transport.as_agents:
        if not isinstance(coordination, Coordination):
            raise ConfigError(NO_AGENTS.format(type(coordination).__name__), at="$.transport.as_agents")
        opened = transport.open(graph.agents, links)
        solution = solve_with_agents(coordination, graph, tables, opened, situation.round, seed)
    else:
        drawing = {"seed": seed} if takes_named(coordination.solve, "seed") else {}  # a user's own need not draw
        solution = coordination.solve(graph, tables, links, **drawing)
        solution = _checked_solution(solution, problem, coordination)
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
