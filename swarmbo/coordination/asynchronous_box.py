"""ADMM by a deadline: whoever is silent, and whatever is lost, every agent acts in time, by its own variables' values.

For a quarter of the time factors climb from several starts at once and are pulled together, each as soon as it hears
something new. Then every variable says some values that runs have ended at, factors make tables of them, and max-sum
(``asynchronous``) chooses for a third of the time, so that neighbours go together where nobody gains by going alone.
Then variables take turns, colour by colour, never two of one factor at the same time: the owner of each
says where it stands and where else it might, its factors say what they are worth there with all others where they
stand, and it goes where the sum is largest: to where a run has ended, or a step away, smaller and smaller. At the
deadline each acts by where its variables stand.

Every variable stands at the best start, which all know, until something better is known, so silence does no harm. A
turn that rests on what was overtaken on the way may be a mistake; a later one mends it.

Source:
    The rounds are those of consensus ADMM (``methods.admm``) with a penalty for each factor, so that no sum over all of
    them is needed, and with the newest that was heard of each (asynchronous ADMM is of Zhang & Kwok 2014). Turns are
    coordinate ascent; turns by colour and by a deadline are our own.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.asynchronous import Punctual
from swarmbo.coordination.box_terms import BoxTerms
from swarmbo.coordination.correspondent import Correspondent
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.messages import (
    Choice,
    FromFactor,
    FromVariable,
    Key,
    Message,
    News,
    Offer,
    Published,
    Pull,
    Runs,
    Worth,
)
from swarmbo.coordination.own_runs import OwnRuns
from swarmbo.coordination.tables import Table
from swarmbo.coordination.updates import Vector
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.transport import Envelope

_STEP = 0.1  # of the box's side: how far a variable looks at first ...
_FINER = 3.0  # ... by what less where it does not go so far, and on the way there ...
_FINEST = 1e-3  # ... and at last
_LARGEST = 64  # values in an offer of a turn


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
        super().__init__(name, decision, _correspondents(graph, name), terms.settings.patience)
        self._terms, self._graph, self._functions = terms, graph, functions
        self._factors, self._variables = graph.factors_owned_by(name), graph.variables_owned_by(name)
        self._column = graph.column_of
        self._stand = np.clip(terms.standing, terms.low, terms.high)
        self._moved = set(graph.variables)  # of which something is new to the own factors
        self._offers: dict[str, Offer] = {}
        self._worths: dict[tuple[str, str], Worth] = {}
        self._numbers: dict[tuple[str, str, int], Vector] = {}  # by teller, hearer and phase
        self._step = dict.fromkeys(self._variables, _STEP)  # how far each looks ...
        self._width = dict(self._step)  # ... and did when its turn began
        self._in_turn = set[str]()
        self._stacks = {f: stacks_of(graph, [f])[0] for f in self._factors}
        self._runs = OwnRuns(name, terms, functions)
        self._choice: Punctual | None = None  # between values that runs have ended at
        self._early: dict[Key, tuple[str, Message]] = {}  # what was said of it before it began here
        self._has_settled = False

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
        begin, end = self._terms.recombination
        if now < self._terms.runs_end:
            self._run()
        elif now < end:
            self._recombine(now, begin)
        else:
            self._settle()
            self._take_turns(now)
            self._judge()
        return self._posted() if now < self._terms.settings.deadline else []

    def word(self) -> dict[str, float]:
        """The values of its variables, within the box whatever happened."""
        low, high = self._terms.low, self._terms.high
        at = {x: self._column[x] for x in self._variables}
        return {x: float(np.clip(self._stand[i], low[i], high[i])) for x, i in at.items()}

    # What arrives

    def take(self, sender: str, message: Message) -> bool:
        """Put an entry in its place, if it is one that the sender may state."""
        if isinstance(message, Choice):
            return self._of_choice(sender, message)
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
            case Offer(variable=x):
                most = max(_LARGEST, self._terms.n_values)
                if not (self._is_seen(x, sender) and 0 < len(entries) <= most and np.isfinite(entries).all()):
                    return False
                self._set_offer(message)
            case Worth(factor=f, variable=x, number=number):
                is_right = x in self._variables and f in graph.factors_of(x) and graph.owner(f) == sender
                offer = self._offers.get(x)
                if not is_right or offer is None or number > offer.number or not (entries < np.inf).all():
                    return False
                if number == offer.number and len(entries) != len(offer.entries):
                    return False
                self._worths[f, x] = message
            case FromVariable() | FromFactor():
                return self._of_choice(sender, message)
            case Published(factor=f, neighbour=g, phase=phase):
                is_right = g in self._stacks and f in graph.neighbours(g) and graph.owner(f) == sender
                is_right = is_right and 0 <= phase < self._terms.n_exchanges
                if not (is_right and len(entries) == len(self._terms.starts) + 1 and np.isfinite(entries).all()):
                    return False
                self._numbers[f, g, phase] = entries
            case _:
                return False
        return True

    def _of_choice(self, sender: str, message: Message) -> bool:
        if self._choice is not None:
            return self._choice.take(sender, message)
        self._early[message.key] = sender, message
        return True

    def _is_of_runs(self, entries: Vector) -> bool:
        return len(entries) == len(self._terms.starts) and bool(np.isfinite(entries).all())

    def _is_seen(self, x: str, sender: str) -> bool:
        return x in self._column and self._graph.variable_owner(x) == sender

    def _set_offer(self, offer: Offer) -> None:
        i = self._column[offer.variable]
        self._offers[offer.variable] = offer
        self._stand[i] = np.clip(offer.entries[0], self._terms.low[i], self._terms.high[i])
        self._moved.add(offer.variable)

    # What leaves

    def _put(self, recipient: str, message: News, changed_by: float = np.inf) -> None:
        """Have something told, if what was told before differs by more than the threshold."""
        before = self._others[recipient].told(message.key)
        if before is None or changed_by > self._terms.settings.threshold:
            self._others[recipient].put(message, self._turn)

    def _told(self, recipient: str, message: Pull | Published) -> Vector | None:
        """The entries that were told last in the place of a message."""
        before = self._others[recipient].told(message.key)
        return before.entries if isinstance(before, Pull | Published) else None

    def _owners_of_factors(self, x: str) -> tuple[str, ...]:
        graph = self._graph
        return tuple(dict.fromkeys(o for f in graph.factors_of(x) if (o := graph.owner(f)) != self.name))

    # Numbers that neighbouring factors need of each other

    def _points(self, f: str) -> Float[np.ndarray, "1 p a"]:
        """Where a factor's runs stand, as far as was heard, and last where its variables do."""
        return self._stacks[f].take(np.concatenate([self._runs.Z, self._stand[None]]))

    def _received(self, f: str, phases: int) -> tuple[Float[np.ndarray, "1 p"], ...]:
        """What a factor received there; what was not heard counts as 0."""
        out: list[np.ndarray] = []
        for phase in range(phases):
            summed = np.zeros(len(self._terms.starts) + 1)
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

    # Recombination of runs

    def _recombine(self, now: int, begin: int) -> None:
        """Say what own variables may choose from; then choose by max-sum, together with all others."""
        for x in self._variables:
            if x not in self._offers:
                i = self._column[x]
                ends = np.concatenate([self._stand[i : i + 1], self._runs.Z[:, i]])
                self._say_offer(Offer(x, _spread_out(ends, self._terms.n_values), 0))
        if now < begin:
            return
        if self._choice is None:
            terms = self._terms.table_terms()
            tables = {f: self._table(f) for f in self._factors}
            self._choice = Punctual(self.name, terms, tables, self.decision, self._others)
            for sender, message in self._early.values():
                self._choice.take(sender, message)
        self._choice.go_on(self._now, self._turn)

    def _table(self, f: str) -> Table:
        """A factor's values by those that its variables may choose from; of one that was not heard, where it stands."""
        n_values, columns = self._terms.n_values, self._stacks[f].columns[0]
        lists = [np.full(n_values, self._stand[i]) for i in columns]
        for axis, x in enumerate(self._graph.scope(f)):
            if x in self._offers and len(self._offers[x].entries) == n_values:
                lists[axis] = self._offers[x].entries
        U = np.repeat(self._stand[None], n_values ** len(columns), axis=0)
        U[:, columns] = np.stack(np.meshgrid(*lists, indexing="ij"), axis=-1).reshape(len(U), -1)
        return self._values(f, U).reshape((n_values,) * len(columns))

    def _settle(self) -> None:
        """Go where the choice is."""
        if self._choice is None or self._has_settled:
            return
        self._has_settled = True
        for x, index in self._choice.word().items():
            self._offer(x, float(self._offers[x].entries[index or 0]))

    # Turns

    def _take_turns(self, now: int) -> None:
        for x in self._variables:
            if x not in self._offers:
                self._offer(x, self._stand[self._column[x]])
                continue
            if not self._terms.has_turn(x, now):
                if x in self._in_turn:  # what it offers then is answered when its next turn begins
                    self._in_turn.remove(x)
                    self._width[x] = self._step[x] = max(self._width[x] / _FINER, _FINEST)
                    self._offer(x, self._stand[self._column[x]])
                continue
            self._in_turn.add(x)
            if self._step[x] < _FINEST or (worth := self._worth(x)) is None:
                continue
            stand, best = self._offers[x].entries[[0, int(worth.argmax())]]  # the first of equal ones: to stay
            if abs(best - stand) < 0.9 * self._step[x] * self._terms.sides[self._column[x]]:
                self._step[x] /= _FINER
            self._offer(x, float(best))

    def _worth(self, x: str) -> Vector | None:
        """The sum of its factors by a variable's offered value; None: somebody who is not silent has not answered."""
        offer = self._offers[x]
        out = np.zeros(len(offer.entries))
        for f in self._graph.factors_of(x):
            worth, owner = self._worths.get((f, x)), self._graph.owner(f)
            if worth is not None and worth.number == offer.number:
                out += worth.entries
            elif owner == self.name or (self._terms.shares and self._is_silent(owner)):
                out += self._line(f, x, offer)
            elif not self._is_silent(owner):
                return None
        return out

    def _offer(self, x: str, stand: float) -> None:
        """Say where a variable stands, and where else it may go: to where a run ended, or a step away."""
        i, before = self._column[x], self._offers.get(x)
        step = self._step[x] * self._terms.sides[i]
        steps = np.array([-step, -step / _FINER, step / _FINER, step])
        ends = self._runs.Z[: _LARGEST - 1 - len(steps), i]
        entries = np.concatenate([[stand], ends, stand + steps])
        entries = np.clip(entries, self._terms.low[i], self._terms.high[i])
        entries = entries[np.sort(np.unique(entries, return_index=True)[1])]
        self._say_offer(Offer(x, entries, 0 if before is None else before.number + 1))

    def _say_offer(self, offer: Offer) -> None:
        self._set_offer(offer)
        x = offer.variable
        recipients = dict.fromkeys(self._owners_of_factors(x))
        if self._terms.shares:
            graph = self._graph
            silent = [f for f in graph.factors_of(x) if self._is_silent(graph.owner(f))]
            owners = (graph.variable_owner(y) for f in silent for y in graph.scope(f))
            recipients |= dict.fromkeys(owner for owner in owners if owner != self.name)
        for other in recipients:
            self._put(other, self._offers[x])

    def _judge(self) -> None:
        """Say what the own factors are worth by the value of each variable, the others where they stand."""
        for f in self._factors:
            scope = self._graph.scope(f)
            moved = [x for x in scope if x in self._moved]
            for x in scope if moved else ():
                offer, owner = self._offers.get(x), self._graph.variable_owner(x)
                if offer is None or owner == self.name:
                    continue  # its own it judges when their turn comes
                worth = Worth(f, x, self._line(f, x, offer), offer.number)
                before = self._others[owner].told(worth.key)
                changed_by = np.inf
                if isinstance(before, Worth) and before.number == offer.number:
                    changed_by = _change_of(before.entries, worth.entries)
                self._put(owner, worth, changed_by)
        self._moved.clear()

    def _line(self, f: str, x: str, offer: Offer) -> Vector:
        """A factor's values by those of an offer."""
        U, i = np.repeat(self._stand[None], len(offer.entries), axis=0), self._column[x]
        U[:, i] = offer.entries
        return self._values(f, U)

    def _values(self, f: str, U: Float[np.ndarray, "p n"]) -> Vector:
        """A factor's values at joint points, put into the box; -inf where it has none."""
        stack = self._stacks.get(f) or stacks_of(self._graph, [f])[0]
        U = np.clip(U, self._terms.low, self._terms.high)
        received = self._received(f, self._terms.n_exchanges) if f in self._stacks else self._silence
        at = tuple(np.repeat(phase[:, -1:], len(U), axis=1) for phase in received)
        if at:  # where neighbours matter, what a factor climbs counts what moving it does to their terms
            line = self._functions.value_and_gradient(stack, stack.take(U), at)[0][0]
        else:
            line = self._functions.value(stack, stack.take(U), at)[0]
        return np.where(line < np.inf, line, -np.inf)

    @property
    def _silence(self) -> tuple[Float[np.ndarray, "1 1"], ...]:
        return tuple(np.zeros((1, 1)) for _ in range(self._terms.n_exchanges))


def _spread_out(values: Vector, count: int) -> Vector:
    """The first value, and others far from one another; some more than once, if there are not so many."""
    chosen = [0]
    for _ in range(count - 1):
        chosen.append(int(np.abs(values[:, None] - values[chosen]).min(axis=1).argmax()))
    return values[chosen]


def _change_of(before: Vector, now: Vector) -> float:
    """The largest change of a line, up to a constant, as a share of its spread."""
    if not (np.isfinite(before).all() and np.isfinite(now).all()):
        return 0.0 if np.array_equal(before, now) else np.inf
    spread = float(np.ptp(now))
    change = (now - before) - (now - before).mean()
    return float(np.abs(change).max()) / spread if spread > 0.0 else np.inf if change.any() else 0.0


def _correspondents(graph: FactorGraph, name: str) -> tuple[str, ...]:
    """Who owns a variable or a neighbour of its factors, a factor of its variables, or another variable of those."""
    own, of_own = graph.factors_owned_by(name), [f for x in graph.variables_owned_by(name) for f in graph.factors_of(x)]
    them = {graph.variable_owner(x) for f in (*own, *of_own) for x in graph.scope(f)}
    them |= {graph.owner(f) for f in of_own} | {graph.owner(g) for f in own for g in graph.neighbours(f)}
    return tuple(agent for agent in graph.agents if agent in them - {name})
