"""Solution of a problem in tables by a fleet: a process for each agent, which knows its own factors' tables."""

from pathlib import Path

import msgspec
from msgspec import UNSET

from swarmbo.coordination.agreement import Solution, TableOutcome, solution_with
from swarmbo.coordination.deadline_tables import judged
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.tables import factor_values
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.letters import Ping
from swarmbo.fleet.run import FOLDER, PLAN, Network, NetworkReport, begun, new_folder
from swarmbo.fleet.tables import to_plan
from swarmbo.interchange import TableProblem
from swarmbo.interchange.solved import Solved
from swarmbo.records import LinkReport, SolveReport, Traffic


def solve_by_fleet(
    problem: TableProblem, method: TableMethod, seed: int, out: Path, network: Network
) -> tuple[Solved, NetworkReport]:
    """Solve a problem with a process for each agent that owns something. ``out`` has ``solution.json``, and in
    ``fleet`` a plan for each agent, with its own factors' tables.

    In lockstep the solution and its messages are those of ``method.solve``. By a deadline it depends on arrivals, and
    an agent that fails is left out. A TransportError if others need an agent that is silent for too long.
    """
    if network.measures:
        raise ConfigError(f"got {network.measures[0]!r}; wanted none: tables are known", at="$.measures")
    here = network.here(problem.graph.agents)
    plan = network.plan(problem.graph.agents, problem.name, seed, **to_plan(problem, method, seed))
    unhindered = method.solve(problem.graph, problem.tables, seed=seed).value if plan.goes_on else None
    with new_folder(out):
        with begun(plan, out / FOLDER / PLAN, here) as (hub, processes):
            solved = Solved(problem, method, seed, solution_by(hub, problem), unhindered=unhindered)
            hub.end()
        solved.write(out / "solution.json")
        return solved, NetworkReport.of(hub, processes, {})


def solution_by(hub: Hub, problem: TableProblem) -> Solution:
    """Have the agents of a fleet choose, and combine their decisions."""
    graph, tables = problem.graph, problem.tables
    for agent in graph.agents:  # clocks of a deadline begin when all are there
        hub.mail.write(agent, Ping(0))
    decisions = hub.words(lambda absent: None)
    traffic = sum((decision.sent.get("agree", Traffic()) for decision in decisions), Traffic())
    values = {x: value for decision in decisions for x, value in decision.values.items()}
    chosen = {x: int(values[x]) for x in graph.variables if x in values}
    if strange := [x for x, index in chosen.items() if index != values[x] or not 0 <= index < len(problem.domains[x])]:
        raise TransportError(f"got {values[strange[0]]} for {strange[0]!r}; wanted the position of one of its values")
    if hub.plan.goes_on:
        ticks, reports = hub.plan.setup.coordination.deadline, [decision.report.links for decision in decisions]
        guessed = tuple(agent for links in reports if links is not UNSET for agent in links.without)
        links = LinkReport(ticks, silent=hub.absent, without=guessed)
        return judged(graph, tables, chosen, SolveReport("deadline", ticks, traffic=traffic, links=links))
    try:
        outcomes = [each for one in decisions for each in msgspec.msgpack.decode(one.outcomes, type=list[TableOutcome])]
        return solution_with(graph, chosen, factor_values(graph, tables, chosen), outcomes, traffic)
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise TransportError(f"an agent's outcome does not fit: {error}; do versions of swarmbo differ?") from error
