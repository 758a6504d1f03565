"""The exact optimum by variable elimination: one sweep forward with tables, one back with choices."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from swarmbo.coordination.elimination import Bucket, choose, eliminate, elimination_steps, largest_clique
from swarmbo.coordination.ledger import Ledger
from swarmbo.coordination.messages import Decided, Eliminated, FactorTable, packed, unpacked
from swarmbo.coordination.program import Heard, Outcome, Post, Program
from swarmbo.coordination.solution import Solution, solution_of
from swarmbo.coordination.tables import Table, checked_tables, factor_values, sizes_of
from swarmbo.errors import BudgetError
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Settings, require
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx


@kind("coordination", FIELD)
class Exact(Settings, frozen=True, tag_field="kind", tag="exact"):
    """Variable elimination (bucket elimination, Dechter 1999), refused above a stated budget.

    On the chain of DB-GP-UCB, where factor n couples robots n … n+B, it is one forward-backward sweep with messages
    over B robots. On other graphs the order is min-fill where its largest table is smaller.

    The report's ``rounds`` count tables that wait for one another on their way up the elimination tree, and as many
    choices on their way down: twice the most steps on a path to a root that are taken by another agent than the step
    before. Handing factors' tables to the agents that join them, all at once beforehand, is not counted.

    Args:
        table_budget: Largest number of entries, >= 1, that the table of one step may have: the product of the numbers
            of values of the variables joined in it (8 bytes an entry).

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> ring = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> tables = dict.fromkeys(ring.factors, 1.0 - np.eye(2))  # neighbours want to differ
        >>> solution = sb.Exact(table_budget=8).solve(ring, tables)
        >>> solution.value, solution.report.status, solution.report.gap  # one pair of three has to be equal
        (2.0, 'exact', 0.0)
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
            lowest indices. If every joint choice is forbidden, the status is ``infeasible``, and the report names the
            factors that forbid the one that is handed back.

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
        values = factor_values(graph, checked, assignment)
        return solution_of(graph, assignment, values, ["exact"], plan.rounds, plan.traffic(assignment, routes))

    def plan(self, graph: FactorGraph, sizes: Mapping[str, int], routes: Routes) -> "EliminationPlan":
        """What every agent works out for itself from the graph: the order and who joins what.

        Args:
            graph: Scopes and owners.
            sizes: Number of values by variable.
            routes: Who reaches whom; elimination takes the same steps over any.

        Raises:
            BudgetError: If a step's table would exceed the budget.
        """
        buckets = elimination_steps(graph, sizes)
        entries, clique = largest_clique(buckets, sizes)
        if entries > self.table_budget:
            product, names = " x ".join(str(sizes[x]) for x in clique[:8]), ", ".join(clique[:8])
            if len(clique) > 8:
                product, names = f"{product} x …", f"{names}, …"
            raise BudgetError(
                f"exact needs a table of {product} = {_shortened(entries)} entries "
                f"({_shortened(entries // 2**17)} MiB) over {names}; the budget is {_shortened(self.table_budget)} "
                "entries. Raise `table_budget`, give the variables fewer values, or use max-sum."
            )
        return EliminationPlan(graph, dict(sizes), buckets)


@dataclass(frozen=True)
class EliminationPlan:
    """The commonly known side of an elimination: the owner of a variable takes its step.

    Args:
        graph: Scopes and owners.
        sizes: Number of values by variable.
        buckets: The steps by variable, in the order of elimination.
    """

    graph: FactorGraph
    sizes: Mapping[str, int]
    buckets: Mapping[str, Bucket]

    @property
    def rounds(self) -> int:
        """Tables that wait for one another on the way up, and as many choices on the way down; see :class:`Exact`."""
        handed_on: dict[str, int] = {}  # by variable, on the path to it that has most
        for variable, bucket in self.buckets.items():
            actor = self.graph.variable_owner(variable)
            handed_on[variable] = max(
                (handed_on[child] + (self.graph.variable_owner(child) != actor) for child in bucket.children), default=0
            )
        return 2 * max(handed_on.values())

    def programs(self, agent: str, tables: Mapping[str, Table], post: Post) -> Iterable[Program]:
        """What one agent does; see :class:`swarmbo.coordination.program.Plan`."""
        if agent in self.graph.agents:
            yield self._program(agent, tables, post)

    def traffic(self, chosen: Mapping[str, int], routes: Routes) -> Traffic:
        """What crosses the links.

        Args:
            chosen: The index that each variable ends up with.
            routes: Who reaches whom.
        """
        ledger = Ledger(routes)
        for variable, bucket in self.buckets.items():
            actor = self.graph.variable_owner(variable)
            for factor in bucket.factors:
                shape = self._shape(self.graph.scope(factor))
                ledger.add(self.graph.owner(factor), actor, FactorTable(factor, shape, b""), math.prod(shape))
            if bucket.parent is not None:
                above = self.graph.variable_owner(bucket.parent)
                shape = self._shape(bucket.scope)
                ledger.add(actor, above, Eliminated(variable, shape, b""), math.prod(shape))
                indices = tuple(chosen[x] for x in bucket.scope)
                ledger.add(above, actor, Decided(variable, indices))
        return ledger.traffic

    def _program(self, agent: str, tables: Mapping[str, Table], post: Post) -> Program:
        graph, heard = self.graph, Heard()
        own = [self.buckets[x] for x in self.buckets if graph.variable_owner(x) == agent]
        joined_at = {factor: variable for variable, bucket in self.buckets.items() for factor in bucket.factors}
        for factor in graph.factors_owned_by(agent):
            if (actor := graph.variable_owner(joined_at[factor])) != agent:
                post(actor, FactorTable(factor, tables[factor].shape, packed(tables[factor])))
        parts_of: dict[str, list[tuple[tuple[str, ...], Table]]] = {}
        for bucket in own:
            parts = parts_of[bucket.variable] = []
            for factor in bucket.factors:
                if factor in tables:
                    parts.append((graph.scope(factor), tables[factor]))
                else:
                    yield from heard.wait([("table", factor)])
                    table: FactorTable = heard["table", factor]
                    parts.append((graph.scope(factor), unpacked(table.entries, *table.shape)))
            for child in bucket.children:
                yield from heard.wait([("eliminated", child)])
                left: Eliminated = heard["eliminated", child]
                parts.append((self.buckets[child].scope, unpacked(left.entries, *left.shape)))
            if bucket.parent is not None:
                result = eliminate(bucket, parts, self.sizes)
                post(graph.variable_owner(bucket.parent), Eliminated(bucket.variable, result.shape, packed(result)))
        decisions: dict[str, int] = {}
        for bucket in reversed(own):
            around: dict[str, int] = {}
            if bucket.parent is not None:
                yield from heard.wait([("decided", bucket.variable)])
                decided: Decided = heard["decided", bucket.variable]
                around = dict(zip(bucket.scope, decided.indices, strict=True))
            around[bucket.variable] = choose(bucket, parts_of[bucket.variable], around)
            decisions[bucket.variable] = around[bucket.variable]
            for child in bucket.children:
                indices = tuple(around[x] for x in self.buckets[child].scope)
                post(graph.variable_owner(child), Decided(child, indices))
        return Outcome(decisions, "exact", self.rounds)

    def _shape(self, scope: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.sizes[x] for x in scope)


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


def _shortened(number: int) -> str:
    """All digits up to 10^15, else the nearest power of ten; no float, for that ends at 10^308."""
    return f"{number:,}" if number <= 10**15 else f"about 10^{math.log10(number):.0f}"
