"""Solution of a problem in tables by a fleet: a process for each agent, which knows its own factors' tables."""

from pathlib import Path

from swarmbo.coordination.plan import TableMethod
from swarmbo.errors import ConfigError
from swarmbo.fleet.run import FOLDER, PLAN, Network, NetworkReport, begun, new_folder
from swarmbo.fleet.table_hub import solution_by
from swarmbo.fleet.tables import to_plan
from swarmbo.interchange import TableProblem
from swarmbo.interchange.solved import Solved


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
