"""Decision of the next locations in a field, by steps as in ``joint``; data that all agents know are not sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeGuard

import msgspec
import networkx as nx
import numpy as np

from swarmbo.acquisition import ChainAcquisition, Decision, LocalProblem, Situation
from swarmbo.acquisition.by_view import EachSends, likely_steps
from swarmbo.baselines import Greedy, Independent, LawnMower, Random
from swarmbo.boundary.rng import stream
from swarmbo.boundary.values import real_array
from swarmbo.coordination import Solution
from swarmbo.coordination.plan import has_deadline
from swarmbo.deciding.setup import Planner, Solver
from swarmbo.records import SolveReport
from swarmbo.registry import checked_result, invalid_result, loggable_result
from swarmbo.routing import Planned, Routes
from swarmbo.steps import Steps


class Choose(NamedTuple):
    """Request to maximise a sum of tables, of which only own factors' are read; answered by a ``Solution``."""

    problem: LocalProblem
    links: "nx.Graph[str] | None"
    seed: int


class Visit(NamedTuple):
    """Request to plan routes; answered by a ``Decision``."""

    planned: Planned
    links: "nx.Graph[str] | None"


Request = Choose | Visit | EachSends


def place_steps(situation: Situation, acquisition: ChainAcquisition, coordination: Solver | Planner) -> Steps[Decision]:
    """Decide the next locations: by an agreement over the local acquisitions, or by a baseline. Agents without a choice
    from the agreement stay. An agreement by a deadline, or of some agents only, is final: a comparison with the
    sequential choices of all would need all agents.
    """
    # places that would probably fail are left out before anything is planned
    if not ignores_beliefs(coordination):
        situation = yield from likely_steps(situation)
    if isinstance(coordination, Routes) and (planned := coordination.planned(situation, acquisition)) is not None:
        return (yield Visit(planned, situation.links))
    if plans_by_steps(coordination):
        return (yield from coordination.steps(situation, acquisition))
    if not isinstance(coordination, Solver):
        return _checked_decision(coordination.decide(situation, acquisition), situation, coordination)
    proposed = yield from acquisition.problem_steps(situation)
    problem = checked_result(LocalProblem | None, proposed, acquisition, "local_problem")
    if problem is None:
        return Decision({}, SolveReport(status="not_needed"))
    # the seed follows from common knowledge, so every agent draws the same
    seed = int(stream(situation.seed, "agreement", round=situation.round).integers(2**63))
    solution: Solution = yield Choose(problem, situation.links, seed)
    points: dict[str, np.ndarray] = {}
    for agent, index in solution.assignment.items():
        point = problem.shortlists[agent][index]
        if np.isnan(point).any():
            continue  # it abstains
        if solution.value > -np.inf or not any((point == other).all() for other in points.values()):
            points[agent] = point  # max-sum on loops may end in a conflict: then the later agent stays
    if problem.safeguard is None or solution.report.status == "blocked" or has_deadline(coordination):
        return Decision(points, solution.report)
    # an approximate agreement may be worse than sequential choices, which are known
    settled = yield from problem.safeguard.settled(situation, points)
    report = solution.report
    if any(settled.get(agent) is not points.get(agent) for agent in problem.graph.agents):
        value = yield from problem.value_steps(situation, settled)
        gap = None if solution.upper_bound is None or value is None else solution.upper_bound - value
        report = msgspec.structs.replace(report, value=value, gap=gap)
        if report.status == "infeasible" and value is not None and value > -np.inf:
            report = msgspec.structs.replace(report, status="sequential", violated=())  # max-sum ended in a conflict
    return Decision(settled, report)


def ignores_beliefs(coordination: object) -> bool:
    """True for a planner that ignores beliefs."""
    return isinstance(coordination, Random | LawnMower)


def plans_by_steps(coordination: object) -> TypeGuard[Greedy | Independent | Routes]:
    """True if a planner's agents compute their own shares with local beliefs; False for a subclass with ``decide``."""
    return getattr(type(coordination), "decide", None) in (Greedy.decide, Independent.decide, Routes.decide)


def abstentions(problem: LocalProblem) -> dict[str, int]:
    """Row of abstention on the shortlist of each agent that may abstain; a silent agent is assumed to abstain."""
    rows = {agent: np.isnan(places).any(axis=1) for agent, places in problem.shortlists.items()}
    return {agent: int(nowhere.argmax()) for agent, nowhere in rows.items() if nowhere.any()}


def checked_solution(solution: object, shortlists: Mapping[str, Any], coordination: object) -> Solution:
    """Check a solution, as the method may be a user's own."""
    found = loggable_result(Solution, solution, coordination, "solve")
    if strange := found.assignment.keys() - shortlists.keys():
        raise invalid_result(strange, f"an index for each of {', '.join(shortlists)}", coordination, "solve")
    for agent, places in shortlists.items():
        index = found.assignment.get(agent)
        if index is None or not 0 <= index < len(places):
            raise invalid_result(index, f"an index from 0 to {len(places) - 1} for {agent!r}", coordination, "solve")
    return found


def _checked_decision(decision: object, situation: Situation, coordination: object) -> Decision:
    found = checked_result(Decision, decision, coordination, "decide")
    box, points = situation.domain, dict[str, np.ndarray]()
    for agent, point in checked_result(dict, found.points, coordination, "decide").items():
        place, listed = real_array(point), situation.candidates.get(agent, box.low[None])
        if agent in situation.agents and place is not None and place.shape == box.low.shape:
            is_inside = np.isclose(np.clip(place, box.low, box.high), place).all()
            if is_inside or (listed == place).all(axis=1).any():  # candidates may be outside
                points[agent] = place
                continue
        wanted = f"{box.n_dims} numbers in the box for some of {', '.join(map(repr, situation.agents))}"
        raise invalid_result({agent: point}, wanted, coordination, "decide")
    return replace(found, points=points, report=loggable_result(SolveReport, found.report, coordination, "decide"))
