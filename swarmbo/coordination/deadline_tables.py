"""Max-sum by a deadline: whoever is silent, and whatever is lost, every agent acts in time, and in nobody's way.

At every tick an agent renews the messages of its own factors and variables from what it has heard, and tells others
what changed. Where values forbid one another, and on trees, variables get their values from a third of the time on,
colour by colour: the owner of each says its word, messages that take it as given make those of later colours
conditional, words are final, and ``Conflicts`` says which values may be taken before which words are heard. Elsewhere
messages may mislead, as there are loops. There they say where ``lanes`` start: what they speak for at several moments,
beside values drawn at random; these are bettered in turn, and the best is kept. At the deadline the rest is decided by
what is known.

Source:
    Messages as of synchronous max-sum (``updates``). Asynchronous max-sum is of Farinelli et al. 2008; words by colour
    and claims are our own.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import Solution
from swarmbo.coordination.conflicts import Conflicts
from swarmbo.coordination.deadline import Correspondent, Timed, links_of, ticked
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.joint_starts import RETRY, JointStarts, Schedule
from swarmbo.coordination.messages import Choice, FromFactor, FromVariable, Message, Offer, Utility, Valued
from swarmbo.coordination.tables import Table, Vector, checked_tables, sizes_of, spread, total
from swarmbo.coordination.updates import damped, kernels_for, largest_changes
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport
from swarmbo.transport import Envelope, Transport

if TYPE_CHECKING:
    import networkx as nx

NO_VALUE = -1  # on the wire: a word that takes none
_JOINT_STARTS, _NOTED = (
    12,
    6,
)  # joint choices side by side where words are not final; how many of them are what messages said
_FIRST, _COMPARED, _DECIDED = 0.2, 0.6, 0.8  # of the time: when turns begin, pause, and go on in the best lane


@runtime_checkable
class TimedTables(Timed, Protocol):
    """Settings of an agreement by a deadline on tables: ``MaxSum(…)`` has them."""

    @property
    def damping(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms of an agreement by a deadline on tables, which every agent knows beforehand.

    Args:
        settings: Deadline, patience, threshold, and the damping where there are loops.
        sizes: Number of values by variable.
        claims: Which values forbid each other, with scopes and owners.
        default: Of variables that have one, the value that stands for doing nothing.
        seed: Of what is drawn for lanes to start at.
    """

    settings: TimedTables
    sizes: Mapping[str, int]
    conflicts: Conflicts
    default: Mapping[str, int]
    seed: int = 0

    @property
    def graph(self) -> FactorGraph:
        """Scopes and owners."""
        return self.conflicts.graph

    @property
    def is_final(self) -> bool:
        """Words are final where values forbid one another, and on a tree, where messages do not mislead."""
        return bool(self.conflicts.forbidden) or self.graph.is_forest

    @property
    def slot(self) -> int:
        """Ticks for the words of one colour: two thirds of all are for words, as late ones cost most."""
        return max(1, 2 * self.settings.deadline // (3 * self.conflicts.n_colours))

    def start(self, variable: str) -> int:
        """First tick at which a variable's owner may say its word; 0 where there are too few."""
        return max(0, self.settings.deadline - self.slot * (self.conflicts.n_colours - self.conflicts.colour[variable]))

    @cached_property
    def schedule(self) -> Schedule:
        """Schedule of lanes, where words are not final."""
        ticks = self.settings.deadline
        first, compared, decided = (int(share * ticks) for share in (_FIRST, _COMPARED, _DECIDED))
        # however little time there is, turns begin where messages have come, or all would start at their first values
        return Schedule(
            self.conflicts, _JOINT_STARTS, max(1, first), compared, decided, self.settings.threshold, is_fixed=True
        )

    def looks(
        self, variable: str, stand: Float[np.ndarray, " k"], reach: Float[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k v"]:
        """All values of a variable, as numbers, wherever it stands."""
        return np.broadcast_to(np.arange(self.sizes[variable], dtype=float), (len(stand), self.sizes[variable]))


class DeadlineAgent(Correspondent):
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
        super().__init__(name, decision, _correspondents(terms, name), terms.settings.patience, retry)
        self._terms, self._graph = terms, graph
        self._factors = self._graph.factors_owned_by(name)
        self._variables = self._graph.variables_owned_by(name)
        self._tables = {f: tables[f] for f in self._factors}
        kernels = kernels_for(terms.settings.deadline * sum(table.size for table in self._tables.values()))
        self._flooding = Flooding(self._graph, self._tables, kernels, self._variables, terms.sizes)
        self._from_variables = np.zeros(self._flooding.n_entries)
        self._from_factors = np.zeros(self._flooding.n_entries)
        looped = [part for part in self._graph.components if not part.is_forest]
        self._looped = frozenset(f for part in looped for f in part.factors)
        self._renewed: tuple[np.ndarray, np.ndarray] | None = None  # what factors were told, and what they say to that
        self._words: dict[str, int | None] = {}  # of own variables, and others' as they were heard
        n = len(self._graph.variables)
        self._joint_starts = JointStarts(
            self, terms.schedule, np.zeros(n), np.ones(n), terms.looks, self._utility, terms.default
        )
        self._noted: dict[str, list[int]] = {x: [] for x in self._variables}
        order = terms.conflicts.colour
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
        is_last = now >= self._terms.settings.deadline
        if self._terms.is_final:
            self._renew()
            self._speak(is_last=is_last)
        elif now < self._terms.schedule.first:
            self._renew()
            self._note()
        else:
            self._begin()
            self._joint_starts.go_on(now, self._turn)
        if self._terms.is_final or now < self._terms.schedule.first:
            self._put_all()
        return [] if is_last else self._posted()

    def word(self) -> dict[str, int | None]:
        """The index of each own variable's value; None: nothing is done, as any value might be in another's way.

        At the deadline it is final; where values forbid one another, also once it was asked for before.
        """
        if not self._terms.is_final:
            self._begin()
            return {x: int(self._joint_starts.stand[0, self._graph.column_of[x]]) for x in self._variables}
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
                return is_right and self._joint_starts.take(sender, message)
            case Utility() | Valued() if not self._terms.is_final:
                return self._joint_starts.take(sender, message)
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
        # own variables first: their messages rest on what was heard, and those of own factors on them, in one tick
        said, _ = flooding.from_variables(self._from_factors)
        for x in self._variables:
            for f in graph.factors_of(x):
                flooding.message(self._from_variables, f, x)[:] = flooding.message(said, f, x)
        given = self._from_variables.copy()
        for f in self._factors:
            for x in graph.scope(f):
                if (value := self._given(x)) is not None:
                    # who has a word has one value left, so what factors say from now on is conditional on it
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
                    new = np.where(np.isinf(before), new, damped(before, new, self._terms.settings.damping))
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
            if len(noted) < _NOTED and self._now * (_NOTED + 1) >= self._terms.schedule.first * (len(noted) + 1):
                noted.append(self.best_guess(x))

    def _begin(self) -> None:
        """Let lanes start, if they have not yet."""
        if self._joint_starts.has_begun:
            return
        if self._renewed is None:  # it is asked for its word before its clock ran: it knows its own factors
            self._renew()
        stand = dict[str, Vector]()
        for x, noted in self._noted.items():
            noted = [*noted[:_NOTED], *[self.best_guess(x)] * (_NOTED - len(noted))]
            drawn = stream(self._terms.seed, "lanes", variable=x).integers(
                self._terms.sizes[x], size=_JOINT_STARTS - _NOTED
            )
            stand[x] = np.concatenate([noted, drawn]).astype(float)
        self._joint_starts.begin(stand, 0.0)

    def _utility(self, f: str, U: Float[np.ndarray, "p n"], joint_starts: Int[np.ndarray, " p"]) -> Vector:
        """A factor's entries; of variables that nobody knows of the best."""
        scope = self._graph.scope(f)
        free = tuple(axis for axis, x in enumerate(scope) if not self._joint_starts.knows(x))
        places = tuple(U[:, self._graph.column_of[x]].astype(int) for x in scope if self._joint_starts.knows(x))
        left = self._tables[f].max(axis=free)
        return left[places] if places else np.full(len(U), float(left))

    # Where they are

    def _speak(self, *, is_last: bool) -> None:
        """Say the words of own variables whose time has come."""
        for x in self._in_order:
            if x not in self._words and (is_last or self._is_time(x)):
                best = np.where(
                    self._terms.conflicts.allowed(x, self._terms.sizes[x], self._words), self._belief(x), -np.inf
                )
                chosen = int(np.argmax(best))
                if best[chosen] > -np.inf:
                    self._words[x] = chosen
                elif is_last:
                    # no value is certain to be allowed: doing nothing is in nobody's way, and the only safe word
                    self._words[x] = None
                else:
                    continue
                self._tell_word(x)
                self._renew()

    def _is_time(self, x: str) -> bool:
        """True if all is known that a word had better wait for, or there is no more time to wait for it."""
        terms, conflicts = self._terms, self._terms.conflicts
        start = terms.start(x)
        if self._now < start:
            return False
        if all(y in self._words for y in conflicts.neighbours[x] if conflicts.is_before(y, x)):
            return True
        is_awaited = any(conflicts.is_before(x, y) for y in conflicts.neighbours[x])
        return is_awaited and self._now >= start + terms.slot

    def _tell_word(self, x: str) -> None:
        word = self._words[x]
        told = Choice(x, NO_VALUE if word is None else word)
        graph = self._graph
        recipients = [graph.variable_owner(y) for y in self._terms.conflicts.neighbours[x]]
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
        return bool(largest_changes(before, now) > self._terms.settings.threshold * spread(now))


def _correspondents(terms: Terms, name: str) -> tuple[str, ...]:
    """Owners of variables of an agent's factors, of factors of its variables, and of neighbours of these."""
    graph, around, own = terms.graph, terms.conflicts.neighbours, terms.graph.variables_owned_by(name)
    them = {graph.variable_owner(x) for f in graph.factors_owned_by(name) for x in graph.scope(f)}
    them |= {graph.owner(f) for x in own for f in graph.factors_of(x)}
    them |= {graph.variable_owner(y) for x in own for y in around[x]}
    return tuple(agent for agent in graph.agents if agent in them - {name})


class Settled(NamedTuple):
    """The choices at the deadline.

    Args:
        said: Without variables whose owner is gone, or found no value that is certain to be allowed.
        solution: With the value that messages speak for in place of those.
    """

    said: Solution
    solution: Solution


def agree_by_deadline(
    settings: TimedTables,
    graph: "FactorGraph | nx.Graph[Any]",
    tables: "Mapping[Any, ArrayLike] | None",
    transport: Transport,
    decision: int = 0,
    *,
    default: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Settled:
    """Let one agent per owner agree by real messages, until all act at the same tick.

    Agents that no links join say nothing to each other. One that is gone at any time takes no part from then on.

    Args:
        settings: How.
        graph: Scopes and owners; or a graph of networkx, see ``FactorGraph.with_tables``.
        tables: One array per factor, axes in scope order; each is given to the factor's owner only. Which pairs of
            values they forbid all know beforehand.
        transport: Opened for at least the graph's agents.
        decision: Its number, 0 to 2^32 - 1.
        default: Of variables that have one, the value that stands for doing nothing: a silent agent's.
        seed: Of what agents draw.

    Raises:
        ShapeError: If the tables do not fit the graph.

    Example:
        >>> from swarmbo.coordination import MaxSum
        >>> from swarmbo.transport import Faults
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> apart = np.where(np.eye(3), -np.inf, np.arange(3.0)[:, None])  # neighbours must differ
        >>> transport = Faults(loss=0.3, delay=2).open(graph.agents)
        >>> settled = agree_by_deadline(MaxSum(deadline=20), graph, {"f": apart, "g": apart}, transport)
        >>> settled.said.assignment, settled.said.report.status, settled.said.report.links.clashes
        ({'x': 1, 'y': 2, 'z': 0}, 'deadline', 0)
    """
    graph, tables = FactorGraph.with_tables(graph, tables)
    checked = checked_tables(graph, tables)
    conflicts = Conflicts.of(graph, checked)
    terms = Terms(settings, sizes_of(graph, checked), conflicts, default or {}, seed)
    agents = {
        name: DeadlineAgent(name, terms, {f: checked[f] for f in graph.factors_owned_by(name)}, decision)
        for name in graph.agents
    }
    living = ticked(agents, settings.deadline, transport)
    said = {x: value for name in living for x, value in agents[name].word().items()}
    words = {x: said.get(x) for x in graph.variables}
    idle = {graph.variable_owner(x) for x, value in words.items() if value is None}
    links = links_of(agents, living, settings.deadline, transport, idle, conflicts.clashes(words))
    report = SolveReport("deadline", settings.deadline, traffic=transport.traffic, links=links)
    guessed = {x: agents[graph.variable_owner(x)].best_guess(x) for x, value in words.items() if value is None}
    done = {x: value for x, value in words.items() if value is not None}
    whole = {x: guessed[x] if value is None else value for x, value in words.items()}
    return Settled(_judged(graph, checked, done, report), _judged(graph, checked, whole, report))


def _judged(
    graph: FactorGraph, tables: Mapping[str, np.ndarray], chosen: Mapping[str, int], report: SolveReport
) -> Solution:
    whole = whole_factors(graph, chosen)
    return settled(graph, chosen, [tables[f][tuple(chosen[x] for x in graph.scope(f))] for f in whole], report)


def whole_factors(graph: FactorGraph, chosen: Collection[str]) -> list[str]:
    """The factors all of whose variables have a value."""
    return [f for f in graph.factors if all(x in chosen for x in graph.scope(f))]


def settled(graph: FactorGraph, chosen: Mapping[str, int], values: Sequence[float], report: SolveReport) -> Solution:
    """The choice that is made, its value where every variable has one, and the factors that forbid it.

    Args:
        graph: The whole graph.
        chosen: Of variables that have one, the index of the value.
        values: Of the factors all of whose variables have one, in the graph's order.
        report: How that came about.
    """
    whole = whole_factors(graph, chosen)
    broken = tuple(f for f, value in zip(whole, values, strict=True) if value == -np.inf)
    value = total(np.array(values)) if len(whole) == len(graph.factors) else None
    status = "infeasible" if broken else report.status
    judged = SolveReport(status, report.rounds, value, traffic=report.traffic, violated=broken, links=report.links)
    return Solution(dict(chosen), -np.inf if value is None else value, None, judged)
