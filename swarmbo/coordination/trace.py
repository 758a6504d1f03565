"""Trace of a joint choice, round by round: the best so far, its bound, and the traffic."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from swarmbo.coordination.agreement import Solution, solution_of
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.tables import checked_tables, factor_values, sizes_of, total
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx


class TraceRow(NamedTuple):
    """State after a round: first come the rounds in which agents choose, then those in which they compute a bound.

    Value and bound are None before the first one; ``traffic`` is that of all rounds so far.
    """

    round: int
    value: float | None
    bound: float | None
    traffic: Traffic


class _Notes:
    """Progress of one part."""

    def __init__(self) -> None:
        self.rows: list[tuple[float | None, float | None, Traffic]] = []

    def note_value(self, value: float, traffic: Traffic) -> None:
        """Note the value of the best joint choice so far."""
        self.rows.append((value, None, traffic))

    def note_bound(self, bound: float, traffic: Traffic) -> None:
        """Note the upper bound, after the choice is made."""
        self.rows.append((self.rows[-1][0] if self.rows else None, bound, traffic))

    def close(self, value: float, bound: float | None, traffic: Traffic, rounds: int) -> None:
        """Note the end. A part without notes has its result in its last round."""
        if not self.rows:
            self.rows = [(None, None, Traffic())] * (rounds - 1)
        end = (value, bound, traffic)
        if not self.rows or self.rows[-1] != end:
            self.rows.append(end)

    def after(self, rounds: int) -> tuple[float | None, float | None, Traffic]:
        """State after so many rounds."""
        return self.rows[min(rounds, len(self.rows)) - 1]


def traced(
    method: TableMethod,
    graph: "FactorGraph | nx.Graph[Any]",
    tables: "Mapping[Any, ArrayLike] | None" = None,
    links: "nx.Graph[Any] | None" = None,
    seed: int = 0,
) -> tuple[Solution, tuple[TraceRow, ...]]:
    """Solve as ``method.solve`` does, and trace the progress.

    Parts of a graph run independently: their rounds are counted in parallel, and a part that has ended stays as it is.
    A part that is solved exactly has a value in its last round only.

    Args:
        method: Settings of a method for tables.
        graph: Scopes and owners; or a graph of networkx, see ``FactorGraph.with_tables``.
        tables: One array per factor.
        links: Radio graph of the agents; None: every agent reaches every other.
        seed: Seed of the agents' random draws.

    Returns:
        The solution, bit-identical to that of ``solve``, and a row per round, from the first one after which every part
        has a choice.

    Example:
        >>> import numpy as np
        >>> from swarmbo.coordination import MGM
        >>> ring = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> method = MGM(bound="mplp", bound_rounds=2)
        >>> solution, rows = traced(method, ring, dict.fromkeys(ring.factors, 1.0 - np.eye(3)))
        >>> rows[-1].value == solution.value, rows[-1].bound == solution.upper_bound, rows[-1].traffic.bytes
        (True, True, 1778)
    """
    graph, tables = FactorGraph.with_tables(graph, tables)
    checked = checked_tables(graph, tables)
    plan = method.plan(graph, sizes_of(graph, checked), Routes(graph.agents, links), seed)
    notes = [_Notes() for _ in plan.parts]
    outcomes, traffics = plan.by_part(checked, notes)
    solution = solution_of(graph, checked, outcomes, sum(traffics, Traffic()))
    for part, note, outcome, traffic in zip(plan.parts, notes, outcomes, traffics, strict=True):
        value = total(factor_values(part.graph, {f: checked[f] for f in part.graph.factors}, solution.assignment))
        note.close(value, value if outcome.status == "exact" else outcome.bound, traffic, outcome.rounds)
    rows = [_row(notes, k) for k in range(1, max(len(note.rows) for note in notes) + 1)]
    rows[-1] = rows[-1]._replace(value=solution.value, bound=solution.upper_bound)  # added in another order there
    return solution, tuple(row for row in rows if row.value is not None)


def _row(notes: Sequence[_Notes], rounds: int) -> TraceRow:
    values, bounds, traffics = zip(*(note.after(rounds) for note in notes), strict=True)
    value = None if None in values else float(np.sum(values))
    bound = None if None in bounds else float(np.sum(bounds))
    return TraceRow(rounds, value, bound, sum(traffics, Traffic()))
