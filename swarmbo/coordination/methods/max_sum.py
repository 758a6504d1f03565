"""Max-sum: exact on forests, an anytime heuristic on graphs with loops."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int

from swarmbo import settings
from swarmbo.coordination import requests
from swarmbo.coordination.agreement import Solution, TableOutcome
from swarmbo.coordination.certificates import decoded, on_tree
from swarmbo.coordination.decoding import repaired
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Sizes, Tables
from swarmbo.graph import AnyGraph, AnyTables, Links
from swarmbo.records import Status
from swarmbo.registry import FIELD, kind


@kind("coordination", FIELD)
class MaxSum(TableMethod, frozen=True, tag_field="kind", tag="max-sum"):
    """Max-sum by synchronous rounds of messages (Farinelli et al. 2008; Hoang et al. 2018, steps 1-3).

    Each connected part of the graph is solved independently. On a tree, messages are undamped, and the number of rounds
    is half the longest path; so the result is exact whatever ``rounds`` is. With loops, the best joint choice of all
    rounds is kept. After 1, 2, 4, 8, … rounds, and when messages no longer change, a choice is also decoded variable by
    variable.

    A factor is broken if its table has -inf there. A choice with broken factors is forbidden. It is repaired: one by
    one, variables take the value that breaks the fewest factors, and factors that stay broken gain weight
    (``swarmbo.coordination.decoding``). Then variables change one by one until none alone improves the sum. After the
    first forbidden choice, every new best choice is improved in this way. If a repair fails, the next one follows the
    next decoding. More rounds never give a worse result, because the best choice so far is kept.

    In each of the report's ``rounds``, variables send messages to their factors, and then factors to their variables.
    On a tree, rounds end when all messages are final; with loops, when messages no longer change, or after ``rounds``.
    Comparing, decoding and repairing are not counted.

    Args:
        rounds: Largest number of rounds on a part with loops, >= 1.
        damping: Share of the previous message that a new message keeps, in [0, 1); only on parts with loops.
        tolerance: A part with loops has converged when no choice changes, and no damped message changes by more than
            this share, >= 0, of its factor's spread. If ``damping`` is almost 1, a smaller one is needed. The spread is
            the largest minus the smallest entry, or that of the messages to the factor if all its entries are equal.
        repairs: Most sweeps over the variables to repair and improve a choice, >= 0; only on parts with loops.
        mode: ``lockstep``: agents wait for every message that they need, as described above. ``asynchronous``: agents
            wait for no message. At a deadline, they choose by the messages that they have received
            (``coordination.deadline_tables``). This mode guarantees nothing, and ignores ``rounds``, ``tolerance`` and
            ``repairs``. If no value of a variable is surely allowed, ``solve`` takes the one with the best messages.
        deadline: Number of ticks, >= 1, until all agents act. In a tick, a message crosses one or more links. This and
            the next two settings are for asynchronous mode.
        patience: Ticks, >= 1, after which a silent agent is assumed to do nothing. Links with high loss get more ticks.
        threshold: A message is not sent again if it changed by at most this share, >= 0, of its spread.

    Example:
        >>> import swarmbo as sb
        >>> chain = sb.FactorGraph.from_scopes({f"f{n}": [f"x{n}", f"x{n + 1}"] for n in range(4)})
        >>> tables = dict.fromkeys(chain.factors, 1.0 - np.eye(2))  # neighbours want to differ
        >>> solution = sb.MaxSum(rounds=1).solve(chain, tables)
        >>> list(solution.assignment.values()) in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1]), solution.report.status
        (True, 'exact')
    """

    has_deadline_mode: ClassVar[bool] = True
    rounds: settings.Count = 50
    damping: settings.Share = 0.5
    tolerance: settings.NonNegative = 1e-6
    repairs: settings.Whole = 30
    mode: Literal["lockstep", "asynchronous"] = "lockstep"
    deadline: settings.Count = 20
    patience: settings.Count = 6
    threshold: settings.NonNegative = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = "none in mode 'asynchronous': a bound needs a sum over all factors"
        settings.require(self, "bound", lambda bound: self.mode == "lockstep" or bound is None, wanted)

    def steps(self, view: LocalView, tables: Tables, sizes: Sizes) -> Steps[TableOutcome]:
        """Program of an agent with the factors and variables of ``view``; see ``coordination.plan.TableMethod``."""
        if view.graph.is_forest:
            chosen, n_rounds = yield from on_tree(view, tables, sizes)
            return TableOutcome({x: chosen[x] for x in view.variables}, "exact", n_rounds)
        best, status, n_rounds = yield from self.flooded(view, tables, sizes, self.damping, reads_out=True)
        return TableOutcome({x: int(best[view.graph.column_of[x]]) for x in view.variables}, status, n_rounds)

    def flooded(
        self, view: LocalView, tables: Tables, sizes: Sizes, damping: float, *, reads_out: bool = False
    ) -> Steps[tuple[Int[np.ndarray, " n_variables"], Status, int]]:
        """Run rounds on any part; return the best choice (valid for own factors' variables), status, number of rounds.

        Work after a round depends only on the rounds so far, so more rounds never give a worse best choice.
        If ``reads_out``, choices are decoded and repaired, and those by the last messages are evaluated too.
        """
        flooding = Flooding(view.graph, {f: tables[f] for f in view.factors}, view.variables, sizes)
        messages = np.zeros(flooding.n_entries)  # messages of factors
        from_variables, choices = flooding.from_variables(messages)
        best, best_so_far, n_rounds = choices, None, 0
        is_still, mends, tried = False, True, set[bytes]()
        while True:
            from_variables, received = yield requests.ToFactors(flooding, from_variables, choices)
            candidates, rows = [received], [flooding.values(received)]
            # only the last round depends on the number of rounds: a shorter run is a prefix of a longer run, so more
            # rounds are never worse
            is_last = is_still or n_rounds == self.rounds
            is_due = is_still or n_rounds.bit_count() == 1  # after 1, 2, 4, … rounds
            if reads_out and is_due:
                latest = yield from decoded(view, tables, flooding, from_variables, messages)
                candidates.append(flooding.by_place(latest))
                rows.append(flooding.values(candidates[-1]))
            change, moved = 0.0, True
            if not is_last:
                messages, change = flooding.from_factors(messages, from_variables, damping)
                messages = yield requests.ToVariables(flooding, messages)
                before = choices
                from_variables, choices = flooding.from_variables(messages)
                moved = not np.array_equal(choices, before)
            may_mend = reads_out and n_rounds > 0 and (is_due or mends)
            compared = requests.Compare(rows, best_so_far, change, moved, self.tolerance, tried if may_mend else None)
            verdict, best_so_far = yield compared
            best = candidates[verdict.best - 1] if verdict.best else best
            if verdict.stop is None:
                start = flooding.by_variable(candidates[verdict.best - 1])  # the last if none is better than before
                mended, mends, best_so_far = yield from repaired(view, tables, start, best_so_far, self.repairs)
                best = best if mended is None else flooding.by_place(mended)
            if is_last:
                break
            is_still, n_rounds = bool(verdict.stop), n_rounds + 1
            if not reads_out and (is_still or n_rounds == self.rounds):
                break
        return best, "converged" if is_still else "max_rounds", n_rounds


def max_sum(
    graph: AnyGraph,
    tables: AnyTables = None,
    *,
    rounds: int = 50,
    damping: float = 0.5,
    tolerance: float = 1e-6,
    repairs: int = 30,
    links: Links = None,
) -> Solution:
    """Max-sum on a factor graph: exact on forests; see :class:`MaxSum`.

    ``rounds``, ``damping``, ``tolerance`` and ``repairs`` are those of ``MaxSum``. Graph, tables, links, result and
    errors are those of ``TableMethod.solve``.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"]})
        >>> max_sum(graph, {"f": [[0.0, 3.0], [1.0, 0.0]], "g": [1.0, 0.0]}).assignment
        {'x': 0, 'y': 1}
    """
    return MaxSum(rounds=rounds, damping=damping, tolerance=tolerance, repairs=repairs).solve(graph, tables, links)
