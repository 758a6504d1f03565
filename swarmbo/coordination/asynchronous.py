"""Max-sum by a deadline: whoever is silent, and whatever is lost, every agent acts in time, and in nobody's way.

At every tick an agent renews the messages of its own factors and variables from what it has heard, and tells others
what changed. Where values forbid one another, and on trees, variables get their values from a third of the time on,
colour by colour: the owner of each says its word, messages that take it as given make those of later colours
conditional, words are final, and ``Claims`` says which values may be taken before which words are heard. Elsewhere
messages may mislead, as there are loops. There they say where ``lanes`` start: what they speak for at several moments,
beside values drawn at random; these are bettered in turn, and the best is kept. At the deadline the rest is decided by
what is known.

Source:
    Messages as of synchronous max-sum (``updates``). Asynchronous max-sum is of Farinelli et al. 2008; words by colour
    and claims are our own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from swarmbo.boundary.rng import stream
from swarmbo.coordination.claims import Claims
from swarmbo.coordination.correspondent import Correspondent
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.lanes import RETRY, Course, Lanes
from swarmbo.coordination.messages import Choice, FromFactor, FromVariable, Message, Offer, Valued, Worth
from swarmbo.coordination.tables import Table, Vector, spread
from swarmbo.coordination.updates import damped, kernels_for, largest_changes
from swarmbo.graph import FactorGraph
from swarmbo.transport import Envelope

NO_VALUE = -1  # on the wire: a word that takes none
_LANES, _NOTED = 12, 6  # joint choices side by side where words are not final; how many of them are what messages said
_FIRST, _COMPARED, _DECIDED = 0.2, 0.6, 0.8  # of the time: when turns begin, pause, and go on in the best lane


@dataclass(frozen=True, eq=False)
class Terms:
    """What every agent knows before an agreement by a deadline.

    Args:
        graph: Scopes and owners.
        sizes: Number of values by variable.
        claims: Which values forbid each other.
        deadline: Ticks until everyone acts, >= 1.
        patience: Ticks, >= 1, after which whoever says nothing is taken to stand at its default.
        threshold: A message that changes by no more than this share of its spread is not told again, >= 0.
        damping: Share of the previous message kept in a new one, in [0, 1), where there are loops.
        default: Of variables that have one, the value that stands for doing nothing.
        seed: Of what is drawn for lanes to start at.
    """

    graph: FactorGraph
    sizes: Mapping[str, int]
    claims: Claims
    deadline: int
    patience: int
    threshold: float
    damping: float
    default: Mapping[str, int]
    seed: int = 0

    @property
    def is_final(self) -> bool:
        """Whether words are: where values forbid one another they have to be, and on a tree messages do not mislead."""
        return bool(self.claims.forbidden) or self.graph.is_forest

    @property
    def slot(self) -> int:
        """Ticks for the words of one colour: two thirds of all are for words, as late ones cost most."""
        return max(1, 2 * self.deadline // (3 * self.claims.n_colours))

    def start(self, variable: str) -> int:
        """The tick from which on a variable's owner may say its word; the first where there are too few."""
        return max(0, self.deadline - self.slot * (self.claims.n_colours - self.claims.colour[variable]))

    @cached_property
    def course(self) -> Course:
        """Of words that are not final."""
        first, compared, decided = (int(share * self.deadline) for share in (_FIRST, _COMPARED, _DECIDED))
        # however little time there is, turns begin where messages have come, or all would start at their first values
        return Course(self.claims, _LANES, max(1, first), compared, decided, self.threshold, is_fixed=True)

    def looks(
        self, variable: str, stand: Float[np.ndarray, " k"], reach: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k v"]:
        """All values of a variable, as numbers, wherever it stands."""
        return np.broadcast_to(np.arange(self.sizes[variable], dtype=float), (len(stand), self.sizes[variable]))


class Punctual(Correspondent):
    """One agent of an agreement by a deadline.

    Everything it uses is what it alone has, the terms that all share, and what has arrived.

    Args:
        name: Its name, as in the graph.
        terms: What all know.
        tables: Of the factors that it owns.
        decision: Number of the decision, 0 to 2^32 - 1.
    """

    def __init__(
        self,
        name: str,
        terms: Terms,
        tables: Mapping[str, Table],
        decision: int = 0,
    ) -> None:
        graph = terms.graph
        retry = 1 if terms.is_final else RETRY  # words are short, and late ones cost most
        super().__init__(name, decision, _correspondents(terms, name), terms.patience, retry)
        self._terms, self._graph = terms, graph
        self._factors = self._graph.factors_owned_by(name)
        self._variables = self._graph.variables_owned_by(name)
        self._tables = {f: tables[f] for f in self._factors}
        kernels = kernels_for(terms.deadline * sum(table.size for table in self._tables.values()))
        self._flooding = Flooding(self._graph, self._tables, kernels, self._variables, terms.sizes)
        self._from_variables = np.zeros(self._flooding.n_entries)
        self._from_factors = np.zeros(self._flooding.n_entries)
        self._spread = {f: spread(table) for f, table in self._tables.items()}
        looped = [part for part in self._graph.components if not part.is_forest]
        self._looped = frozenset(f for part in looped for f in part.factors)
        self._renewed: tuple[np.ndarray, np.ndarray] | None = None  # what factors were told, and what they say to that
        self._words: dict[str, int | None] = {}  # of own variables, and others' as they were heard
        n = len(self._graph.variables)
        self._lanes = Lanes(self, terms.course, np.zeros(n), np.ones(n), terms.looks, self._worth, terms.default)
        self._noted: dict[str, list[int]] = {x: [] for x in self._variables}
        order = terms.claims.colour
        self._in_order = sorted(self._variables, key=lambda x: order[x])  # stable

    def tick(self, now: int, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Take what has arrived, renew messages, perhaps say words, and tell others what changed.

        Args:
            now: Ticks since the decision began; after the deadline nothing is said.
            inbox: What has arrived since the last tick.

        Returns:
            Messages to others.
        """
        self._hear_all(now, inbox)
        is_last = now >= self._terms.deadline
        if self._terms.is_final:
            self._renew()
            self._speak(is_last=is_last)
        elif now < self._terms.course.first:
            self._renew()
            self._note()
        else:
            self._begin()
            self._lanes.go_on(now, self._turn)
        if self._terms.is_final or now < self._terms.course.first:
            self._put_all()
        return [] if is_last else self._posted()

    def word(self) -> dict[str, int | None]:
        """What it does with its variables: the index of each; None: nothing, as any value might be in another's way.

        At the deadline it is final; where values forbid one another, also once it was asked for before.
        """
        if not self._terms.is_final:
            self._begin()
            return {x: int(self._lanes.stand[0, self._graph.column_of[x]]) for x in self._variables}
        self._renew()
        self._speak(is_last=True)
        return {x: self._words[x] for x in self._variables}

    def best_guess(self, variable: str) -> int:
        """The value that messages speak for, whoever may be in its way."""
        return int(np.argmax(self._belief(variable)))

    # What arrives

    def take(self, sender: str, message: Message) -> bool:
        """Put an entry in its place, if it is one that the sender may state."""
        graph = self._graph
        match message:
            case FromVariable(factor=f, variable=x):
                is_right = f in self._tables and x in graph.scope(f) and graph.variable_owner(x) == sender
                return is_right and self._place(self._from_variables, message)
            case FromFactor(factor=f, variable=x):
                is_right = x in self._variables and f in graph.factors_of(x) and graph.owner(f) == sender
                return is_right and self._place(self._from_factors, message)
            case Choice(variable=x, index=index) if self._terms.is_final:
                is_right = x in self._terms.sizes and graph.variable_owner(x) == sender
                if not is_right or not NO_VALUE <= index < self._terms.sizes[x]:
                    return False
                self._words.setdefault(x, None if index == NO_VALUE else index)
                return True
            case Offer(variable=x, entries=entries) if not self._terms.is_final:
                stand = entries[: len(entries) // 2]
                is_right = x in self._terms.sizes and bool(np.isin(stand, np.arange(self._terms.sizes[x])).all())
                return is_right and self._lanes.take(sender, message)
            case Worth() | Valued() if not self._terms.is_final:
                return self._lanes.take(sender, message)
            case _:
                return False

    def _place(self, messages: np.ndarray, message: FromVariable | FromFactor) -> bool:
        there = self._flooding.message(messages, message.factor, message.variable)
        if message.entries.shape != there.shape or not (message.entries < np.inf).all():  # nor NaN
            return False
        there[:] = message.entries
        return True

    # What follows

    def _renew(self) -> None:
        """New messages of own variables, then of own factors, by what is known."""
        flooding, graph = self._flooding, self._graph
        said, _ = flooding.from_variables(self._from_factors)
        for x in self._variables:
            for f in graph.factors_of(x):
                flooding.message(self._from_variables, f, x)[:] = flooding.message(said, f, x)
        given = self._from_variables.copy()
        for f in self._factors:
            for x in graph.scope(f):
                if (value := self._given(x)) is not None:
                    entries = flooding.message(given, f, x)
                    entries[:] = -np.inf
                    entries[value] = 0.0
        if self._renewed is None or not np.array_equal(given, self._renewed[0]):
            self._renewed = given, flooding.from_factors(self._from_factors, given, 0.0)[0]
        renewed = self._renewed[1]
        for f in self._factors:
            unknown = [x for x in graph.scope(f) if self._given(x) is None]
            for x in graph.scope(f):
                before, new = flooding.message(self._from_factors, f, x), flooding.message(renewed, f, x)
                if f in self._looped and not set(unknown) <= {x}:  # else it is what the factor is worth
                    # what was forbidden may be allowed again, when whoever was silent is heard
                    new = np.where(np.isinf(before), new, damped(before, new, self._terms.damping))
                before[:] = new

    def _given(self, variable: str) -> int | None:
        """The value that a variable has, or is taken to have; None: nobody knows."""
        word = self._words.get(variable)
        if word is not None:
            return word
        if variable in self._words or self.is_silent(self._graph.variable_owner(variable)):
            return self._terms.default.get(variable)
        return None

    def _belief(self, variable: str) -> Vector:
        heard = [self._flooding.message(self._from_factors, f, variable) for f in self._graph.factors_of(variable)]
        return np.sum(heard, axis=0)

    # Where words are not final

    def _note(self) -> None:
        """Keep what messages speak for at some moments of the time before turns."""
        for x, noted in self._noted.items():
            if len(noted) < _NOTED and self._now * (_NOTED + 1) >= self._terms.course.first * (len(noted) + 1):
                noted.append(self.best_guess(x))

    def _begin(self) -> None:
        """Let lanes start, if they have not yet."""
        if self._lanes.has_begun:
            return
        if self._renewed is None:  # it is asked for its word before its clock ran: it knows its own factors
            self._renew()
        stand = dict[str, Vector]()
        for x, noted in self._noted.items():
            noted = [*noted[:_NOTED], *[self.best_guess(x)] * (_NOTED - len(noted))]
            drawn = stream(self._terms.seed, "lanes", variable=x).integers(self._terms.sizes[x], size=_LANES - _NOTED)
            stand[x] = np.concatenate([noted, drawn]).astype(float)
        self._lanes.begin(stand, 0.0)

    def _worth(self, f: str, U: Float[np.ndarray, "p n"], lanes: Int[np.ndarray, " p"]) -> Vector:
        """A factor's entries; of variables that nobody knows of the best."""
        scope = self._graph.scope(f)
        free = tuple(axis for axis, x in enumerate(scope) if not self._lanes.knows(x))
        places = tuple(U[:, self._graph.column_of[x]].astype(int) for x in scope if self._lanes.knows(x))
        left = self._tables[f].max(axis=free)
        return left[places] if places else np.full(len(U), float(left))

    # Where they are

    def _speak(self, *, is_last: bool) -> None:
        """Say the words of own variables whose time has come."""
        for x in self._in_order:
            if x not in self._words and (is_last or self._is_time(x)):
                best = np.where(
                    self._terms.claims.allowed(x, self._terms.sizes[x], self._words), self._belief(x), -np.inf
                )
                chosen = int(np.argmax(best))
                if best[chosen] > -np.inf:
                    self._words[x] = chosen
                elif is_last:
                    self._words[x] = None
                else:
                    continue
                self._tell_word(x)
                self._renew()

    def _is_time(self, x: str) -> bool:
        """Whether all is known that a word had better wait for, or there is no more time to wait for it."""
        terms, claims = self._terms, self._terms.claims
        start = terms.start(x)
        if self._now < start:
            return False
        if all(y in self._words for y in claims.neighbours[x] if claims.is_before(y, x)):
            return True
        is_awaited = any(claims.is_before(x, y) for y in claims.neighbours[x])
        return is_awaited and self._now >= start + terms.slot

    def _tell_word(self, x: str) -> None:
        word = self._words[x]
        told = Choice(x, NO_VALUE if word is None else word)
        graph = self._graph
        recipients = [graph.variable_owner(y) for y in self._terms.claims.neighbours[x]]
        for other in dict.fromkeys([*recipients, *map(graph.owner, graph.factors_of(x))]):
            self.put(other, told, 0)

    # What leaves

    def _put_all(self) -> None:
        graph, flooding = self._graph, self._flooding
        for x in self._variables:
            if x not in self._words:  # then its word is all that counts
                for f in graph.factors_of(x):
                    self._put(graph.owner(f), FromVariable(f, x, flooding.message(self._from_variables, f, x).copy()))
        for f in self._factors:
            for x in graph.scope(f):
                if x not in self._words:
                    entries = flooding.message(self._from_factors, f, x).copy()
                    self._put(graph.variable_owner(x), FromFactor(f, x, entries))

    def _put(self, recipient: str, message: FromVariable | FromFactor) -> None:
        """Have a message told, if it differs enough from what was told last."""
        if recipient == self.name:
            return
        before = self.told(recipient, message.key)
        if isinstance(before, FromVariable | FromFactor) and not self._has_changed(before.entries, message.entries):
            return
        self.put(recipient, message, self._turn)

    def _has_changed(self, before: Vector, now: Vector) -> bool:
        return bool(largest_changes(before, now) > self._terms.threshold * spread(now))


def _correspondents(terms: Terms, name: str) -> tuple[str, ...]:
    """Who owns a variable of an agent's factors, a factor of its variables, or a neighbour of these."""
    graph, around, own = terms.graph, terms.claims.neighbours, terms.graph.variables_owned_by(name)
    them = {graph.variable_owner(x) for f in graph.factors_owned_by(name) for x in graph.scope(f)}
    them |= {graph.owner(f) for x in own for f in graph.factors_of(x)}
    them |= {graph.variable_owner(y) for x in own for y in around[x]}
    return tuple(agent for agent in graph.agents if agent in them - {name})
