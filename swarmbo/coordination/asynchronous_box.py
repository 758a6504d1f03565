"""ADMM by a deadline: whoever is silent, and whatever is lost, every agent acts in time, by its own variables' values.

At first factors climb from several starts at once and are pulled together, each as soon as it hears something new. For
most of the time then variables take turns (``lanes``): from the best start and from where some runs have ended, they
go to better values one after the other, a step away or anywhere in the box, until all agree on which of these joint
points is worth most; from there turns go on. At the deadline each agent acts by where its variables stand.

Every variable stands at the best start, which all know, until something better is known, so silence does no harm.

Source:
    The rounds are those of consensus ADMM (``methods.admm``) with a penalty for each factor, so that no sum over all of
    them is needed, and with the newest that was heard of each (asynchronous ADMM is of Zhang & Kwok 2014).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.box_terms import BoxTerms
from swarmbo.coordination.correspondent import Correspondent
from swarmbo.coordination.lanes import RETRY, Lanes
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.messages import Message, Offer, Published, Pull, Runs, Valued, Worth
from swarmbo.coordination.own_runs import OwnRuns
from swarmbo.coordination.tables import Vector
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.transport import Envelope

_REACH = 0.1  # of the box's side: how far a variable looks at first


class PunctualInBox(Correspondent):
    """One agent of an agreement by a deadline on a joint point.

    Everything it uses is what it alone has, the terms that all share, and what has arrived.

    Args:
        name: Its name, as in the graph.
        terms: What all know.
        functions: Of the factors that it owns; where agents share what they know, of others, too.
        decision: Number of the decision, 0 to 2^32 - 1.
    """

    def __init__(self, name: str, terms: BoxTerms, functions: LocalFunctions, decision: int = 0) -> None:
        graph = terms.graph
        super().__init__(name, decision, _correspondents(graph, name), terms.settings.patience, RETRY)
        self._terms, self._graph, self._functions = terms, graph, functions
        self._factors, self._variables = graph.factors_owned_by(name), graph.variables_owned_by(name)
        self._column = graph.column_of
        self._numbers: dict[tuple[str, str, int], Vector] = {}  # by teller, hearer and phase
        self._stacks = {f: stacks_of(graph, [f])[0] for f in self._factors}
        self._runs = OwnRuns(name, terms, functions)
        standing = np.clip(terms.standing, terms.low, terms.high)
        judged = terms.looks, self._values, dict(zip(graph.variables, standing.tolist(), strict=True))
        self._lanes = Lanes(self, terms.course, standing, terms.sides, *judged, shares=terms.shares)

    @classmethod
    def of(cls, name: str, terms: BoxTerms, functions: LocalFunctions, decision: int = 0) -> "PunctualInBox":
        """One that is given no more of some functions than an agent knows.

        Args:
            name: Its name.
            terms: What all know.
            functions: Of at least what it knows.
            decision: Its number.
        """
        graph = terms.graph
        return cls(name, terms, functions.of(graph.factors if terms.shares else graph.factors_owned_by(name)), decision)

    def tick(self, now: int, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Take what has arrived, climb or take turns, and tell others what changed.

        Args:
            now: Ticks since the decision began; after the deadline nothing is said.
            inbox: What has arrived since the last tick.

        Returns:
            Messages to others.
        """
        self._hear_all(now, inbox)
        for phase in range(self._terms.n_exchanges):
            self._publish(phase)
        if now < self._terms.course.first:
            self._run()
        else:
            if not self._lanes.has_begun:
                self._begin()
            self._lanes.go_on(now, self._turn)
        return self._posted() if now < self._terms.settings.deadline else []

    def word(self) -> dict[str, float]:
        """The values of its variables, within the box whatever happened."""
        low, high = self._terms.low, self._terms.high
        at = {x: self._column[x] for x in self._variables}
        return {x: float(np.clip(self._lanes.stand[0, i], low[i], high[i])) for x, i in at.items()}

    # What arrives

    def take(self, sender: str, message: Message) -> bool:
        """Put an entry in its place, if it is one that the sender may state."""
        graph, entries = self._graph, getattr(message, "entries", None)
        if not isinstance(entries, np.ndarray) or entries.ndim != 1 or np.isnan(entries).any():
            return False
        match message:
            case Pull(factor=f, variable=x, weight=weight):
                is_right = x in self._variables and f in graph.factors_of(x) and graph.owner(f) == sender
                if not (is_right and self._is_of_runs(entries) and 0.0 < weight < np.inf):
                    return False
                self._runs.pulled(message)
            case Runs(variable=x):
                if not (self._is_seen(x, sender) and self._is_of_runs(entries)):
                    return False
                self._runs.place(x, entries)
            case Offer() | Worth() | Valued():
                return self._lanes.take(sender, message)
            case Published(factor=f, neighbour=g, phase=phase):
                is_right = g in self._stacks and f in graph.neighbours(g) and graph.owner(f) == sender
                is_right = is_right and 0 <= phase < self._terms.n_exchanges
                if not (is_right and len(entries) == self._n_points and np.isfinite(entries).all()):
                    return False
                self._numbers[f, g, phase] = entries
            case _:
                return False
        return True

    def _is_of_runs(self, entries: Vector) -> bool:
        return len(entries) == len(self._terms.starts) and bool(np.isfinite(entries).all())

    def _is_seen(self, x: str, sender: str) -> bool:
        return x in self._column and self._graph.variable_owner(x) == sender

    # What leaves

    def _put(self, recipient: str, message: Pull | Published | Runs, changed_by: float = np.inf) -> None:
        """Have something told, if what was told before differs by more than the threshold."""
        if self.told(recipient, message.key) is None or changed_by > self._terms.settings.threshold:
            self.put(recipient, message, self._turn)

    def _told(self, recipient: str, message: Pull | Published) -> Vector | None:
        """The entries that were told last in the place of a message."""
        before = self.told(recipient, message.key)
        return before.entries if isinstance(before, Pull | Published) else None

    def _owners_of_factors(self, x: str) -> tuple[str, ...]:
        graph = self._graph
        return tuple(dict.fromkeys(o for f in graph.factors_of(x) if (o := graph.owner(f)) != self.name))

    # Numbers that neighbouring factors need of each other

    def _points(self, f: str) -> Float[np.ndarray, "1 p a"]:
        """Where a factor's variables stand in runs, as far as was heard, and then in lanes."""
        return self._stacks[f].take(np.concatenate([self._runs.Z, self._lanes.taken]))

    @property
    def _n_points(self) -> int:
        return len(self._terms.starts) + self._terms.course.n_lanes

    def _received(self, f: str, phases: int) -> tuple[Float[np.ndarray, "1 p"], ...]:
        """What a factor received there; what was not heard counts as 0."""
        out: list[np.ndarray] = []
        for phase in range(phases):
            summed = np.zeros(self._n_points)
            for g in self._graph.neighbours(f):
                summed += self._numbers.get((g, f, phase), 0.0)
            out.append(summed[None])
        return tuple(out)

    def _publish(self, phase: int) -> None:
        for f, stack in self._stacks.items():
            told = self._functions.published(stack, self._points(f), self._received(f, phase))[0]
            for g in self._graph.neighbours(f):
                owner, message = self._graph.owner(g), Published(f, g, told, phase)
                if owner == self.name:
                    self._numbers[f, g, phase] = told
                    continue
                before = self._told(owner, message)
                largest = max(float(np.abs(told).max()), 1e-300)
                self._put(owner, message, np.inf if before is None else float(np.abs(told - before).max()) / largest)

    # Runs

    def _run(self) -> None:
        """Let own factors climb, and own variables stand where these want them."""
        received = {f: self._received(f, self._terms.n_exchanges) for f in self._factors}
        for pull in self._runs.climb(received):
            owner = self._graph.variable_owner(pull.variable)
            if owner != self.name:
                before = self._told(owner, pull)
                self._put(owner, pull, np.inf if before is None else self._runs.change(pull, before))
        for runs in self._runs.agree():
            for owner in self._owners_of_factors(runs.variable):
                self._put(owner, runs)

    # Lanes

    def _begin(self) -> None:
        """Let lanes start where all stand at first, and where runs have ended."""
        ends = np.concatenate([self._terms.standing[None], self._runs.Z])
        self._lanes.begin({x: ends[:, self._column[x]] for x in self._variables}, _REACH)

    def _values(self, f: str, U: Float[np.ndarray, "p n"], lanes: Int[np.ndarray, " p"]) -> Vector:
        """A factor's values at joint points, put into the box; -inf where it has none."""
        stack = self._stacks.get(f) or stacks_of(self._graph, [f])[0]
        U = np.clip(U, self._terms.low, self._terms.high)
        if f not in self._stacks or not self._terms.n_exchanges:
            at = tuple(np.zeros((1, len(U))) for _ in range(self._terms.n_exchanges))
            line = self._functions.value(stack, stack.take(U), at)[0]
        else:  # where neighbours matter, what a factor climbs counts what moving it does to their terms
            received = self._received(f, self._terms.n_exchanges)
            at = tuple(phase[:, len(self._terms.starts) + lanes] for phase in received)
            line = self._functions.value_and_gradient(stack, stack.take(U), at)[0][0]
        return np.where(line < np.inf, line, -np.inf)


def _correspondents(graph: FactorGraph, name: str) -> tuple[str, ...]:
    """Who owns a variable or a neighbour of its factors, a factor of its variables, or another variable of those."""
    own, of_own = graph.factors_owned_by(name), [f for x in graph.variables_owned_by(name) for f in graph.factors_of(x)]
    them = {graph.variable_owner(x) for f in (*own, *of_own) for x in graph.scope(f)}
    them |= {graph.owner(f) for f in of_own} | {graph.owner(g) for f in own for g in graph.neighbours(f)}
    return tuple(agent for agent in graph.agents if agent in them - {name})
