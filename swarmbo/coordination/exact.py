"""The exact optimum by variable elimination: one sweep forward with tables, one back with choices."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from swarmbo.coordination.elimination import buckets_of, choose, eliminate, elimination_order, largest_clique
from swarmbo.coordination.exact_program import EliminationPlan
from swarmbo.coordination.solution import Solution, solution_of
from swarmbo.coordination.tables import Table, checked_tables, factor_values, sizes_of, total
from swarmbo.errors import BudgetError
from swarmbo.graph import FactorGraph
from swarmbo.settings import Settings, require
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx


class Exact(Settings, frozen=True, tag_field="kind", tag="exact"):
    """Variable elimination (bucket elimination, Dechter 1999), refused above a stated budget.

    On the chain of DB-GP-UCB, where factor n couples robots n … n+B, it is one forward-backward sweep with messages
    over B robots. On other graphs the order is min-fill where that is cheaper.

    Args:
        table_budget: Largest number of entries, >= 1, that the table of one step may have: the product of the numbers
            of values of the variables joined in it (8 bytes an entry).
    """

    table_budget: int = 2**24

    def __post_init__(self) -> None:
        require(self, "table_budget", lambda entries: entries >= 1, "an integer >= 1")

    def solve(
        self, graph: FactorGraph, tables: Mapping[str, ArrayLike], links: "nx.Graph[Any] | None" = None
    ) -> Solution:
        """Solve in this process, and report the traffic that the agents would have had.

        Args:
            graph: Scopes and owners.
            tables: One array per factor, axes in scope order; -inf forbids a combination.
            links: Radio graph of the agents; None: everyone hears everyone.

        Returns:
            The optimum; of equal ones, the one whose variables, decided from the last eliminated to the first, have the
            lowest indices.

        Raises:
            ShapeError: If the tables do not fit the graph.
            BudgetError: If a step's table would exceed the budget.
            TransportError: If agents that must talk are not connected by links.
        """
        checked = checked_tables(graph, tables)
        routes = Routes(graph.agents, links)
        plan = self.plan(graph, sizes_of(graph, checked), routes)
        results: dict[str, Table] = {}
        parts_of: dict[str, list[tuple[tuple[str, ...], Table]]] = {}
        for variable, bucket in plan.buckets.items():
            parts_of[variable] = [
                *((graph.scope(factor), checked[factor]) for factor in bucket.factors),
                *((plan.buckets[child].scope, results[child]) for child in bucket.children),
            ]
            if bucket.parent is not None:
                results[variable] = eliminate(bucket, parts_of[variable], plan.sizes)
        assignment: dict[str, int] = {}
        for variable, bucket in reversed(list(plan.buckets.items())):
            assignment[variable] = choose(bucket, parts_of[variable], assignment)
        value = total(factor_values(graph, checked, assignment))
        return solution_of(graph, assignment, value, ["exact"], plan.rounds, plan.traffic(assignment, routes))

    def plan(self, graph: FactorGraph, sizes: Mapping[str, int], routes: Routes) -> EliminationPlan:
        """What every agent works out for itself from the graph: the order and who joins what.

        Args:
            graph: Scopes and owners.
            sizes: Number of values by variable.
            routes: Who reaches whom; elimination takes the same steps over any.

        Raises:
            BudgetError: If a step's table would exceed the budget.
        """
        order = elimination_order(graph, sizes)
        entries, clique = largest_clique(graph, sizes, order)
        if entries > self.table_budget:
            product = " x ".join(str(sizes[x]) for x in clique)
            shown = ", ".join(clique[:8]) + (", …" if len(clique) > 8 else "")
            raise BudgetError(
                f"exact needs a table of {product} = {entries:,} entries ({8 * entries / 2**20:,.0f} MiB) over "
                f"{shown}; the budget is {self.table_budget:,} entries. Raise `table_budget`, give the variables fewer "
                "values, or use max-sum."
            )
        return EliminationPlan(graph, dict(sizes), buckets_of(graph, order))


def exact(
    graph: FactorGraph,
    tables: Mapping[str, ArrayLike],
    *,
    table_budget: int = 2**24,
    links: "nx.Graph[Any] | None" = None,
) -> Solution:
    """The exact optimum of a factor graph; see :class:`Exact`.

    Args:
        graph: Scopes and owners.
        tables: One array per factor, axes in scope order; always maximised; -inf forbids a combination.
        table_budget: Largest number of entries that the table of one step may have.
        links: Radio graph of the agents; None: everyone hears everyone.

    Returns:
        The optimum, with ``upper_bound == value``.

    Raises:
        ShapeError: If the tables do not fit the graph.
        BudgetError: If a step's table would exceed the budget.
        TransportError: If agents that must talk are not connected by links.

    Example:
        >>> import numpy as np
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["x", "z"]})
        >>> agree = np.array([[0.0, 3.0], [1.0, 0.0]])
        >>> solution = exact(graph, {"f": agree, "g": agree, "h": -agree})
        >>> solution.assignment, solution.value, solution.report.status
        ({'x': 0, 'y': 1, 'z': 0}, 4.0, 'exact')
    """
    return Exact(table_budget=table_budget).solve(graph, tables, links)
