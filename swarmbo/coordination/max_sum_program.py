"""What one agent does in max-sum: it computes for the factors and variables it owns, and hears the rest."""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from swarmbo.coordination.decoding import best_value, conditioned_message
from swarmbo.coordination.max_sum_plan import PartPlan
from swarmbo.coordination.messages import (
    Choice,
    Conditioned,
    FromFactor,
    FromVariable,
    Key,
    Line,
    Message,
    Report,
    Verdict,
    packed,
    unpacked,
)
from swarmbo.coordination.program import Heard, Outcome, Post, Program
from swarmbo.coordination.repair import least_forbidden, line_of, reweighed
from swarmbo.coordination.tables import Rank, Table, rank, spread
from swarmbo.coordination.updates import (
    Edge,
    Vector,
    beliefs,
    damped,
    largest_changes,
    messages_of_factor,
    messages_of_variable,
    normalised,
    one_pass_for,
)
from swarmbo.records import Status

Waiting = Generator[tuple[Key, ...], dict[Key, Message], None]


class PartAgent:
    """One agent's side of solving one connected part.

    Args:
        plan: What everyone knows.
        agent: Its name.
        tables: Of the factors that it owns, in this part and in others.
        post: Posts a message.
    """

    def __init__(self, plan: PartPlan, agent: str, tables: Mapping[str, Table], post: Post) -> None:
        self.plan, self.agent, self.tables, self.post = plan, agent, tables, post
        self.graph = plan.graph
        self.factors = self.graph.factors_owned_by(agent)
        self.variables = self.graph.variables_owned_by(agent)
        self.n_entries = sum(tables[factor].size for factor in self.factors)
        self.one_pass = one_pass_for(2 * self.n_entries)  # on a tree: once to the root, once away from it
        self.from_variables: dict[Edge, Vector] = {}  # to its factors
        self.from_factors: dict[Edge, Vector] = {}  # to its variables

    def on_tree(self) -> Program:
        """Every message once, as soon as it is final; then the choices, from the root to the leaves."""
        heard = Heard()
        for level in self.plan.levels:
            for x, recipients in level.from_variables:
                if x in self.variables:
                    yield from self._hear_factors(heard, x, recipients)
                    outgoing = self._variable_messages(x)
                    for f in recipients:
                        self.post(self.graph.owner(f), FromVariable(f, x, packed(outgoing[f])))
            for f, recipients in level.from_factors:
                if f in self.factors:
                    yield from self._hear_variables(heard, f, recipients)
                    outgoing = self._factor_messages(f)
                    for x in recipients:
                        entries = packed(normalised(outgoing[x]))
                        self.post(self.graph.variable_owner(x), FromFactor(f, x, entries))
        for x in self.variables:
            yield from self._hear_factors(heard, x, ())
        for f in self.factors:
            if len(self.graph.scope(f)) > 1:
                yield from self._hear_variables(heard, f, ())
        chosen = yield from self._decode()
        return Outcome({x: chosen[x] for x in self.variables}, "exact", len(self.plan.levels))

    def on_loops(self, rounds: int, damping: float, tolerance: float, repairs: int) -> Program:
        """Rounds that renew every message, the best joint choice kept; then one decoded variable by variable.

        If all these are forbidden, the decoded one is repaired.
        """
        graph, sizes = self.graph, self.plan.sizes
        self.one_pass = one_pass_for(rounds * self.n_entries)
        self.from_factors = {(f, x): np.zeros(sizes[x]) for x in self.variables for f in graph.factors_of(x)}
        sent = {(f, x): np.zeros(sizes[x]) for f in self.factors for x in graph.scope(f)}
        spreads = {f: spread(self.tables[f]) for f in self.factors}
        choices = self._own_choices()
        best, best_so_far = choices, None
        status: Status = "max_rounds"
        n_rounds = 0
        for n_rounds in range(1, rounds + 1):  # noqa: B007
            values = yield from self._exchange_variable_messages(choices)
            change = 0.0
            for f in self.factors:
                for x, outgoing in self._factor_messages(f).items():
                    new = damped(sent[f, x], normalised(outgoing), damping)
                    change = max(change, float(largest_changes(sent[f, x], new)) / spreads[f])
                    sent[f, x] = new
                    self.post(graph.variable_owner(x), FromFactor(f, x, packed(new)))
            for x in self.variables:
                received = yield tuple(("factor", f, x) for f in graph.factors_of(x))
                for message in received.values():
                    assert isinstance(message, FromFactor)
                    self.from_factors[message.factor, x] = unpacked(message.entries)
            before, choices = choices, self._own_choices()
            verdict, best_so_far = yield from self.agree(
                {f: (value,) for f, value in values.items()}, best_so_far, change, choices != before, tolerance
            )
            best = before if verdict.best else best
            if verdict.stop:
                status = "converged"
                break
        values = yield from self._exchange_variable_messages(choices)
        decoded = yield from self._decode()
        both = {f: (values[f], self._value(f, decoded)) for f in self.factors}
        verdict, best_so_far = yield from self.agree(both, best_so_far, until_allowed=True)
        agreed, mended, weights = (best, choices, decoded)[verdict.best], decoded, dict.fromkeys(self.factors, 1.0)
        for _ in range(repairs):
            if verdict.stop:
                break
            mended = yield from self._sweep(mended, weights)
            values = {f: self._value(f, mended) for f in self.factors}
            weights = reweighed(weights, values)
            one = {f: (value,) for f, value in values.items()}
            verdict, best_so_far = yield from self.agree(one, best_so_far, until_allowed=True)
            agreed = mended if verdict.best else agreed
        return Outcome({x: agreed[x] for x in self.variables}, status, n_rounds)

    def _exchange_variable_messages(
        self, choices: Mapping[str, int]
    ) -> Generator[tuple[Key, ...], dict[Key, Message], dict[str, float]]:
        """Send and hear the variables' messages; returns the own factors' values at the choices that came along."""
        for x in self.variables:
            for f, outgoing in self._variable_messages(x).items():
                self.post(self.graph.owner(f), FromVariable(f, x, packed(outgoing), choices[x]))
        values: dict[str, float] = {}
        for f in self.factors:
            received = yield tuple(("variable", f, x) for x in self.graph.scope(f))
            said: dict[str, int] = {}
            for message in received.values():
                assert isinstance(message, FromVariable)
                self.from_variables[f, message.variable] = unpacked(message.entries)
                said[message.variable] = message.choice
            values[f] = self._value(f, said)
        return values

    def agree(
        self,
        values: Mapping[str, tuple[float, ...]],
        best_so_far: Rank | None,
        change: float = 0.0,
        moved: bool = False,
        tolerance: float = 0.0,
        until_allowed: bool = False,
    ) -> Generator[tuple[Key, ...], dict[Key, Message], tuple[Verdict, Rank | None]]:
        """Up the spanning tree and down again: which joint choice is the best so far, and whether to stop.

        Args:
            values: Of the own factors, at one or more joint choices.
            best_so_far: At the root the rank of the best choice so far; elsewhere None.
            change: Largest relative change of the own factors' messages.
            moved: Whether an own variable's choice changed.
            tolerance: Changes up to it count as none.
            until_allowed: Whether to stop is then a matter of the best choice so far: as soon as it is not forbidden.
        """
        plan, tree = self.plan, self.plan.tree
        children = tree.children[self.agent]
        known = dict(values)
        received = (yield tuple(("report", plan.index, child) for child in children)) if children else {}
        for message in received.values():
            assert isinstance(message, Report)
            below = tree.factors[message.agent]
            if below:  # an agent may own variables only
                columns = unpacked(message.values, -1, len(below)).T
                known.update(zip(below, map(tuple, columns.tolist()), strict=True))
            change, moved = max(change, message.change), moved or message.moved
        parent = tree.parent[self.agent]
        if parent is None:
            ranks = [rank(np.array(row)) for row in zip(*(known[f] for f in self.graph.factors), strict=True)]
            best = 0
            for place, candidate in enumerate(ranks, start=1):
                if best_so_far is None or candidate > best_so_far:
                    best, best_so_far = place, candidate
            is_allowed = best_so_far is not None and best_so_far[0] == 0
            verdict = Verdict(plan.index, best, is_allowed if until_allowed else change <= tolerance and not moved)
        else:
            rows = np.array([known[f] for f in tree.factors[self.agent]]).T
            self.post(parent, Report(plan.index, self.agent, packed(rows), change, moved))
            answer = yield (("verdict", plan.index),)
            verdict = answer["verdict", plan.index]
            assert isinstance(verdict, Verdict)
        for child in children:
            self.post(child, verdict)
        return verdict, best_so_far

    def _decode(self) -> Generator[tuple[Key, ...], dict[Key, Message], dict[str, int]]:
        """The joint choice, variable by variable; returns what it hears of it: at least its own factors' variables."""
        graph, heard = self.graph, Heard()
        chosen: dict[str, int] = {}
        for x in self.plan.order:
            for f in graph.factors_of(x):
                if f in self.factors and (earlier := self.plan.earlier[f, x]):
                    yield from self._hear_choices(heard, earlier, chosen)
                    decided = {y: chosen[y] for y in earlier}
                    entries = conditioned_message(self.tables[f], graph.scope(f), x, decided, self.from_variables, f)
                    self.post(graph.variable_owner(x), Conditioned(f, x, packed(entries)))
            if x in self.variables:
                given = [f for f in graph.factors_of(x) if self.plan.earlier[f, x]]
                yield from heard.wait(("given", f, x) for f in given)
                index = best_value(
                    [
                        unpacked(heard["given", f, x].entries) if f in given else self.from_factors[f, x]
                        for f in graph.factors_of(x)
                    ]
                )
                chosen[x] = index
                for agent in self.plan.told(x):
                    self.post(agent, Choice(x, index))
        for f in self.factors:
            yield from self._hear_choices(heard, graph.scope(f), chosen)
        return chosen

    def _sweep(
        self, before: Mapping[str, int], weights: Mapping[str, float]
    ) -> Generator[tuple[Key, ...], dict[Key, Message], dict[str, int]]:
        """One sweep of repair; takes and returns at least the choices of its own variables and factors."""
        graph, heard, chosen = self.graph, Heard(), dict(before)
        for x in self.plan.order:
            for f in graph.factors_of(x):
                if f in self.factors:
                    yield from self._hear_choices(heard, self.plan.earlier[f, x], chosen)
                    entries = line_of(self.tables[f], graph.scope(f), x, chosen)
                    self.post(graph.variable_owner(x), Line(f, x, packed(entries), weights[f]))
            if x in self.variables:
                yield from heard.wait(("line", f, x) for f in graph.factors_of(x))
                said: list[Line] = [heard["line", f, x] for f in graph.factors_of(x)]
                lines, counts = [unpacked(line.entries) for line in said], [line.weight for line in said]
                chosen[x] = least_forbidden(lines, counts, chosen[x])
                for agent in self.plan.told(x):
                    self.post(agent, Choice(x, chosen[x]))
        for f in self.factors:
            yield from self._hear_choices(heard, graph.scope(f), chosen)
        return chosen

    def _hear_choices(self, heard: Heard, variables: tuple[str, ...], chosen: dict[str, int]) -> Waiting:
        yield from heard.wait(("choice", y) for y in variables)
        chosen.update({y: heard["choice", y].index for y in variables})

    def _hear_factors(self, heard: Heard, x: str, recipients: tuple[str, ...]) -> Waiting:
        """Wait for the messages to a variable that one to the recipients needs: all others'."""
        needed = [f for f in self.graph.factors_of(x) if recipients != (f,)]
        yield from heard.wait(("factor", f, x) for f in needed)
        self.from_factors.update({(f, x): unpacked(heard["factor", f, x].entries) for f in needed})

    def _hear_variables(self, heard: Heard, f: str, recipients: tuple[str, ...]) -> Waiting:
        """Wait for the messages to a factor that one to the recipients needs: all others'."""
        needed = [x for x in self.graph.scope(f) if recipients != (x,) and len(self.graph.scope(f)) > 1]
        yield from heard.wait(("variable", f, x) for x in needed)
        self.from_variables.update({(f, x): unpacked(heard["variable", f, x].entries) for x in needed})

    def _variable_messages(self, x: str) -> dict[str, Vector]:
        return messages_of_variable(self.graph, x, self.plan.sizes[x], self.from_factors)

    def _factor_messages(self, f: str) -> dict[str, Vector]:
        return messages_of_factor(self.graph, f, self.tables[f], self.from_variables, self.one_pass)

    def _own_choices(self) -> dict[str, int]:
        return {
            x: int(beliefs(np.array([[self.from_factors[f, x] for f in self.graph.factors_of(x)]]))[0].argmax())
            for x in self.variables
        }

    def _value(self, f: str, chosen: Mapping[str, int]) -> float:
        return float(self.tables[f][tuple(chosen[x] for x in self.graph.scope(f))])


@dataclass(frozen=True)
class MaxSumPlan:
    """The commonly known side of max-sum.

    Args:
        parts: The connected parts of the graph.
        rounds: As in the settings, like the next two.
        damping: Share of the previous message kept in a new one.
        tolerance: Relative changes of messages up to it count as none.
        repairs: Sweeps at most over a joint choice that is forbidden.
    """

    parts: tuple[PartPlan, ...]
    rounds: int
    damping: float
    tolerance: float
    repairs: int

    def programs(self, agent: str, tables: Mapping[str, Table], post: Post) -> Iterable[Program]:
        """What one agent does; see :class:`swarmbo.coordination.program.Plan`."""
        for part in self.parts:
            if agent in part.graph.agents:
                side = PartAgent(part, agent, tables, post)
                if part.graph.is_forest:
                    yield side.on_tree()
                else:
                    yield side.on_loops(self.rounds, self.damping, self.tolerance, self.repairs)
