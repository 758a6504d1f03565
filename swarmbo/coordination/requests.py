"""Requests of a method during an agreement: the only ways in which it gets others' data.

A method is a generator that yields requests, and is sent their answers. By messages, each agent runs it on its own
factors and variables, and ``coordination.by_messages`` answers from arrivals. In one process it runs once on the whole
part, and ``coordination.central`` answers at once. Both add in the same fixed order, so their decisions are
bit-identical. Messages of a request are made here for both, so both count the same traffic.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination import messages
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.messages import Key, Message
from swarmbo.coordination.part import BoxView, Copies, Part, Rows
from swarmbo.coordination.schema import LARGEST, Fits, FitsData, accept_all
from swarmbo.coordination.tables import Flat, Rank, rank
from swarmbo.graph import FactorGraph
from swarmbo.graph.box_functions import by_factor
from swarmbo.records import Traffic
from swarmbo.steps import Steps


class AddressedMessage(NamedTuple):
    """A message with its sender and recipient."""

    sender: str
    recipient: str
    message: Message


class Send(NamedTuple):
    """Messages of own factors and variables; answered by those of ``keys``, with numbers in [0, ``below``) if given."""

    messages: Sequence[AddressedMessage] = ()
    keys: Sequence[Key] = ()
    below: float | None = None


class ToFactors(NamedTuple):
    """Messages of every variable to all its factors, with its best value; answered by updated entries and choices."""

    flooding: Flooding
    entries: Flat
    choices: Int[np.ndarray, " n_variables"]

    def messages(self) -> Iterator[AddressedMessage]:
        """Messages of the own variables."""
        flooding, graph = self.flooding, self.flooding.graph
        for x in flooding.variables:
            choice = int(self.choices[flooding.column_of[x]])
            for f in graph.factors_of(x):
                yield to_factor(graph, messages.FromVariable(f, x, flooding.message(self.entries, f, x), choice))


class ToVariables(NamedTuple):
    """Messages of every factor to all its variables; answered by the entries, with those received filled in."""

    flooding: Flooding
    entries: Flat

    def messages(self) -> Iterator[AddressedMessage]:
        """Messages of the own factors."""
        flooding, graph = self.flooding, self.flooding.graph
        for f in flooding.factors:
            for x in graph.scope(f):
                yield to_variable(graph, messages.FromFactor(f, x, flooding.message(self.entries, f, x)))


class Exchange(NamedTuple):
    """One number per point from every factor to each neighbour; answered by the sum that each factor received."""

    view: BoxView
    numbers: Rows
    phase: int

    def messages(self) -> Iterator[AddressedMessage]:
        """Messages of the own factors."""
        part = self.view.part
        for factor, numbers in by_factor(self.view.stacks, self.numbers).items():
            for other in part.neighbours[factor]:
                message = messages.Published(factor, other, numbers, self.phase)
                yield AddressedMessage(part.graph.owner(factor), part.graph.owner(other), message)


class Reduce(NamedTuple):
    """Factors' entries to their variables' owners; answered by the sums (m, n), valid for own factors' variables."""

    view: BoxView
    kind: type[messages.Copy] | type[messages.Slope]
    copies: Copies
    n_points: int

    def messages(self) -> Iterator[AddressedMessage]:
        """Messages of the own factors, for variables with several factors."""
        graph, is_shared = self.view.graph, self.view.part.is_shared
        for stack, copies in zip(self.view.stacks, self.copies, strict=True):
            for factor, copy in zip(stack.factors, copies, strict=True):
                for axis, variable in enumerate(graph.scope(factor)):
                    if is_shared[variable]:
                        yield to_variable(graph, self.kind(factor, variable, copy[:, axis]))


class AllReduce(NamedTuple):
    """Terms (own factors, k, m), in the order of the part; answered by their sums (k, m) over the whole part."""

    terms: Float[np.ndarray, "_f k m"]
    fits: Fits = accept_all
    limit: float = LARGEST  # of finite sums

    @classmethod
    def of(cls, view: BoxView, n_points: int, *rows: Rows) -> "AllReduce":
        """Make a request from rows that hold, for each stack, one number for each factor and point."""
        if not view.factors:
            return cls(np.zeros((0, len(rows), n_points)))
        return cls(np.stack([view.in_order(row) for row in rows], axis=1))


class Best(NamedTuple):
    """Rows of numbers (own factors, m), none of them NaN; answered by the lexicographically largest row of all."""

    rows: Float[np.ndarray, "_f m"]
    fits: Fits = accept_all
    limit: float = LARGEST

    def largest(self, received: Iterable[Float[np.ndarray, " m"]] = ()) -> Float[np.ndarray, " m"]:
        """Largest of the own and the received rows; -inf if there are none."""
        rows = [*self.rows.tolist(), *(row.tolist() for row in received)]
        return np.array(max(rows)) if rows else np.full(self.rows.shape[1:], -np.inf)


class ToAll(NamedTuple):
    """Data of agents to all others, up and down the tree; answered by the data of all, in the order of the part."""

    data: Mapping[str, bytes]
    fits: FitsData = accept_all

    @staticmethod
    def message(
        part: Part, sender: str, recipient: str, known: Mapping[str, bytes], without: Collection[str] = ()
    ) -> AddressedMessage:
        """Message along the tree, without the data of agents that the recipient has."""
        others = {name: data for name, data in known.items() if name not in without}
        return AddressedMessage(sender, recipient, messages.Reports(part.index, sender, others))


class InTurn(NamedTuple):
    """Data of agents, each made by ``make_data`` from earlier agents' data; the last agent sends what others lack."""

    order: Sequence[str]
    make_data: Callable[[str, Mapping[str, bytes]], bytes]
    fits: FitsData = accept_all

    def messages(self, part: Part, agent: str, known: Mapping[str, bytes]) -> Iterator[AddressedMessage]:
        """Messages of an agent: from the last agent to all others, from each earlier agent to the next."""
        index_of = {name: n for n, name in enumerate(self.order)}
        if agent != self.order[-1]:
            yield ToAll.message(part, agent, self.order[index_of[agent] + 1], known)
            return
        for other in part.agents:
            if other != agent:
                yield ToAll.message(part, agent, other, known, self.order[: index_of.get(other, -1) + 1])


class Compare(NamedTuple):
    """Comparison of joint choices (rows of own factors' values) with the best so far; answered by a verdict and, at the
    root, the rank of the best. There, ``tried`` holds the choices repaired so far; None: no repairs.
    """

    values: Sequence[Float[np.ndarray, " _f"]]
    best_so_far: Rank | None
    change: float = 0.0
    moved: bool = False
    tolerance: float = 0.0
    tried: set[bytes] | None = None
    ends_round: bool = True

    def verdict(self, part: Part) -> tuple[messages.Verdict, Rank | None]:
        """Verdict on all factors' values. The new best choice, or else the last, is repaired if it is forbidden. Once a
        choice was repaired, each new best choice is too, as local moves may improve it. None is repaired twice.
        """
        # strictly better only: of equally good choices the first stays, for every driver
        best, best_so_far, ranks = 0, self.best_so_far, [rank(row) for row in self.values]
        for number, candidate in enumerate(ranks, start=1):
            if best_so_far is None or candidate > best_so_far:
                best, best_so_far = number, candidate
        stop: bool | None = self.change <= self.tolerance and not self.moved
        if self.tried is not None and (ranks[best - 1][0] < 0 or (self.tried and best)):
            start = self.values[best - 1].tobytes()
            stop = stop if start in self.tried else None
            self.tried.add(start)
        return messages.Verdict(part.index, best, stop), best_so_far


class SetSizes(NamedTuple):
    """New numbers of values of the variables, when a method on a box makes tables; no answer."""

    sizes: Mapping[str, int]


class ReportBound(NamedTuple):
    """A part's bound so far, for a watcher in one process; no answer and no message."""

    bound: Callable[[], float]


class CountTraffic(NamedTuple):
    """Traffic of messages that a driver of the whole part need not wait for; no answer."""

    traffic: Callable[[Any], Traffic]  # given the part's ``central.Counts``


MessageRequest = Send | ToFactors | ToVariables | Exchange | Reduce | AllReduce | Best | ToAll | InTurn | Compare
Request = MessageRequest | SetSizes | ReportBound | CountTraffic


def single_request(request: Request) -> Steps[Any]:
    """Steps with a single request, which return its answer."""
    return (yield request)


class Mailbox:
    """Messages of one stage of a method, no key twice; they leave with the next wait, or with :meth:`flush`."""

    def __init__(self) -> None:
        self._received: dict[Key, Any] = {}
        self._outgoing: list[AddressedMessage] = []

    def __getitem__(self, key: Key) -> Any:
        return self._received[key]

    def post(self, sender: str, recipient: str, message: Message) -> None:
        """Post a message that leaves with the next wait."""
        self._outgoing.append(AddressedMessage(sender, recipient, message))

    def wait(self, keys: Iterable[Key]) -> Steps[None]:
        """Wait for messages that have not arrived yet."""
        received = self._received
        missing = [key for key in keys if key not in received]
        if missing:
            # posted messages leave before the wait: two agents that wait for each other would wait for ever
            outgoing, self._outgoing = self._outgoing, []
            received.update((yield Send(outgoing, missing)))

    def flush(self) -> Steps[None]:
        """Send the posted messages."""
        if self._outgoing:
            yield Send(self._outgoing)


def to_factor(graph: FactorGraph, message: Any) -> AddressedMessage:
    """Address a message from a variable's owner to the owner of one of its factors."""
    return AddressedMessage(graph.variable_owner(message.variable), graph.owner(message.factor), message)


def to_variable(graph: FactorGraph, message: Any) -> AddressedMessage:
    """Address a message from a factor's owner to the owner of one of its variables."""
    return AddressedMessage(graph.owner(message.factor), graph.variable_owner(message.variable), message)
