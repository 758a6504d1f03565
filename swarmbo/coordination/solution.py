"""What a coordination method returns."""

from collections.abc import Sequence

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.coordination.tables import total, violated
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport, Status, Traffic


class Solution(msgspec.Struct, frozen=True):
    """A joint choice.

    Args:
        assignment: For each variable the index of its value, in the graph's order of variables.
        value: Sum of the tables at the assignment; -inf if it is a forbidden one.
        upper_bound: No assignment has a larger sum, up to rounding; None where nothing is known. -inf: every one is
            forbidden.
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


def solution_of(
    graph: FactorGraph,
    assignment: dict[str, int],
    values: Float[np.ndarray, " n_factors"],
    statuses: Sequence[Status],
    rounds: int,
    traffic: Traffic,
) -> Solution:
    """Put the parts of a graph together: it is solved exactly where every connected part is.

    Args:
        graph: The whole graph.
        assignment: Index by variable, in any order.
        values: Each factor's entry there, in the graph's order of factors.
        statuses: One for each connected part.
        rounds: The most that any part took; parts do not wait for one another.
        traffic: Of all parts.
    """
    exact = all(status == "exact" for status in statuses)
    open_ended = any(status == "max_rounds" for status in statuses)
    value, broken = total(values), violated(dict(zip(graph.factors, values.tolist(), strict=True)))
    status: Status = "infeasible" if broken else "exact" if exact else "max_rounds" if open_ended else "converged"
    report = SolveReport(
        status=status,
        rounds=rounds,
        value=value,
        gap=0.0 if exact and not broken else None,  # -inf less -inf is nothing
        traffic=traffic,
        violated=broken,
    )
    return Solution(
        assignment={variable: assignment[variable] for variable in graph.variables},
        value=value,
        upper_bound=value if exact else None,
        report=report,
    )
