"""Max-sum by a deadline: every agent acts in time, and no two agents' values conflict, whatever messages are lost.

At every tick, an agent renews the messages of its own factors and variables, and sends changes. On trees, and if values
forbid one another, variables are decided after a third of the time, colour by colour, with the rule of ``Conflicts``.
These decisions are final, and later messages are conditional on them. On other graphs, messages may be misleading, as
there are loops. There, they only provide some of the starts of ``joint_starts``.

Source: asynchronous max-sum: Farinelli et al. 2008. Decisions by colour and conflicts are our own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import Solution, partial_solution
from swarmbo.coordination.deadline import DeadlineAgent, link_report, run_until_deadline
from swarmbo.coordination.flooding import Flooding, damped, largest_changes
from swarmbo.coordination.joint_starts import RETRY, JointStarts, Schedule
from swarmbo.coordination.messages import Choice, FromFactor, FromVariable, Message, Offer, Utility, Valued
from swarmbo.coordination.tables import Conflicts, Sizes, Tables, Vector, checked_tables, sizes_of, spreads
from swarmbo.graph import AnyGraph, AnyTables, FactorGraph
from swarmbo.records import SolveReport
from swarmbo.transport import Envelope, Transport

NO_VALUE = -1  # on the wire: a decision for no value
# number of joint starts if decisions are not final, and how many of them are taken from messages
_JOINT_STARTS, _GUESSES = 12, 6
_FIRST, _COMPARED, _DECIDED = 0.2, 0.6, 0.8  # shares of the time: turns begin, pause, and continue


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms of an agreement by a deadline on tables, known to all; ``default`` holds the values for doing nothing."""

    settings: Any
    sizes: Sizes
    conflicts: Conflicts
    default: Mapping[str, int]
    seed: int = 0

    @property
    def graph(self) -> FactorGraph:
        """Scopes and owners."""
        return self.conflicts.graph

    @property
    def is_final(self) -> bool:
        """True if decisions are final: values forbid one another, or the graph is a tree, where messages are exact."""
        return bool(self.conflicts.forbidden) or self.graph.is_forest

    @property
    def slot(self) -> int:
        """Ticks for the decisions of one colour: decisions have two thirds of all ticks, as late ones cost most."""
        return max(1, 2 * self.settings.deadline // (3 * self.conflicts.n_colours))

    def start(self, variable: str) -> int:
        """First tick at which a variable's owner may decide; 0 if there are too few ticks."""
        return max(0, self.settings.deadline - self.slot * (self.conflicts.n_colours - self.conflicts.colour[variable]))

    @cached_property
    def schedule(self) -> Schedule:
        """Schedule of joint starts, for decisions that are not final."""
        ticks, threshold = self.settings.deadline, self.settings.threshold
        first, compared, decided = (int(share * ticks) for share in (_FIRST, _COMPARED, _DECIDED))
        first = max(1, first)  # at least one tick for messages, or all variables would start at their first values
        return Schedule(self.conflicts, _JOINT_STARTS, first, compared, decided, threshold, is_fixed=True)

    def candidates(self, variable: str, values: Vector, reach: Vector) -> Float[np.ndarray, "k v"]:
        """All values of a variable, as numbers, whatever its present value."""
        return np.broadcast_to(np.arange(self.sizes[variable], dtype=float), (len(values), self.sizes[variable]))


class DeadlineTableAgent(DeadlineAgent):
    """One agent of an agreement by a deadline on tables, from its own tables, the common terms, and arrivals."""

    def __init__(self, name: str, terms: Terms, tables: Tables, decision: int = 0) -> None:
        # final decisions are short, and late decisions cost most, so entries are repeated at every tick
        super().__init__(name, terms.graph, terms.settings, decision, retry=1 if terms.is_final else RETRY)
        self._terms, self._tables = terms, {f: tables[f] for f in self._factors}
        self._flooding = Flooding(self._graph, self._tables, self._variables, terms.sizes)
        self._from_variables = np.zeros(self._flooding.n_entries)
        self._from_factors = np.zeros(self._flooding.n_entries)
        looped = [part for part in self._graph.components if not part.is_forest]
        self._looped = frozenset(f for part in looped for f in part.factors)
        self._renewed: tuple[np.ndarray, np.ndarray] | None = None  # factors' last input, and their messages
        self._decided: dict[str, int | None] = {}  # decisions: own ones, and others' as received
        n = len(self._graph.variables)
        judged = terms.candidates, self._utility, terms.default
        self._joint_starts = JointStarts(self, terms.schedule, np.zeros(n), np.ones(n), *judged)
        self._guesses: dict[str, list[int]] = {x: [] for x in self._variables}
        self._in_order = sorted(self._variables, key=terms.conflicts.colour.__getitem__)  # stable

    def tick(self, now: int, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrivals, renew messages, perhaps decide variables, and send changes to others; see the base."""
        self._receive_all(now, inbox)
        is_last = now >= self._terms.settings.deadline
        if self._terms.is_final or now < self._terms.schedule.first:
            self._renew_messages()
            if self._terms.is_final:
                self._decide_due(is_last=is_last)
            else:
                for x, noted in self._guesses.items():
                    due = self._terms.schedule.first * (len(noted) + 1)
                    if len(noted) < _GUESSES and self._now * (_GUESSES + 1) >= due:
                        noted.append(self.best_guess(x))
            self._announce_changes()
        else:
            self._begin_joint_starts()
            self._joint_starts.advance(now, self._version)
        return [] if is_last else self._outgoing()

    def decided_values(self) -> dict[str, int | None]:
        """Index of each own variable's value; None: do nothing, as any value might conflict. Final at the deadline; if
        decisions are final, already at the first call.
        """
        if not self._terms.is_final:
            self._begin_joint_starts()
            return {x: int(self._joint_starts.points[0, self._graph.column_of[x]]) for x in self._variables}
        self._renew_messages()
        self._decide_due(is_last=True)
        return {x: self._decided[x] for x in self._variables}

    def best_guess(self, variable: str) -> int:
        """Best value by messages, regardless of conflicts."""
        return int(np.argmax(self._belief(variable)))

    def accept(self, sender: str, message: Message) -> bool:
        """Store an entry if it is admissible from this sender; return True if it was stored."""
        graph = self._graph
        match message:
            case FromVariable(factor=f, variable=x):
                is_right = f in self._tables and x in graph.scope(f) and graph.variable_owner(x) == sender
                return is_right and self._store_entries(self._from_variables, message)
            case FromFactor(factor=f, variable=x):
                return self.is_to_variable(sender, f, x) and self._store_entries(self._from_factors, message)
            case Choice(variable=x, index=index) if self._terms.is_final:
                if not self.is_owner(sender, x) or not NO_VALUE <= index < self._terms.sizes[x]:
                    return False
                self._decided.setdefault(x, None if index == NO_VALUE else index)
                return True
            case Offer(variable=x, entries=entries) if not self._terms.is_final:
                values = entries[: len(entries) // 2]
                is_right = x in self._terms.sizes and bool(np.isin(values, np.arange(self._terms.sizes[x])).all())
                return is_right and self._joint_starts.accept(sender, message)
            case Utility() | Valued() if not self._terms.is_final:
                return self._joint_starts.accept(sender, message)
            case _:
                return False

    def _store_entries(self, messages: np.ndarray, message: FromVariable | FromFactor) -> bool:
        there = self._flooding.message(messages, message.factor, message.variable)
        if message.entries.shape != there.shape or not (message.entries < np.inf).all():  # nor NaN
            return False
        there[:] = message.entries
        return True

    def _renew_messages(self) -> None:
        """Renew the messages of own variables, then of own factors, from the present knowledge."""
        flooding, graph = self._flooding, self._graph
        # own variables first: their messages depend on arrivals, and own factors' messages on them, in one tick
        from_variables, _ = flooding.from_variables(self._from_factors)
        for x in self._variables:
            for f in graph.factors_of(x):
                flooding.message(self._from_variables, f, x)[:] = flooding.message(from_variables, f, x)
        input = self._from_variables.copy()
        for f in self._factors:
            for x in graph.scope(f):
                if (value := self._known_value(x)) is not None:
                    # a decided variable has one value left, so later messages of factors are conditional on it
                    entries = flooding.message(input, f, x)
                    entries[:] = -np.inf
                    entries[value] = 0.0
        if self._renewed is None or not np.array_equal(input, self._renewed[0]):
            self._renewed = input, flooding.from_factors(self._from_factors, input, 0.0)[0]
        renewed = self._renewed[1]
        for f in self._factors:
            unknown = [x for x in graph.scope(f) if self._known_value(x) is None]
            for x in graph.scope(f):
                before, new = flooding.message(self._from_factors, f, x), flooding.message(renewed, f, x)
                if f in self._looped and not set(unknown) <= {x}:  # else no loop feeds the message
                    # a forbidden value may be allowed again when a silent agent sends again
                    new = np.where(np.isinf(before), new, damped(before, new, self._terms.settings.damping))
                before[:] = new

    def _known_value(self, variable: str) -> int | None:
        """Value of a variable, decided or (of a silent agent) assumed; None if unknown."""
        if (value := self._decided.get(variable)) is not None:
            return value
        if variable in self._decided or self.is_silent(self._graph.variable_owner(variable)):
            return self._terms.default.get(variable)
        return None

    def _belief(self, variable: str) -> Vector:
        received = [self._flooding.message(self._from_factors, f, variable) for f in self._graph.factors_of(variable)]
        return np.sum(received, axis=0)

    def _begin_joint_starts(self) -> None:
        """Begin joint starts, unless they have begun."""
        if self._joint_starts.has_begun:
            return
        if self._renewed is None:  # requested before the first tick: it knows its own factors
            self._renew_messages()
        values = dict[str, Vector]()
        for x, noted in self._guesses.items():
            noted = [*noted[:_GUESSES], *[self.best_guess(x)] * (_GUESSES - len(noted))]
            rng, n_drawn = stream(self._terms.seed, "lanes", variable=x), _JOINT_STARTS - _GUESSES
            values[x] = np.concatenate([noted, rng.integers(self._terms.sizes[x], size=n_drawn)]).astype(float)
        self._joint_starts.begin(values, 0.0)

    def _utility(self, f: str, U: Float[np.ndarray, "p n"], joint_starts: Int[np.ndarray, " p"]) -> Vector:
        scope = self._graph.scope(f)
        free = tuple(axis for axis, x in enumerate(scope) if not self._joint_starts.knows(x))
        places = tuple(U[:, self._graph.column_of[x]].astype(int) for x in scope if self._joint_starts.knows(x))
        left = self._tables[f].max(axis=free)
        return left[places] if places else np.full(len(U), float(left))

    def _decide_due(self, *, is_last: bool) -> None:
        for x in self._in_order:
            if x not in self._decided and (is_last or self._may_decide(x)):
                allowed = self._terms.conflicts.allowed(x, self._terms.sizes[x], self._decided)
                best = np.where(allowed, self._belief(x), -np.inf)
                chosen = int(np.argmax(best))
                if best[chosen] > -np.inf:
                    self._decided[x] = chosen
                elif is_last:
                    # no value is certain to be allowed: doing nothing conflicts with no agent, so it is the safe choice
                    self._decided[x] = None
                else:
                    continue
                self._announce_decision(x)
                self._renew_messages()

    def _may_decide(self, x: str) -> bool:
        """True if the neighbours' earlier decisions have arrived, or the time to wait is over."""
        terms, conflicts = self._terms, self._terms.conflicts
        start = terms.start(x)
        if self._now < start:
            return False
        if all(y in self._decided for y in conflicts.neighbours[x] if conflicts.is_before(y, x)):
            return True
        is_awaited = any(conflicts.is_before(x, y) for y in conflicts.neighbours[x])
        return is_awaited and self._now >= start + terms.slot

    def _announce_decision(self, x: str) -> None:
        value = self._decided[x]
        choice = Choice(x, NO_VALUE if value is None else value)
        graph = self._graph
        recipients = [graph.variable_owner(y) for y in self._terms.conflicts.neighbours[x]]
        for other in dict.fromkeys([*recipients, *map(graph.owner, graph.factors_of(x))]):
            self.put(other, choice, 0)

    def _announce_changes(self) -> None:
        graph, flooding = self._graph, self._flooding
        sent = [(FromVariable, graph.owner(f), f, x) for x in self._variables for f in graph.factors_of(x)]
        sent += [(FromFactor, graph.variable_owner(x), f, x) for f in self._factors for x in graph.scope(f)]
        for kind, recipient, f, x in sent:
            if x not in self._decided:  # otherwise only its decision counts
                entries = self._from_variables if kind is FromVariable else self._from_factors
                now = flooding.message(entries, f, x).copy()
                # changes are compared with threshold times spread, as a division by the spread would round
                self.announce(recipient, kind(f, x, now), largest_changes, spreads(now[None])[0])


def agree_by_deadline(
    settings: Any,
    graph: AnyGraph,
    tables: AnyTables,
    transport: Transport,
    decision: int = 0,
    *,
    default: Mapping[str, int] | None = None,
    seed: int = 0,
    guesses: bool = True,
) -> Solution:
    """Let one agent per owner agree by real messages until all act at the same tick. Agents know the pairs of values
    that tables forbid. ``default`` holds the values for doing nothing, used for silent agents' variables. A variable
    without a safe value gets its best value by messages if ``guesses``, else no value.
    """
    graph, tables = FactorGraph.with_tables(graph, tables)
    checked = checked_tables(graph, tables)
    conflicts = Conflicts.of(graph, checked)
    terms = Terms(settings, sizes_of(graph, checked), conflicts, default or {}, seed)
    agents = {
        name: DeadlineTableAgent(name, terms, {f: checked[f] for f in graph.factors_owned_by(name)}, decision)
        for name in graph.agents
    }
    living = run_until_deadline(agents, settings.deadline, transport)
    decided = {x: value for name in living for x, value in agents[name].decided_values().items()}
    values = {x: decided.get(x) for x in graph.variables}
    if guesses:
        values |= {x: agents[graph.variable_owner(x)].best_guess(x) for x, value in decided.items() if value is None}
    undecided = {graph.variable_owner(x) for x, value in values.items() if value is None}
    links = link_report(agents, living, settings.deadline, transport, undecided, conflicts.clashes(values))
    report = SolveReport("deadline", settings.deadline, traffic=transport.traffic, links=links)
    return partial_solution(graph, checked, {x: value for x, value in values.items() if value is not None}, report)
