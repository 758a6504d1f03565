"""Each agent's outcome of a connected part, and the joint choice that all outcomes form."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import UNSET, UnsetType

from swarmbo.boundary.values import html_table
from swarmbo.coordination.tables import Tables, Vector, factor_values, total, violated
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.graph.box_functions import by_factor, values_at
from swarmbo.records import LinkReport, SolveReport, Status, Traffic


class TableOutcome(NamedTuple):
    """One agent's outcome of a part, from tables; no joint choice of the part exceeds ``bound``, up to rounding."""

    assignment: dict[str, int]
    status: Status
    rounds: int
    part: int = 0
    bound: float | None = None


class BoxOutcome(NamedTuple):
    """One agent's outcome of a part, on a box: final residuals, and ``gain``, the rise of the sum by polishing."""

    part: int
    x: dict[str, float]
    values: dict[str, float]
    rounds: int = 0
    has_converged: bool = True
    primal: float | None = None
    dual: float | None = None
    gain: float | None = None


class Solution(msgspec.Struct, frozen=True):
    """A joint choice of all agents, from tables.

    Args:
        assignment: Index of the value of each variable, in the graph's order of variables. A variable is missing if
            agents were disconnected and no agent decided it.
        value: Sum of the tables at the assignment; -inf if the assignment is forbidden or incomplete.
        upper_bound: A number that no assignment's sum exceeds, up to rounding. None: no bound is known; -inf: every
            assignment is forbidden. The bound holds for candidates in these tables, not for values between them.
        report: Status, rounds, traffic and gap.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> graph, power = sb.FactorGraph.from_scopes({"near": ["x"], "sum": ["x", "y"]}), np.array([1.0, 5.0, 20.0])
        >>> tables = {"near": -abs(power - 6.0), "sum": -abs(power[:, None] + power - 10.0)}
        >>> solution = sb.exact(graph, tables)
        >>> {name: float(power[index]) for name, index in solution.assignment.items()}, solution.value
        ({'x': 5.0, 'y': 5.0}, -1.0)
    """

    assignment: dict[str, int]
    value: float
    upper_bound: float | None
    report: SolveReport

    def _repr_html_(self) -> str:
        """Table of status, value, bound and the first choices for notebooks."""
        rows: list[tuple[str, object]] = [("value", self.value), ("upper bound", self.upper_bound)]
        rows += [("rounds", self.report.rounds), ("messages", self.report.messages)]
        rows += [(name, f"value number {index}") for name, index in self.assignment.items()]
        known = [(name, value) for name, value in rows if value is not None]
        return html_table(f"Solution: {self.report.status}", known, more="variables")


@dataclass(frozen=True, eq=False)
class Agreement:
    """A joint point of all agents, from functions on a box.

    Args:
        point: Joint point in the unit cube (n,), in the order of ``graph.variables``.
        value: Sum of all factors at the point.
        report: Status, rounds, residuals, traffic.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.coordinator import TWO_BOWLS  # f(x, y) is drawn to 0.3, g(y, z) to 0.4
        >>> agreement = sb.RefinedMaxSum().maximise(TWO_BOWLS)
        >>> dict(zip("xyz", agreement.point.round(3).tolist(), strict=True)), agreement.report.status
        ({'x': 0.317, 'y': 0.35, 'z': 0.383}, 'converged')
    """

    point: Float[np.ndarray, " n"]
    value: float
    report: SolveReport


def solution_of(graph: FactorGraph, tables: Tables, outcomes: Sequence[TableOutcome], traffic: Traffic) -> Solution:
    """Combine the outcomes of all agents and parts; a solution is exact only if every part is."""
    found = {variable: index for outcome in outcomes for variable, index in outcome.assignment.items()}
    assignment = {variable: found[variable] for variable in graph.variables}
    return solution_with(graph, assignment, factor_values(graph, tables, assignment), outcomes, traffic)


def solution_with(
    graph: FactorGraph, assignment: dict[str, int], values: Vector, outcomes: Sequence[TableOutcome], traffic: Traffic
) -> Solution:
    """Make the solution of an assignment, given the values of all factors in the graph's order."""
    exact = all(outcome.status == "exact" for outcome in outcomes)
    open_ended = any(outcome.status == "max_rounds" for outcome in outcomes)
    by_factor = dict(zip(graph.factors, values.tolist(), strict=True))
    value, broken = total(values), violated(by_factor)
    # the value of an exactly solved part is its bound, so only other parts need one
    bound = value if exact else _bound_of(graph, by_factor, outcomes)
    if bound is not None:
        bound = max(bound, value)  # rounding may put the bound below the value
    report = SolveReport(
        status="infeasible" if broken else "exact" if exact else "max_rounds" if open_ended else "converged",
        rounds=max((outcome.rounds for outcome in outcomes), default=0),
        value=value,
        gap=None if broken or bound is None else bound - value,  # -inf less -inf is undefined
        traffic=traffic,
        violated=broken,
    )
    return Solution(assignment, value, bound, report)


def _bound_of(graph: FactorGraph, values: Mapping[str, float], outcomes: Sequence[TableOutcome]) -> float | None:
    """Sum of the parts' bounds; None if a part has none. The bound of an exactly solved part is its value."""
    bounds: dict[int, float] = {}
    for outcome in outcomes:
        if outcome.bound is not None:
            bounds[outcome.part] = outcome.bound  # all agents of a part have the same bound
        elif outcome.status == "exact":
            bounds[outcome.part] = total(np.array([values[f] for f in graph.components[outcome.part].factors]))
        else:
            return None
    return sum(bounds[part] for part in sorted(bounds))  # outcomes may be in any order


def partial_solution(graph: FactorGraph, tables: Tables, chosen: Mapping[str, int], report: SolveReport) -> Solution:
    """Solution of a joint choice that may lack variables."""
    decided = decided_factors(graph, chosen)
    values = [tables[f][tuple(chosen[x] for x in graph.scope(f))] for f in decided]
    return partial_solution_with(graph, chosen, values, report)


def decided_factors(graph: FactorGraph, chosen: Collection[str]) -> list[str]:
    """Factors whose variables all have a value."""
    return [f for f in graph.factors if all(x in chosen for x in graph.scope(f))]


def partial_solution_with(
    graph: FactorGraph, chosen: Mapping[str, int], values: Sequence[float], report: SolveReport
) -> Solution:
    """Solution of a choice that may lack variables, given the values of its ``decided_factors``."""
    decided = decided_factors(graph, chosen)
    broken = violated(dict(zip(decided, values, strict=True)))
    value = total(np.array(values)) if len(decided) == len(graph.factors) else None
    status = "infeasible" if broken and report.status != "blocked" else report.status
    report = msgspec.structs.replace(report, status=status, value=value, violated=broken)
    return Solution(dict(chosen), -np.inf if value is None else value, None, report)


def agreement_of(
    graph: FactorGraph,
    outcomes: Sequence[BoxOutcome],
    traffic: Traffic,
    links: LinkReport | UnsetType = UNSET,
    status: Status | None = None,
) -> Agreement:
    """Combine the outcomes of all agents and parts into a joint point; ``status`` None: from their convergence."""
    x = {variable: value for outcome in outcomes for variable, value in outcome.x.items()}
    values = {factor: value for outcome in outcomes for factor, value in outcome.values.items()}
    by_factor = {factor: values[factor] for factor in graph.factors}
    value, broken = total(np.array(list(by_factor.values()))), violated(by_factor)
    status = status or ("converged" if all(outcome.has_converged for outcome in outcomes) else "max_rounds")
    gain_of = {outcome.part: outcome.gain for outcome in outcomes if outcome.gain is not None}
    report = SolveReport(
        status="infeasible" if broken and status != "blocked" else status,
        rounds=max(outcome.rounds for outcome in outcomes),
        value=value,
        traffic=traffic,
        primal_residual=max((o.primal for o in outcomes if o.primal is not None), default=None),
        dual_residual=max((o.dual for o in outcomes if o.dual is not None), default=None),
        violated=broken,
        links=links,
        polish_gain=sum(gain_of[part] for part in sorted(gain_of)) if gain_of else None,
    )
    return Agreement(np.array([x[variable] for variable in graph.variables]), value, report)


def agreement_at(
    functions: BoxFunctions, point: Vector, rounds: int, traffic: Traffic, links: LinkReport | UnsetType, status: Status
) -> Agreement:
    """Evaluate all factors at a joint point, and return the agreement on it."""
    values = {factor: float(row[0]) for factor, row in by_factor(*values_at(functions, point[None])).items()}
    outcome = BoxOutcome(0, dict(zip(functions.graph.variables, point.tolist(), strict=True)), values, rounds)
    return agreement_of(functions.graph, [outcome], traffic, links, status)
