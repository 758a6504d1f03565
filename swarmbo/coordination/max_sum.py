"""Max-sum: exact on forests, an anytime heuristic on graphs with loops."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from swarmbo.coordination.decoding import Edge, Message, decode, decoding_order
from swarmbo.coordination.factor_update import factor_messages
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.solution import Solution, solution_of
from swarmbo.coordination.tables import Table, checked_tables, factor_values, sizes_of, total
from swarmbo.coordination.tree_schedule import tree_levels
from swarmbo.coordination.variable_update import normalised, variable_messages
from swarmbo.graph import FactorGraph
from swarmbo.records import Status, Traffic
from swarmbo.settings import Settings, require

if TYPE_CHECKING:
    import networkx as nx


class MaxSum(Settings, frozen=True, tag_field="kind", tag="max-sum"):
    """Max-sum by synchronous rounds of messages (Farinelli et al. 2008; Hoang et al. 2018, steps 1-3).

    Each connected part of the graph is solved by itself. Where it is a tree, messages are undamped and as many rounds
    are taken as it needs (half its longest path), so the result is exact whatever ``rounds`` says. Where it has loops,
    the best joint choice over all rounds is kept, together with a last one that is decided variable by variable.

    Args:
        rounds: Most rounds on a part with loops, >= 1.
        damping: Share of the previous message kept in a new one, in [0, 1); parts with loops only.
        tolerance: A part with loops has converged when no message changes by more than this share of its factor's
            spread (largest less smallest entry), and no choice changes; >= 0.
    """

    rounds: int = 50
    damping: float = 0.5
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        require(self, "rounds", lambda rounds: rounds >= 1, "an integer >= 1")
        require(self, "damping", lambda damping: 0.0 <= damping < 1.0, "a number in [0, 1)")
        require(self, "tolerance", lambda tolerance: tolerance >= 0.0, "a number >= 0")

    def solve(
        self, graph: FactorGraph, tables: Mapping[str, ArrayLike], links: "nx.Graph[Any] | None" = None
    ) -> Solution:
        """Solve in this process, and report the traffic that the agents would have had.

        Args:
            graph: Scopes and owners.
            tables: One array per factor, axes in scope order; -inf forbids a combination.
            links: Radio graph of the agents; None: everyone hears everyone.

        Returns:
            The best joint choice found. Its value is -inf if every one that was tried is forbidden, which on graphs with
            loops does not prove that none is allowed.

        Raises:
            ShapeError: If the tables do not fit the graph.
            TransportError: If agents that must talk are not connected by links.
        """
        checked = checked_tables(graph, tables)
        assignment: dict[str, int] = {}
        statuses: list[Status] = []
        most_rounds = 0
        for part in graph.components:
            solve_part = _solve_tree if part.is_forest else self._solve_loopy
            chosen, status, rounds = solve_part(part, {factor: checked[factor] for factor in part.factors})
            assignment.update(chosen)
            statuses.append(status)
            most_rounds = max(most_rounds, rounds)
        value = total(factor_values(graph, checked, assignment))
        return solution_of(graph, assignment, value, statuses, most_rounds, Traffic())

    def _solve_loopy(self, graph: FactorGraph, tables: Mapping[str, Table]) -> tuple[dict[str, int], Status, int]:
        flooding = Flooding(graph, tables)
        messages = np.zeros(flooding.n_entries)
        best, best_value = flooding.choices(messages), -np.inf
        before = None
        status: Status = "max_rounds"
        rounds = 0
        for rounds in range(1, self.rounds + 1):
            messages, change = flooding.from_factors(messages, flooding.from_variables(messages), self.damping)
            chosen = flooding.choices(messages)
            value = total(flooding.values(chosen))
            if value > best_value or rounds == 1:
                best, best_value = chosen, value
            if change <= self.tolerance and before is not None and np.array_equal(chosen, before):
                status = "converged"
                break
            before = chosen
        from_variables = flooding.by_edge(flooding.from_variables(messages))
        last = decode(graph, decoding_order(graph), tables, from_variables, flooding.by_edge(messages))
        if total(factor_values(graph, tables, last)) > best_value:
            return last, status, rounds
        return {variable: int(best[i]) for i, variable in enumerate(graph.variables)}, status, rounds


def max_sum(
    graph: FactorGraph,
    tables: Mapping[str, ArrayLike],
    *,
    rounds: int = 50,
    damping: float = 0.5,
    tolerance: float = 1e-6,
    links: "nx.Graph[Any] | None" = None,
) -> Solution:
    """Max-sum on a factor graph: exact on forests; see :class:`MaxSum`.

    Args:
        graph: Scopes and owners.
        tables: One array per factor, axes in scope order; always maximised; -inf forbids a combination.
        rounds: Most rounds on parts with loops.
        damping: Share of the previous message kept in a new one, in [0, 1); parts with loops only.
        tolerance: Relative change of messages below which a part with loops has converged.
        links: Radio graph of the agents; None: everyone hears everyone.

    Returns:
        The best joint choice found.

    Raises:
        ShapeError: If the tables do not fit the graph.
        TransportError: If agents that must talk are not connected by links.

    Example:
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> agree = np.array([[2.0, 0.0], [0.0, 2.0]])
        >>> solution = max_sum(graph, {"f": agree, "g": -agree})
        >>> solution.assignment, solution.value, solution.report.status
        ({'x': 0, 'y': 0, 'z': 1}, 2.0, 'exact')
    """
    return MaxSum(rounds=rounds, damping=damping, tolerance=tolerance).solve(graph, tables, links)


def _solve_tree(graph: FactorGraph, tables: Mapping[str, Table]) -> tuple[dict[str, int], Status, int]:
    sizes = sizes_of(graph, tables)
    from_variables: dict[Edge, Message] = {}
    from_factors: dict[Edge, Message] = {}
    levels = tree_levels(graph)
    for level in levels:
        for x, recipients in level.from_variables:
            incoming = _stacked(from_factors, [(f, x) for f in graph.factors_of(x)], sizes[x])
            outgoing = dict(zip(graph.factors_of(x), variable_messages(incoming[None])[0], strict=True))
            from_variables.update({(f, x): outgoing[f] for f in recipients})
        for f, recipients in level.from_factors:
            silent = {x: np.zeros(sizes[x]) for x in graph.scope(f)}
            incoming = [from_variables.get((f, x), silent[x])[None] for x in graph.scope(f)]
            outgoing = dict(zip(graph.scope(f), factor_messages(tables[f][None], incoming), strict=True))
            from_factors.update({(f, x): normalised(outgoing[x])[0] for x in recipients})
    return decode(graph, decoding_order(graph), tables, from_variables, from_factors), "exact", len(levels)


def _stacked(messages: Mapping[Edge, Message], edges: list[Edge], size: int) -> np.ndarray:
    return np.array([messages[edge] if edge in messages else np.zeros(size) for edge in edges])
