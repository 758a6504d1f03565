"""The kinds that a team can be made of, and how each decides a round."""

import numpy as np

from swarmbo.acquisition import DBGPUCB, Decision, Situation
from swarmbo.agent import solve_with_agents
from swarmbo.baselines import Greedy, Independent, LawnMower, Random
from swarmbo.belief import ExactGPSettings
from swarmbo.coordination import Exact, MaxSum
from swarmbo.records import SolveReport
from swarmbo.transport import InProcess

BeliefSettings = ExactGPSettings
AcquisitionSettings = DBGPUCB
CoordinationSettings = Exact | MaxSum | Independent | Greedy | Random | LawnMower
TransportSettings = InProcess

DEFAULT_KINDS = {"belief": "exact", "acquisition": "db-gp-ucb", "coordination": "exact", "transport": "in-process"}


def decide(
    situation: Situation,
    acquisition: AcquisitionSettings,
    coordination: CoordinationSettings,
    transport: TransportSettings,
) -> Decision:
    """Where everybody measures next: by messages over the local acquisitions, or as a baseline has it.

    Args:
        situation: What is known.
        acquisition: What a query is worth.
        coordination: How the agents agree.
        transport: What carries their messages.
    """
    if not isinstance(coordination, Exact | MaxSum):
        return coordination.decide(situation, acquisition)
    problem = acquisition.local_problem(situation)
    if problem is None:
        return Decision({}, SolveReport(status="not_needed"))
    graph, tables, links = problem.graph, problem.tables, situation.links
    if transport.as_agents:
        solution = solve_with_agents(coordination, graph, tables, transport.open(graph.agents, links))
    else:
        solution = coordination.solve(graph, tables, links)
    points: dict[str, np.ndarray] = {}
    for agent, index in solution.assignment.items():
        point = problem.shortlists[agent][index]
        if solution.value > -np.inf or not any((point == other).all() for other in points.values()):
            points[agent] = point  # max-sum on loops may end in a clash: then the later robot stays
    return Decision(points, solution.report)
