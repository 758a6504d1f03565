"""Max-sum: exact on forests, an anytime heuristic on graphs with loops."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from swarmbo.coordination.decoding import decode
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.max_sum_plan import PartPlan
from swarmbo.coordination.max_sum_program import MaxSumPlan
from swarmbo.coordination.repair import sweeps
from swarmbo.coordination.solution import Solution, solution_of
from swarmbo.coordination.tables import Table, checked_tables, factor_values, rank, sizes_of
from swarmbo.coordination.updates import (
    Edge,
    Vector,
    messages_of_factor,
    messages_of_variable,
    normalised,
    one_pass_for,
)
from swarmbo.graph import FactorGraph
from swarmbo.records import Status, Traffic
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Settings, require
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx

PartSolution = tuple[dict[str, int], Status, int, Traffic]  # choice, status, rounds, what crossed the links


@kind("coordination", FIELD)
class MaxSum(Settings, frozen=True, tag_field="kind", tag="max-sum"):
    """Max-sum by synchronous rounds of messages (Farinelli et al. 2008; Hoang et al. 2018, steps 1-3).

    Each connected part of the graph is solved by itself. Where it is a tree, messages are undamped and as many rounds
    are taken as it needs (half its longest path), so the result is exact whatever ``rounds`` says. Where it has loops,
    the best joint choice over all rounds is kept, together with a last one that is decided variable by variable. Should
    all of them be forbidden, that last one is repaired: variable by variable again, each taking the value at which the
    fewest factors are broken, and those that stay broken weighing more and more (``swarmbo.coordination.repair``).

    The report's ``rounds`` count renewals of messages, in each of which variables write to their factors and then
    factors to their variables: on a tree until the last message is final, on loops until they stop. Agreeing on the
    best choice so far and passing choices on at the end is not counted.

    Args:
        rounds: Most rounds on a part with loops, >= 1.
        damping: Share of the previous message kept in a new one, in [0, 1); parts with loops only.
        tolerance: A part with loops has converged when no message changes by more than this share of its factor's
            spread (largest less smallest entry), and no choice changes; >= 0.
        repairs: Where every joint choice so far is forbidden, sweeps at most over the variables to find one that is
            not, >= 0; parts with loops only.

    Example:
        >>> import swarmbo as sb
        >>> chain = sb.FactorGraph.from_scopes({f"f{n}": [f"x{n}", f"x{n + 1}"] for n in range(4)})
        >>> tables = dict.fromkeys(chain.factors, 1.0 - np.eye(2))  # neighbours want to differ
        >>> solution = sb.MaxSum(rounds=1).solve(chain, tables)
        >>> list(solution.assignment.values()) in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1]), solution.report.status
        (True, 'exact')
    """

    rounds: int = 50
    damping: float = 0.5
    tolerance: float = 1e-6
    repairs: int = 30

    def __post_init__(self) -> None:
        require(self, "rounds", lambda rounds: rounds >= 1, "an integer >= 1")
        require(self, "damping", lambda damping: 0.0 <= damping < 1.0, "a number in [0, 1)")
        require(self, "tolerance", lambda tolerance: tolerance >= 0.0, "a number >= 0")
        require(self, "repairs", lambda repairs: repairs >= 0, "an integer >= 0")

    def solve(
        self, graph: FactorGraph, tables: Mapping[str, ArrayLike], links: "nx.Graph[Any] | None" = None
    ) -> Solution:
        """Solve in this process, and report the traffic that the agents would have had.

        Args:
            graph: Scopes and owners.
            tables: One array per factor, axes in scope order; -inf forbids a combination.
            links: Radio graph of the agents; None: everyone hears everyone.

        Returns:
            The best joint choice found: of forbidden ones that which fewest factors forbid. If it is forbidden, its
            value is -inf, the report's status ``infeasible``, and its ``violated`` names the factors that forbid it; on
            graphs with loops that does not prove that none is allowed.

        Raises:
            ShapeError: If the tables do not fit the graph.
            TransportError: If agents that must talk are not connected by links.
        """
        checked = checked_tables(graph, tables)
        plan = self.plan(graph, sizes_of(graph, checked), Routes(graph.agents, links))
        assignment: dict[str, int] = {}
        statuses: list[Status] = []
        most_rounds, traffic = 0, Traffic()
        for part in plan.parts:
            chosen, status, rounds, crossed = self.solve_part(part, {f: checked[f] for f in part.graph.factors})
            assignment.update(chosen)
            statuses.append(status)
            most_rounds, traffic = max(most_rounds, rounds), traffic + crossed
        values = factor_values(graph, checked, assignment)
        return solution_of(graph, assignment, values, statuses, most_rounds, traffic)

    def plan(self, graph: FactorGraph, sizes: Mapping[str, int], routes: Routes) -> MaxSumPlan:
        """What every agent works out for itself from the graph: its parts, their rounds, trees and order of decoding.

        Args:
            graph: Scopes and owners.
            sizes: Number of values by variable.
            routes: Who reaches whom.
        """
        parts = tuple(PartPlan(part, i, sizes, routes) for i, part in enumerate(graph.components))
        return MaxSumPlan(parts, self.rounds, self.damping, self.tolerance, self.repairs)

    def solve_part(self, plan: PartPlan, tables: Mapping[str, Table]) -> PartSolution:
        """One connected part: its choice, status, rounds and traffic. The tables are taken as they are, unchecked."""
        return solve_tree(plan, tables) if plan.graph.is_forest else self._solve_loopy(plan, tables)

    def _solve_loopy(self, plan: PartPlan, tables: Mapping[str, Table]) -> PartSolution:
        graph = plan.graph
        one_pass = one_pass_for(self.rounds * sum(table.size for table in tables.values()))
        flooding = Flooding(plan.graph, tables, one_pass)
        messages = np.zeros(flooding.n_entries)
        choices = [flooding.choices(messages)]
        best, best_rank = choices[0], rank(flooding.values(choices[0]))
        status: Status = "max_rounds"
        for _ in range(self.rounds):
            messages, change = flooding.from_factors(messages, flooding.from_variables(messages), self.damping)
            choices.append(flooding.choices(messages))
            found = rank(flooding.values(choices[-1]))
            if found > best_rank:
                best, best_rank = choices[-1], found
            if change <= self.tolerance and np.array_equal(choices[-1], choices[-2]):
                status = "converged"
                break
        from_variables = flooding.by_edge(flooding.from_variables(messages))
        last = decode(graph, plan.order, tables, from_variables, flooding.by_edge(messages))
        chosen = {variable: int(best[i]) for i, variable in enumerate(graph.variables)}
        if (found := rank(factor_values(graph, tables, last))) > best_rank:
            chosen, best_rank = last, found
        mended: list[dict[str, int]] = []
        tries = sweeps(graph, plan.order, tables, last)
        while best_rank[0] < 0 and len(mended) < self.repairs:
            mended.append(next(tries))
            if (found := rank(factor_values(graph, tables, mended[-1]))) > best_rank:
                chosen, best_rank = mended[-1], found
        return chosen, status, len(choices) - 1, plan.loopy_traffic(choices, last, mended)


def max_sum(
    graph: FactorGraph,
    tables: Mapping[str, ArrayLike],
    *,
    rounds: int = 50,
    damping: float = 0.5,
    tolerance: float = 1e-6,
    repairs: int = 30,
    links: "nx.Graph[Any] | None" = None,
) -> Solution:
    """Max-sum on a factor graph: exact on forests; see :class:`MaxSum`.

    Args:
        graph: Scopes and owners.
        tables: One array per factor, axes in scope order; always maximised; -inf forbids a combination.
        rounds: Most rounds on parts with loops.
        damping: Share of the previous message kept in a new one, in [0, 1); parts with loops only.
        tolerance: Relative change of messages below which a part with loops has converged.
        repairs: Sweeps at most to find a joint choice that is not forbidden, on parts with loops.
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
    return MaxSum(rounds=rounds, damping=damping, tolerance=tolerance, repairs=repairs).solve(graph, tables, links)


def solve_tree(plan: PartPlan, tables: Mapping[str, Table]) -> PartSolution:
    """Max-sum on a connected part without loops, each message computed once, as soon as it is final."""
    graph, sizes = plan.graph, plan.sizes
    one_pass = one_pass_for(2 * sum(table.size for table in tables.values()))  # once to the root, once away from it
    from_variables: dict[Edge, Vector] = {}
    from_factors: dict[Edge, Vector] = {}
    for level in plan.levels:
        for x, recipients in level.from_variables:
            outgoing = messages_of_variable(graph, x, sizes[x], from_factors)
            from_variables.update({(f, x): outgoing[f] for f in recipients})
        for f, recipients in level.from_factors:
            outgoing = messages_of_factor(graph, f, tables[f], from_variables, one_pass)
            from_factors.update({(f, x): normalised(outgoing[x]) for x in recipients})
    chosen = decode(graph, plan.order, tables, from_variables, from_factors)
    return chosen, "exact", len(plan.levels), plan.tree_traffic(chosen)
