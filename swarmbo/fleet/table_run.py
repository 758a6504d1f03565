"""Solution of a problem in tables by a fleet: a process for each agent, which knows its own factors' tables."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swarmbo.boundary.values import whole_number
from swarmbo.coordination.agreement import Solution, TableOutcome, partial_solution, solution_with
from swarmbo.coordination.plan import TableMethod, has_deadline
from swarmbo.coordination.tables import Conflicts, factor_values, sizes_of
from swarmbo.errors import BudgetError, ConfigError, TransportError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.messages import MAX_MESSAGE_BYTES, Ping
from swarmbo.fleet.plan import Tables
from swarmbo.fleet.run import FOLDER, PLAN, SOLUTION, Network, NetworkReport, OnBegin, new_folder, running_fleet
from swarmbo.graph import FactorGraph
from swarmbo.interchange import TableProblem
from swarmbo.interchange.solved import Solved
from swarmbo.problem import Problem
from swarmbo.records import LinkReport, SolveReport, Traffic
from swarmbo.runs.rounds import ignore
from swarmbo.spaces import Domain
from swarmbo.transport import Routes

_HEAD_BYTES = 2**12  # of a message, besides its table


def solve_by_fleet(
    problem: TableProblem, method: TableMethod, seed: int, out: Path, network: Network, on_begin: OnBegin = ignore
) -> tuple[Solved, NetworkReport]:
    """Solve a problem with a process for each agent that owns something. ``out`` has ``solution.json``, and in
    ``fleet`` a plan for each agent, with its own factors' tables.

    In lockstep the solution and its messages are those of ``method.solve``. With a deadline, it depends on arrivals,
    and an agent that fails is left out. A TransportError if others need an agent that is silent for too long.
    """
    if network.measures:
        raise ConfigError(f"got {network.measures[0]!r}; wanted none: tables are known", at="--measures")
    local, seed = network.local(problem.graph.agents), whole_number(seed, 0, "$.seed")
    plan = network.plan(problem.graph.agents, problem.name, seed, **to_plan(problem, method, seed))
    unhindered = method.solve(problem.graph, problem.tables, seed=seed).value if plan.tolerates_failures else None
    with new_folder(out):
        with running_fleet(plan, out / FOLDER / PLAN, local) as (hub, processes):
            on_begin([agent for agent in problem.graph.agents if agent not in local], out / FOLDER / "NAME.json")
            solved = Solved(problem, method, seed, solution_by(hub, problem), unhindered=unhindered)
            hub.end()
        solved.write(out / SOLUTION)
        return solved, NetworkReport.of(hub, processes, {})


def solution_by(hub: Hub, problem: TableProblem) -> Solution:
    """Have the agents of a fleet choose, and combine their decisions."""
    graph, tables = problem.graph, problem.tables
    for agent in graph.agents:  # clocks of a deadline begin when all agents are present
        hub.mailbox.send(agent, Ping(0))
    decisions = hub.decisions(lambda absent: None)
    traffic = sum((decision.sent.get("agree", Traffic()) for decision in decisions), Traffic())
    values = {x: value for decision in decisions for x, value in decision.values.items()}
    choice = {x: int(values[x]) for x in graph.variables if x in values}
    if wrong := [x for x, index in choice.items() if index != values[x] or not 0 <= index < len(problem.domains[x])]:
        raise TransportError(f"got {values[wrong[0]]} for {wrong[0]!r}; wanted the position of one of its values")
    if hub.plan.tolerates_failures:
        ticks, clashes = hub.plan.setup.coordination.deadline, Conflicts.of(graph, tables).clashes(choice)
        links = LinkReport(ticks, silent=hub.absent, clashes=clashes)
        return partial_solution(graph, tables, choice, SolveReport("deadline", ticks, traffic=traffic, links=links))
    try:
        lists = [msgspec.msgpack.decode(decision.outcomes, type=list[TableOutcome]) for decision in decisions]
        outcomes = [outcome for of_agent in lists for outcome in of_agent]
        return solution_with(graph, choice, factor_values(graph, tables, choice), outcomes, traffic)
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise TransportError(f"an agent's outcome does not fit: {error}; do versions of swarmbo differ?") from error


def to_plan(problem: TableProblem, method: TableMethod, seed: int) -> dict[str, Any]:
    """Content of a ``Plan``; a BudgetError if an exact method exceeds its budget, or a message is too long."""
    graph, tables = problem.graph, problem.tables
    sizes, is_timed = sizes_of(graph, tables), has_deadline(method)
    _require_short(graph, sizes, {} if is_timed else method.plan(graph, sizes, Routes(graph.agents), seed).joined)
    highs = np.array([max(size - 1, 1) for size in sizes.values()], dtype=float)
    known = Tables(
        sizes,
        {agent: Conflicts.packed(graph, tables, agent) for agent in graph.agents} if is_timed else {},
        {f: np.ascontiguousarray(table, "<f8").tobytes() for f, table in tables.items()},
    )
    plain = Problem(graph, Domain(np.zeros(len(highs)), highs)).to_plain()
    return {"problem": plain, "settings": {"coordination": msgspec.to_builtins(method), "seed": seed}, "tables": known}


def _require_short(graph: FactorGraph, sizes: Mapping[str, int], joined: Mapping[str, Sequence[str]]) -> None:
    """Refuse tables that are too long for a message: of variables, of elimination steps, and of factors in them."""
    owner = graph.variable_owner
    sent = [(x,) for x in graph.variables if any(graph.owner(f) != owner(x) for f in graph.factors_of(x))]
    sent += [tuple(scope) for x, scope in joined.items() if scope and owner(x) != owner(scope[0])]
    for f in graph.factors:  # a factor's table joins the step that eliminates the first of its variables
        steps = [x for x in graph.scope(f) if {*graph.scope(f)} <= {x, *joined.get(x, ())}]
        sent += [graph.scope(f) for x in steps if owner(x) != graph.owner(f)]
    most = max((math.prod(sizes[x] for x in scope) for scope in sent), default=0)
    if 8 * most > (longest := MAX_MESSAGE_BYTES - _HEAD_BYTES):
        got = f"agents of a fleet would send a table of {most:,} entries; a message holds {longest // 8:,}"
        raise BudgetError(f"{got}. Give the variables fewer values, or use max-sum, or `swarmbo solve`.")
