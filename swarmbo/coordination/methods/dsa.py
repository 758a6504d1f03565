"""DSA, the distributed stochastic algorithm: all variables at once move to what is best given the others, by chance."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import TableOutcome
from swarmbo.coordination.local_moves import Outlook, looked_around
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.requests import Compare, Steps
from swarmbo.coordination.tables import Table
from swarmbo.coordination.view import LocalView
from swarmbo.records import Status
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Count, Fraction


@kind("coordination", FIELD)
class DSA(TableMethod, frozen=True, tag_field="kind", tag="dsa"):
    """The distributed stochastic algorithm (Zhang, Wang, Xing & Wittenburg 2005), variants A, B and C.

    Every variable starts at a value that is drawn. In a round all tell their values, and each works out which are best
    given the others'. One that would gain moves to a best value with the stated probability, or else stays; draws keep
    neighbours from moving against one another for ever. Where several values are equally good, one of them is drawn. A
    variable that would gain nothing but has another value that is as good moves there as likely

    - never (``A``),
    - if it is in conflict: one of its factors is broken, or would be better at another of its values (``B``),
    - always (``C``).

    Forbidden combinations: a value that breaks fewer factors is better than any that breaks more, whatever the sum.
    There are no weights that grow (breakout), so it may end in a choice that is forbidden; then it says so.

    Rounds end before ``rounds`` where no variable is left that might move: for ``A`` no single change is better then.
    It is a local search; on a forest max-sum is exact and costs less.

    Args:
        rounds: In each of which every variable may move, at most, >= 1.
        probability: That a variable which may move does, in (0, 1]; with 1, neighbours may move to and fro.
        variant: ``"A"``, ``"B"`` or ``"C"``.
        keep_best: Agents report the factors' values up a tree in every round, and come out with the best joint choice
            of all rounds (Zivan, Okamoto & Peled 2014), and stop when nobody may move. False: as first published they
            come out with the last one, after ``rounds``, with fewer messages.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> ring = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> tables = dict.fromkeys(ring.factors, 1.0 - np.eye(3))  # neighbours want to differ
        >>> solution = sb.DSA().solve(ring, tables, seed=1)
        >>> solution.value, solution.report.status
        (3.0, 'converged')
    """

    rounds: Count = 50
    probability: Fraction = 0.7
    variant: Literal["A", "B", "C"] = "B"
    keep_best: bool = True

    def steps(self, view: LocalView, tables: Mapping[str, Table], sizes: Mapping[str, int]) -> Steps[TableOutcome]:
        """What whoever sees some factors and variables of a connected part does."""
        draws = {x: stream(view.part.seed, "dsa", variable=x) for x in view.variables}
        return self.steps_from(view, tables, {x: int(draws[x].integers(sizes[x])) for x in view.variables}, draws)

    def steps_from(
        self,
        view: LocalView,
        tables: Mapping[str, Table],
        present: dict[str, int],
        draws: Mapping[str, np.random.Generator],
    ) -> Steps[TableOutcome]:
        """The same, where own variables are somewhere already.

        Args:
            view: Own factors and variables.
            tables: Of the own factors.
            present: The choices of own variables.
            draws: What each of them draws from.
        """
        best, best_so_far, n_rounds = present, None, 0
        status: Status = "max_rounds"
        while True:
            outlooks, values = yield from looked_around(view, tables, present)
            if self.keep_best:
                may_move = any(self._may_move(outlook) for outlook in outlooks.values())
                verdict, best_so_far = yield Compare([values], best_so_far, moved=may_move)
                best = present if verdict.best else best
                if verdict.stop:
                    status = "converged"
                    break
            if n_rounds == self.rounds:
                break
            n_rounds += 1
            present = {x: self._next(outlook, draws[x]) for x, outlook in outlooks.items()}
            if n_rounds == self.rounds and not self.keep_best:
                best = present
                break
        return TableOutcome(best, status, n_rounds)

    def _may_move(self, outlook: Outlook) -> bool:
        if not len(outlook.alternatives):
            return False
        sideways = {"A": False, "B": outlook.in_conflict, "C": True}[self.variant]
        return sideways or outlook.gain > (0, 0.0)

    def _next(self, outlook: Outlook, draws: np.random.Generator) -> int:
        if not self._may_move(outlook) or draws.random() >= self.probability:
            return outlook.present
        return int(draws.choice(outlook.alternatives))
