"""Solution of a problem in tables by a fleet: a process for each agent, which knows its own factors' tables."""

from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
from msgspec import UNSET
from threadpoolctl import threadpool_limits

from swarmbo.coordination.agreement import Solution, TableOutcome, solution_of
from swarmbo.coordination.deadline import has_deadline
from swarmbo.coordination.deadline_tables import judged
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.tables import Conflicts, sizes_of
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.letters import Ping
from swarmbo.fleet.link import Link
from swarmbo.fleet.plan import HUB, Plan, Tables
from swarmbo.fleet.run import FOLDER, PLAN, Network, NetworkReport, Processes
from swarmbo.interchange import TableProblem
from swarmbo.interchange.solved import Solved
from swarmbo.problem import Problem
from swarmbo.records import LinkReport, SolveReport, Traffic
from swarmbo.runs import RunFolder
from swarmbo.runs.stored_files import locked
from swarmbo.spaces import Domain
from swarmbo.transport import Routes


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
    plan = plan_of(problem, method, seed, network)
    unhindered = method.solve(problem.graph, problem.tables, seed=seed).value if plan.goes_on else None
    with threadpool_limits(1, user_api="blas"), locked(RunFolder.make(out)):
        place = out / FOLDER / PLAN
        place.parent.mkdir()
        for agent in problem.graph.agents:
            plan.of(agent).write(place.with_name(f"{agent}.json"))
        with closing(Link(HUB, plan)) as link, closing(Processes(here, place, goes_on=plan.goes_on)) as processes:
            hub = Hub(plan, link, processes.attend, here=here, ended=processes.ended)
            solved = Solved(problem, method, seed, solution_by(hub, problem), unhindered=unhindered)
            hub.end()
        solved.write(out / "solution.json")
        return solved, NetworkReport.of(hub, processes, {})


def plan_of(problem: TableProblem, method: TableMethod, seed: int, network: Network) -> Plan:
    """Plan of a fleet for a problem, with all tables."""
    graph, tables = problem.graph, problem.tables
    sizes, is_timed = sizes_of(graph, tables), has_deadline(method)
    if not is_timed:
        method.plan(graph, sizes, Routes(graph.agents), seed)  # refused before processes start
    highs = np.array([max(size - 1, 1) for size in sizes.values()], dtype=float)
    known = Tables(
        sizes,
        {agent: Conflicts.packed(graph, tables, agent) for agent in graph.agents} if is_timed else {},
        {f: np.ascontiguousarray(table, "<f8").tobytes() for f, table in tables.items()},
    )
    settings = {"coordination": msgspec.to_builtins(method), "seed": seed}
    plain = Problem(graph, Domain(np.zeros(len(highs)), highs)).to_plain()
    return network.plan(graph.agents, problem.name, seed, problem=plain, settings=settings, tables=known)


def solution_by(hub: Hub, problem: TableProblem) -> Solution:
    """Have the agents of a fleet choose, and combine what they say."""
    graph, tables = problem.graph, problem.tables
    for agent in graph.agents:  # clocks of a deadline begin when all are there
        hub.mail.write(agent, Ping(0))
    words = hub.words(lambda absent: None)
    traffic = sum((word.sent.get("agree", Traffic()) for word in words), Traffic())
    said = {x: value for word in words for x, value in word.values.items()}
    chosen = {x: int(said[x]) for x in graph.variables if x in said}
    if strange := [x for x, index in chosen.items() if index != said[x] or not 0 <= index < len(problem.domains[x])]:
        raise TransportError(f"got {said[strange[0]]} for {strange[0]!r}; wanted the position of one of its values")
    if hub.plan.goes_on:
        ticks, reports = hub.plan.setup.coordination.deadline, [word.report.links for word in words]
        guessed = tuple(agent for links in reports if links is not UNSET for agent in links.without)
        links = LinkReport(ticks, silent=hub.absent, without=guessed)
        return judged(graph, tables, chosen, SolveReport("deadline", ticks, traffic=traffic, links=links))
    try:
        outcomes = [one for word in words for one in msgspec.msgpack.decode(word.outcomes, type=list[TableOutcome])]
        if {x: index for outcome in outcomes for x, index in outcome.assignment.items()} != said:
            raise ValueError("got an outcome other than the choice")
        return solution_of(graph, tables, outcomes, traffic)
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise TransportError(f"an agent's outcome does not fit: {error}; do versions of swarmbo differ?") from error
