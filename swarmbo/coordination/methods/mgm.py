"""MGM, maximum gain messages: of neighbours only the one that gains most moves, so the sum never falls."""

from collections.abc import Mapping

from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import TableOutcome
from swarmbo.coordination.local_moves import Outlook, looked_around
from swarmbo.coordination.messages import Gain
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.requests import Compare, Mail, Steps
from swarmbo.coordination.tables import Table
from swarmbo.coordination.view import LocalView
from swarmbo.graph import FactorGraph
from swarmbo.records import Status
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Count


@kind("coordination", FIELD)
class MGM(TableMethod, frozen=True, tag_field="kind", tag="mgm"):
    """Maximum gain messages (Maheswaran, Pearce & Tambe 2004; by utilities the breakout of Yokoo & Hirayama 1996).

    Every variable starts at a value that is drawn. In a round all tell their values, and each works out what it would
    gain by its best value given the others'. These gains are told to neighbours, variables with which it shares a
    factor, and whoever gains most among its neighbours moves; of equal gains the variable that comes first in the
    graph. No two neighbours move at once, so the sum never falls. Where nobody gains, no single change is better: a
    1-optimum, which is what it ends in if there are rounds enough. That nobody gains is noticed by reports up a tree of
    agents in every round.

    Forbidden combinations: a gain of fewer broken factors is larger than any gain of the sum. There are no weights that
    grow, so it may end in a choice that is forbidden, where no single change breaks fewer; then it says so.

    Args:
        rounds: In each of which somebody may move, at most, >= 1.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> ring = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> tables = dict.fromkeys(ring.factors, 1.0 - np.eye(3))  # neighbours want to differ
        >>> solution = sb.MGM().solve(ring, tables, seed=1)
        >>> solution.value, solution.report.status
        (3.0, 'converged')
    """

    rounds: Count = 50

    def steps(self, view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
        """What whoever sees some factors and variables of a connected part does."""
        drawn = {x: int(stream(view.part.seed, "mgm", variable=x).integers(sizes[x])) for x in view.variables}
        return self.steps_from(view, tables, drawn)

    def steps_from(self, view: LocalView, tables: Mapping[str, Table], present: dict[str, int]) -> Steps[TableOutcome]:
        """The same, where own variables are somewhere already.

        Args:
            view: Own factors and variables.
            tables: Of the own factors.
            present: The choices of own variables.
        """
        around = {x: _neighbours(view.graph, x) for x in view.variables}
        best_so_far, n_rounds = None, 0
        status: Status = "max_rounds"
        while True:
            outlooks, values = yield from looked_around(view, tables, present)
            gains = any(outlook.gain > (0, 0.0) for outlook in outlooks.values())
            verdict, best_so_far = yield Compare([values], best_so_far, moved=gains)
            if verdict.stop:
                status = "converged"
                break
            if n_rounds == self.rounds:
                break
            n_rounds += 1
            present = yield from _moved(view, outlooks, around)
        return TableOutcome(present, status, n_rounds)


def _moved(
    view: LocalView, outlooks: Mapping[str, Outlook], around: Mapping[str, tuple[str, ...]]
) -> Steps[dict[str, int]]:
    """The choices after a round."""
    graph, mail = view.graph, Mail()
    gains = {x: outlook.gain for x, outlook in outlooks.items()}
    for x, gain in gains.items():
        actor = graph.variable_owner(x)
        for other in dict.fromkeys(graph.variable_owner(y) for y in around[x]):
            if other != actor:
                mail.say(actor, other, Gain(x, *gain))
    missing = dict.fromkeys(y for x in around for y in around[x] if y not in gains)
    yield from mail.wait([("gain", y) for y in missing])
    yield from mail.close()
    told = gains | {y: (mail["gain", y].broken, mail["gain", y].worth) for y in missing}
    place = graph.column_of

    def wins(x: str) -> bool:
        return gains[x] > (0, 0.0) and all((told[y], -place[y]) < (gains[x], -place[x]) for y in around[x])

    return {x: int(look.best.argmax()) if wins(x) else look.present for x, look in outlooks.items()}


def _neighbours(graph: FactorGraph, variable: str) -> tuple[str, ...]:
    """The other variables of its factors."""
    near = dict.fromkeys(x for f in graph.factors_of(variable) for x in graph.scope(f))
    return tuple(x for x in near if x != variable)
