"""Max-sum: exact on forests, an anytime heuristic on graphs with loops."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from swarmbo.coordination.agreement import Solution, TableOutcome
from swarmbo.coordination.deadline import require_lockstep
from swarmbo.coordination.deadline_tables import agree_by_deadline
from swarmbo.coordination.decoding import decode, repaired
from swarmbo.coordination.flooding import Flooding, messages_of_factor, messages_of_variable
from swarmbo.coordination.messages import Conditioned, FromFactor, FromVariable
from swarmbo.coordination.plan import Plan, TableMethod
from swarmbo.coordination.requests import Compare, Crossed, Mail, Steps, ToFactors, ToVariables
from swarmbo.coordination.tables import Edge, Flat, Table, Vector
from swarmbo.coordination.view import LocalView
from swarmbo.graph import FactorGraph
from swarmbo.records import Status
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Count, NonNegative, Share, Whole, require
from swarmbo.transport import InProcess, Routes

if TYPE_CHECKING:
    import networkx as nx


class Flooded(NamedTuple):
    """Result of rounds that renew every message; ``best`` is right for own variables and own factors' variables."""

    flooding: Flooding
    best: Int[np.ndarray, " n_variables"]
    status: Status
    rounds: int


@kind("coordination", FIELD)
class MaxSum(TableMethod, frozen=True, tag_field="kind", tag="max-sum"):
    """Max-sum by synchronous rounds of messages (Farinelli et al. 2008; Hoang et al. 2018, steps 1-3).

    Each connected part of the graph is solved independently. On a tree, messages are undamped and the number of rounds
    is half its longest path, so the result is exact whatever ``rounds`` is. On loops the best joint choice over all
    rounds is kept. After 1, 2, 4, 8, … rounds, and when messages have stopped, a choice is also decoded variable by
    variable.

    A forbidden choice is repaired: variable by variable, each takes the value that breaks the fewest factors, and
    factors that stay broken gain weight (``swarmbo.coordination.decoding``). The sum is then improved until no variable
    alone can improve it. Once a forbidden choice has occurred, every choice that is better than all before is improved
    as well. If a repair fails, the next one follows the next decoding. All this depends on earlier rounds only, so more
    rounds are never worse.

    The report's ``rounds`` count renewals of messages; in each, variables send to their factors and then factors to
    their variables. On a tree they end with the last final message, on loops when messages stop. Comparing, decoding
    and repairing are not counted.

    Args:
        rounds: Most rounds on a part with loops, >= 1.
        damping: Share of the previous message kept in a new one, in [0, 1); parts with loops only.
        tolerance: A part with loops has converged when no message changes by more than this share of its factor's
            spread (largest less smallest entry), and no choice changes; >= 0.
        repairs: Most sweeps over the variables to repair and improve a choice, >= 0; parts with loops only.
        mode: ``lockstep``: agents wait for every message that they need, as described above. ``asynchronous``: they
            wait for none, and act at a deadline by the messages received (``coordination.deadline_tables``). This mode
            has no guarantee, and ignores ``rounds``, ``tolerance`` and ``repairs``.
        deadline: Ticks, >= 1, until all agents act; in a tick a message crosses one link or several. Asynchronous mode
            only, like the following.
        patience: Ticks, >= 1, after which a silent agent is assumed to do nothing; links with high loss get more ticks.
        threshold: Messages that change by at most this share of their spread are not sent again, >= 0.

    Example:
        >>> import swarmbo as sb
        >>> chain = sb.FactorGraph.from_scopes({f"f{n}": [f"x{n}", f"x{n + 1}"] for n in range(4)})
        >>> tables = dict.fromkeys(chain.factors, 1.0 - np.eye(2))  # neighbours want to differ
        >>> solution = sb.MaxSum(rounds=1).solve(chain, tables)
        >>> list(solution.assignment.values()) in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1]), solution.report.status
        (True, 'exact')
    """

    rounds: Count = 50
    damping: Share = 0.5
    tolerance: NonNegative = 1e-6
    repairs: Whole = 30
    mode: Literal["lockstep", "asynchronous"] = "lockstep"
    deadline: Count = 20
    patience: Count = 6
    threshold: NonNegative = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        is_free = self.mode == "lockstep" or self.bound is None
        require(self, "bound", lambda _: is_free, "none in mode 'asynchronous': a bound needs a sum over all factors")

    def plan(
        self, graph: FactorGraph, sizes: Mapping[str, int], routes: Routes, seed: int = 0
    ) -> Plan[Mapping[str, Table], TableOutcome]:
        """Make the plan in lockstep; see ``TableMethod.plan``.

        Raises:
            ConfigError: If the mode is asynchronous: an agreement by a deadline has no such plan.
        """
        require_lockstep(self)
        return super().plan(graph, sizes, routes, seed)

    def solve(
        self,
        graph: "FactorGraph | nx.Graph[Any]",
        tables: "Mapping[Any, ArrayLike] | None" = None,
        links: "nx.Graph[Any] | None" = None,
        seed: int = 0,
    ) -> Solution:
        """Solve in this process, and report the traffic that agents have, or would have had.

        Args:
            graph: Scopes and owners; or a graph of networkx, see ``FactorGraph.with_tables``.
            tables: One array per factor, axes in scope order; -inf forbids a combination.
            links: Radio graph of the agents; None: every agent reaches every other.
            seed: Seed of the agents' random draws; in lockstep nothing is drawn.

        Returns:
            Joint choice as in ``TableMethod.solve``. In asynchronous mode a variable without a value that is certain to
            be allowed takes the best value by messages.
        """
        if self.mode == "lockstep":
            return super().solve(graph, tables, links, seed)
        graph, tables = FactorGraph.with_tables(graph, tables)
        return agree_by_deadline(self, graph, tables, InProcess().open(graph.agents, links), seed=seed).solution

    def steps(self, view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
        """Steps for some factors and variables of a connected part."""
        return _on_tree(view, tables, sizes) if view.graph.is_forest else self._on_loops(view, tables, sizes)

    def _on_loops(self, view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
        """Run rounds that renew every message, and take the best choice, decoded and repaired in them."""
        flooded = yield from self.flooded(view, tables, sizes, self.damping, reads_out=True)
        best = flooded.flooding.by_variable(flooded.best)
        return TableOutcome({x: best[x] for x in view.variables}, flooded.status, flooded.rounds)

    def flooded(
        self,
        view: LocalView,
        tables: Mapping[str, Table],
        sizes: Mapping[str, int],
        damping: float,
        *,
        reads_out: bool = False,
    ) -> "Steps[Flooded]":
        """Run the rounds on any part, with the given damping.

        Work after a round depends on that round and earlier ones only, so more rounds never give a worse best choice.
        If ``reads_out``, choices are decoded and repaired, and those of the last messages are evaluated too.
        """
        flooding = Flooding(view.graph, {f: tables[f] for f in view.factors}, view.variables, sizes)
        messages = np.zeros(flooding.n_entries)  # those of factors
        from_variables, choices = flooding.from_variables(messages)
        best, best_so_far, n_rounds = choices, None, 0
        is_still, mends, tried = False, True, set[bytes]()
        while True:
            from_variables, said = yield ToFactors(flooding, from_variables, choices)
            found, rows = [said], [flooding.values(said)]
            # nothing depends on the rounds left, except for the last one: fewer rounds are a prefix of more, and so
            # more are never worse
            is_last, is_due = is_still or n_rounds == self.rounds, _is_due(n_rounds) or is_still
            if reads_out and is_due:
                decoded = yield from _decoded(view, tables, flooding, from_variables, messages)
                found.append(flooding.by_place(decoded))
                rows.append(flooding.values(found[-1]))
            change, moved = 0.0, True
            if not is_last:
                messages, change = flooding.from_factors(messages, from_variables, damping)
                messages = yield ToVariables(flooding, messages)
                before = choices
                from_variables, choices = flooding.from_variables(messages)
                moved = not np.array_equal(choices, before)
            may_mend = reads_out and n_rounds > 0 and (is_due or mends)
            compared = Compare(rows, best_so_far, change, moved, self.tolerance, tried if may_mend else None)
            verdict, best_so_far = yield compared
            best = found[verdict.best - 1] if verdict.best else best
            if verdict.stop is None:
                start = flooding.by_variable(found[verdict.best - 1])  # the last if none is better than before
                mended, mends, best_so_far = yield from repaired(view, tables, start, best_so_far, self.repairs)
                best = best if mended is None else flooding.by_place(mended)
            if is_last:
                break
            is_still, n_rounds = bool(verdict.stop), n_rounds + 1
            if not reads_out and (is_still or n_rounds == self.rounds):
                break
        return Flooded(flooding, best, "converged" if is_still else "max_rounds", n_rounds)


def max_sum(
    graph: "FactorGraph | nx.Graph[Any]",
    tables: "Mapping[Any, ArrayLike] | None" = None,
    *,
    rounds: int = 50,
    damping: float = 0.5,
    tolerance: float = 1e-6,
    repairs: int = 30,
    links: "nx.Graph[Any] | None" = None,
) -> Solution:
    """Max-sum on a factor graph: exact on forests; see :class:`MaxSum`.

    Args:
        graph: Scopes and owners; or a graph of networkx, see ``FactorGraph.with_tables``.
        tables: One array per factor, axes in scope order; always maximised; -inf forbids a combination. None: tables of
            the edges and nodes of a networkx graph.
        rounds: Most rounds on parts with loops.
        damping: Share of the previous message kept in a new one, in [0, 1); parts with loops only.
        tolerance: Relative change of messages below which a part with loops has converged.
        repairs: Most sweeps to repair a forbidden joint choice, on parts with loops.
        links: Radio graph of the agents; None: every agent reaches every other.

    Returns:
        The best joint choice found.

    Raises:
        ShapeError: If the tables do not fit the graph.
        TransportError: If links do not connect agents that must exchange messages.

    Example:
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> agree = np.array([[2.0, 0.0], [0.0, 2.0]])
        >>> solution = max_sum(graph, {"f": agree, "g": -agree})
        >>> solution.assignment, solution.value, solution.report.status
        ({'x': 0, 'y': 0, 'z': 1}, 2.0, 'exact')
    """
    return MaxSum(rounds=rounds, damping=damping, tolerance=tolerance, repairs=repairs).solve(graph, tables, links)


def _on_tree(view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
    """Send every message once, as soon as it is final; then choose, from the root to the leaves."""
    if view.is_whole:
        return (yield from _on_tree_at_once(view, tables, sizes))
    graph, mail = view.graph, Mail()
    factors, variables = set(view.factors), set(view.variables)
    from_variables: dict[Edge, Vector] = {}
    from_factors: dict[Edge, Vector] = {}

    def hear(kind: str, edges: list[Edge], into: dict[Edge, Vector]) -> Steps[None]:
        yield from mail.wait([(kind, *edge) for edge in edges])
        into.update({edge: mail[kind, *edge].entries for edge in edges})

    # a message needs those of all but its recipient, so each message is sent once, when it is final
    for level in view.part.levels:
        writing = [(x, to) for x, to in level.from_variables if x in variables]
        needed = [(f, x) for x, to in writing for f in graph.factors_of(x) if to != (f,)]
        yield from hear("factor", needed, from_factors)
        for x, recipients in writing:
            outgoing, actor = messages_of_variable(graph, x, sizes[x], from_factors), graph.variable_owner(x)
            for f in recipients:
                mail.say(actor, graph.owner(f), FromVariable(f, x, outgoing[f]))
        answering = [(f, to) for f, to in level.from_factors if f in factors]
        needed = [(f, x) for f, to in answering for x in _writers(graph, f) if to != (x,)]
        yield from hear("variable", needed, from_variables)
        for f, recipients in answering:
            outgoing, owner = messages_of_factor(graph, f, tables[f], from_variables), graph.owner(f)
            for x in recipients:
                mail.say(owner, graph.variable_owner(x), FromFactor(f, x, outgoing[x]))
    yield from hear("factor", [(f, x) for x in view.variables for f in graph.factors_of(x)], from_factors)
    yield from hear("variable", [(f, x) for f in view.factors for x in _writers(graph, f)], from_variables)
    yield from mail.close()
    chosen = yield from decode(view, tables, from_variables, from_factors)
    return TableOutcome({x: chosen[x] for x in view.variables}, "exact", len(view.part.levels))


def _on_tree_at_once(view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
    """Same for a whole part in one process: bit-identical messages and choices, and as many."""
    flooding = Flooding(view.graph, tables, view.variables, sizes)
    from_variables, from_factors, n_rounds = flooding.tree_messages()
    edges, lengths = view.graph.edges, flooding.edge_sizes
    writes = np.diff(edges.first)[edges.factors] > 1
    yield Crossed(lambda counts: counts.numbers(FromVariable, lengths, writes) + counts.numbers(FromFactor, lengths))
    chosen = yield from _decoded(view, tables, flooding, from_variables, from_factors)
    return TableOutcome({x: chosen[x] for x in view.variables}, "exact", n_rounds)


def _decoded(
    view: LocalView, tables: Mapping[str, Table], flooding: Flooding, from_variables: Flat, from_factors: Flat
) -> Steps[dict[str, int]]:
    """Choose variable by variable from the last messages; in one call for a whole part in one process."""
    if not view.is_whole:
        return (yield from decode(view, tables, flooding.by_edge(from_variables), flooding.by_edge(from_factors)))
    choices = flooding.last_choices(from_variables, from_factors)
    edges, place = view.graph.edges, np.empty(len(view.variables), dtype=np.int64)
    place[[view.graph.column_of[x] for x in view.part.order]] = np.arange(len(view.variables))
    turns = place[edges.variables]
    is_given = turns > np.minimum.reduceat(turns, edges.first[:-1])[edges.factors]  # an earlier variable is decided
    lengths = flooding.edge_sizes
    yield Crossed(lambda counts: counts.numbers(Conditioned, lengths, is_given) + counts.words(choices))
    return flooding.by_variable(choices)


def _writers(graph: FactorGraph, factor: str) -> tuple[str, ...]:
    """Variables that write to a factor; the only variable of a factor does not."""
    scope = graph.scope(factor)
    return scope if len(scope) > 1 else ()


def _is_due(n_rounds: int) -> bool:
    """True after a power of two of rounds, when choices are decoded."""
    return n_rounds > 0 and n_rounds & (n_rounds - 1) == 0
