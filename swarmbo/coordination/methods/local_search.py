"""Local search: DSA, in which variables move at random, and MGM, in which the largest gain among neighbours moves.
Weights of broken factors do not grow (no breakout), so a search may end in a forbidden choice.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from swarmbo import settings
from swarmbo.boundary.rng import stream
from swarmbo.coordination import decoding, messages, requests
from swarmbo.coordination.agreement import TableOutcome
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.plan import TableMethod
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Sizes, Tables, Vector
from swarmbo.registry import FIELD, kind

_NOTHING = (0, 0.0)  # no gain: neither fewer broken factors nor a larger sum


class Outlook(NamedTuple):
    """A variable's options, given all others: its present value; the first best value, and its gain (fewer broken
    factors, increase of the sum); best values except the present; whether a factor is broken or could be larger.
    """

    present: int
    best: int
    gain: tuple[int, float]
    alternatives: Int[np.ndarray, " k"]
    in_conflict: bool

    @classmethod
    def of(cls, lines: Sequence[Vector], present: int) -> "Outlook":
        """Outlook from each factor's entries for the values of the variable."""
        broken, utility = decoding.weighed(lines, [1.0] * len(lines))
        fewest = broken == broken.min()
        best = np.flatnonzero(fewest & (utility == utility[fewest].max()))
        first = int(best[0])
        gain = int(broken[present] - broken[first]), float(utility[first] - utility[present])
        in_conflict = any(line[present] < line.max() or line[present] == -np.inf for line in lines)
        return cls(present, first, gain, best[best != present], in_conflict)


def _gains(outlook: Outlook) -> bool:
    return outlook.gain > _NOTHING


def looked_around(
    view: LocalView, tables: Tables, chosen: Mapping[str, int]
) -> Steps[tuple[dict[str, Outlook], Vector]]:
    """Send the choices of own variables, and return these variables' outlooks and the own factors' values."""
    graph, mail, choices = view.graph, requests.Mailbox(), dict(chosen)
    for x in view.variables:
        decoding.tell_choice(mail, graph, x, chosen[x])
    yield from decoding.hear_choices(mail, view.seen, choices)
    for f in view.factors:
        for x in graph.scope(f):
            entries = decoding.line_of(tables[f], graph.scope(f), x, choices)
            mail.post(graph.owner(f), graph.variable_owner(x), messages.Line(f, x, entries, 1.0))
    yield from mail.wait([("line", f, x) for x in view.variables for f in graph.factors_of(x)])
    yield from mail.flush()
    lines = {x: [mail["line", f, x].entries for f in graph.factors_of(x)] for x in view.variables}
    outlooks = {x: Outlook.of(own, chosen[x]) for x, own in lines.items()}
    return outlooks, np.array([tables[f][tuple(choices[x] for x in graph.scope(f))] for f in view.factors])


def searched(
    view: LocalView,
    tables: Tables,
    present: dict[str, int],
    rounds: int,
    may_move: Callable[[Outlook], bool],
    moved: Callable[[Mapping[str, Outlook]], Steps[dict[str, int]]],
    takes: Literal["best", "last", "unseen"],
) -> Steps[TableOutcome]:
    """Run rounds until no variable may move; return the best choice, the last, or the last without reports (unseen)."""
    best, best_so_far, n_rounds = present, None, 0
    while True:
        outlooks, values = yield from looked_around(view, tables, present)
        if takes != "unseen":
            may_any = any(map(may_move, outlooks.values()))
            verdict, best_so_far = yield requests.Compare([values], best_so_far, moved=may_any)
            best = present if verdict.best or takes == "last" else best
            if verdict.stop:
                return TableOutcome(best, "converged", n_rounds)
        if n_rounds == rounds:
            return TableOutcome(best, "max_rounds", n_rounds)
        n_rounds, present = n_rounds + 1, (yield from moved(outlooks))
        if takes == "unseen" and n_rounds == rounds:
            return TableOutcome(present, "max_rounds", n_rounds)


@kind("coordination", FIELD)
class DSA(TableMethod, frozen=True, tag_field="kind", tag="dsa"):
    """Distributed stochastic algorithm (Zhang, Wang, Xing & Wittenburg 2005), variants A, B and C.

    Every variable starts at a random value. In a round, all agents send the values of their variables, and find the
    best values given those received. A variable with a gain moves to its best value with the stated probability;
    otherwise it stays. Random moves end cycles in which neighbours react to each other. One of several equally good
    values is drawn. The variants differ for a variable without a gain that has another value as good. It moves there
    with the stated probability

    - never (``A``),
    - if one of its factors is broken, or has a larger entry at another value of the variable (``B``),
    - always (``C``).

    A factor is broken if its table has -inf there. A value that breaks fewer factors is better than any value that
    breaks more, whatever the sum. A search may end in a forbidden choice; the report says so.

    The search ends before ``rounds`` if no variable may move; with ``A``, no single change is an improvement then. DSA
    is a local search; on a forest, max-sum is exact and costs less.

    Args:
        rounds: Largest number of rounds, >= 1; every variable may move in each.
        probability: Probability of a possible move, in (0, 1]; with 1, neighbours may oscillate.
        variant: ``"A"``, ``"B"`` or ``"C"``, as above.
        keep_best: True: in every round, agents report the factors' values up a tree. They stop when no variable may
            move, and return the best joint choice of all rounds (Zivan, Okamoto & Peled 2014). False: as first
            published, they return the choice after ``rounds`` rounds, with fewer messages.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> ring = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> tables = dict.fromkeys(ring.factors, 1.0 - np.eye(3))  # neighbours want to differ
        >>> sb.DSA().solve(ring, tables, seed=1).value
        3.0
    """

    rounds: settings.Count = 50
    probability: settings.Fraction = 0.7
    variant: Literal["A", "B", "C"] = "B"
    keep_best: bool = True

    def steps(self, view: LocalView, tables: Tables, sizes: Sizes) -> Steps[TableOutcome]:
        """Program of an agent with the factors and variables of ``view``; see ``coordination.plan.TableMethod``."""
        draws = {x: stream(view.part.seed, "dsa", variable=x) for x in view.variables}
        return self.steps_from(view, tables, {x: int(draws[x].integers(sizes[x])) for x in view.variables}, draws)

    def steps_from(
        self, view: LocalView, tables: Tables, present: dict[str, int], draws: Mapping[str, np.random.Generator]
    ) -> Steps[TableOutcome]:
        """Steps as in ``steps``, from given values of the agent's variables, with a random stream for each variable."""

        def moved(outlooks: Mapping[str, Outlook]) -> Steps[dict[str, int]]:
            return {x: self._next(outlook, draws[x]) for x, outlook in outlooks.items()}
            yield  # makes this a generator without requests

        takes = "best" if self.keep_best else "unseen"
        return (yield from searched(view, tables, present, self.rounds, self._may_move, moved, takes))

    def _may_move(self, outlook: Outlook) -> bool:
        sideways = {"A": False, "B": outlook.in_conflict, "C": True}[self.variant]
        return len(outlook.alternatives) > 0 and (sideways or _gains(outlook))

    def _next(self, outlook: Outlook, draws: np.random.Generator) -> int:
        if not self._may_move(outlook) or draws.random() >= self.probability:
            return outlook.present
        return int(draws.choice(outlook.alternatives))


@kind("coordination", FIELD)
class MGM(TableMethod, frozen=True, tag_field="kind", tag="mgm"):
    """Maximum gain messages (Maheswaran, Pearce & Tambe 2004, from the breakout algorithm of Yokoo & Hirayama 1996).

    Every variable starts at a random value. Two variables that share a factor are neighbours. In a round, all agents
    send the values of their variables, and compute the largest gain of each variable given its neighbours' values. Then
    they send the gains, and a variable moves if its gain exceeds those of its neighbours; in a tie, the first in the
    graph moves. Two neighbours never move at once, so the sum never falls. The search ends if no variable has a gain.
    This is a 1-optimum: no single change improves it. Agents detect the end by reports up a tree in every round.

    A factor is broken if its table has -inf there. Fewer broken factors are better than any gain of the sum. A search
    ends in a forbidden choice if no single change breaks fewer factors; the report says so.

    Args:
        rounds: Largest number of rounds, >= 1.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> ring = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
        >>> tables = dict.fromkeys(ring.factors, 1.0 - np.eye(3))  # neighbours want to differ
        >>> sb.MGM().solve(ring, tables, seed=1).value
        3.0
    """

    rounds: settings.Count = 50

    def steps(self, view: LocalView, tables: Tables, sizes: Sizes) -> Steps[TableOutcome]:
        """Program of an agent with the factors and variables of ``view``; see ``coordination.plan.TableMethod``."""
        drawn = {x: int(stream(view.part.seed, "mgm", variable=x).integers(sizes[x])) for x in view.variables}
        return self.steps_from(view, tables, drawn)

    def steps_from(self, view: LocalView, tables: Tables, present: dict[str, int]) -> Steps[TableOutcome]:
        """Program of ``steps`` from given values of the agent's variables."""
        graph = view.graph
        near = {x: dict.fromkeys(y for f in graph.factors_of(x) for y in graph.scope(f)) for x in view.variables}
        around = {x: tuple(y for y in own if y != x) for x, own in near.items()}
        # no two neighbours move at once, so the sum never falls and the last choice is the best
        moved = partial(_moved, view, around)
        return (yield from searched(view, tables, present, self.rounds, _gains, moved, "last"))


def _moved(
    view: LocalView, around: Mapping[str, tuple[str, ...]], outlooks: Mapping[str, Outlook]
) -> Steps[dict[str, int]]:
    graph, mail = view.graph, requests.Mailbox()
    gains = {x: outlook.gain for x, outlook in outlooks.items()}
    for x, gain in gains.items():
        actor = graph.variable_owner(x)
        for other in dict.fromkeys(graph.variable_owner(y) for y in around[x]):
            if other != actor:
                mail.post(actor, other, messages.Gain(x, *gain))
    missing = dict.fromkeys(y for x in around for y in around[x] if y not in gains)
    yield from mail.wait([("gain", y) for y in missing])
    yield from mail.flush()
    known_gains = gains | {y: (mail["gain", y].broken, mail["gain", y].utility) for y in missing}
    index = graph.column_of

    def wins(x: str) -> bool:
        return gains[x] > _NOTHING and all((known_gains[y], -index[y]) < (gains[x], -index[x]) for y in around[x])

    return {x: look.best if wins(x) else look.present for x, look in outlooks.items()}
