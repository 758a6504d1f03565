"""Agreements by a deadline: agents that wait for no message, their announcements, and the ticks of a clock.

Each agent announces changes to each other agent until the other has them. Bundles are numbered. A bundle carries the
newest state of each entry that changed since the other's last acknowledgement, and says which bundles of the other have
arrived. So losses and order do not matter.

The record of the last bundles also estimates the loss of a link. An agent with nothing new sends often enough that some
bundle arrives within the other's patience. On links with high loss the other also waits longer, so silence means that
an agent has failed.

``deadline_tables`` and ``deadline_box`` define the content of an agreement.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from swarmbo.coordination import messages
from swarmbo.coordination.messages import Bundle, Key, Update
from swarmbo.errors import ConfigError, TransportError
from swarmbo.graph import FactorGraph
from swarmbo.records import LinkReport, by_name
from swarmbo.transport import Envelope, FaultyTransport, InProcessTransport, Transport

# bundles before the newest one that an acknowledgement covers, one bit each
_WINDOW = 32
_FEWEST = 3  # bundles within the patience of the other, on links without loss
# probability of no arrival below which silence means that the other has failed
_UNLIKELY = 1e-4


class Peer:
    """One agent's announcements to another agent, and the arrivals from it. Without losses, the other counts as silent
    after ``patience`` ticks. Entries are repeated every ``retry`` ticks until acknowledged, which takes two ticks.
    """

    def __init__(self, patience: int, retry: int = 1) -> None:
        self.number = self.last_arrival = 0
        self._patience, self._retry, self._needed = patience, retry, _FEWEST
        self._entries: dict[Key, tuple[int, Update]] = {}  # newest version and message of each entry
        self._acknowledged: dict[Key, int] = {}  # the version of each entry that the other has acknowledged
        self._in_flight: dict[Key, tuple[int, int]] = {}  # last sent: version, and tick
        self._unacknowledged: dict[int, dict[Key, int]] = {}  # versions in each bundle that was not acknowledged
        self._newest, self._earlier = -1, 0  # newest bundle that arrived; bit i: bundle newest - 1 - i arrived
        self._owes_acknowledgement = False
        self._last_sent: int | None = None

    def put(self, message: Update, version: int) -> None:
        """Announce a message, in place of an earlier one of its key."""
        self._entries[message.key] = version, message

    def last_announced(self, key: Key) -> Update | None:
        """Newest message of a key, or None."""
        return self._entries[key][1] if key in self._entries else None

    def receive(self, bundle: Bundle, now: int) -> None:
        """Record the arrival of the other's bundle, and which own bundles it acknowledges."""
        self.last_arrival, self._owes_acknowledgement = now, self._owes_acknowledgement or bool(bundle.updates)
        self._needed = _needed(bundle.newest, bundle.earlier)  # from the losses of messages to the other
        # a number far ahead shifts out all bits; the limit protects from a shift by a hostile number, such as 2^60
        n_newer = min(bundle.number - self._newest, _WINDOW + 1)
        if n_newer > 0:
            arrivals = self._earlier << n_newer | (1 << n_newer - 1 if self._newest >= 0 else 0)
            self._earlier, self._newest = arrivals & ((1 << _WINDOW) - 1), bundle.number
        elif 0 < -n_newer <= _WINDOW:
            self._earlier |= 1 << (-n_newer - 1)
        earlier = [bundle.newest - 1 - place for place in range(_WINDOW) if bundle.earlier >> place & 1]
        for number in [bundle.newest, *earlier] if bundle.newest >= 0 else ():
            for key, version in self._unacknowledged.pop(number, {}).items():
                self._acknowledged[key] = max(self._acknowledged.get(key, -1), version)
        # the sender of an entry has it, so entries that are forwarded are not sent back
        for version, message in zip(bundle.versions, bundle.updates, strict=False):
            self._acknowledged[message.key] = max(self._acknowledged.get(message.key, -1), version)

    def next_bundle(self, now: int) -> Bundle | None:
        """Next bundle, or None if there is nothing to send at this tick."""
        due = {key: entry for key, entry in self._entries.items() if self._is_due(key, entry[0], now)}
        is_time = self._last_sent is None or now - self._last_sent >= self._interval(self._needed)
        if not (due or self._owes_acknowledgement or is_time):
            return None
        number, self.number = self.number, self.number + 1
        if due:
            self._unacknowledged[number] = {key: version for key, (version, _) in due.items()}
            self._in_flight |= {key: (version, now) for key, (version, _) in due.items()}
        self._last_sent, self._owes_acknowledgement = now, False
        versions, updates = zip(*due.values(), strict=True) if due else ((), ())
        return Bundle(number, self._newest, self._earlier, versions, updates)

    def is_silent(self, now: int) -> bool:
        """True if the other has been silent long enough to count as failed."""
        needed = _needed(self._newest, self._earlier)  # from the losses of messages from the other
        return now - self.last_arrival > max(self._patience, needed * self._interval(needed))

    def _interval(self, needed: int) -> int:
        """Ticks between bundles without updates, if ``needed`` bundles are sent for one to arrive."""
        return max(1, self._patience // needed)

    def _is_due(self, key: Key, version: int, now: int) -> bool:
        if self._acknowledged.get(key, -1) >= version:
            return False
        sent_version, sent = self._in_flight.get(key, (-1, 0))
        # an entry in flight is repeated only when its acknowledgement is late, or every tick would send it again
        return sent_version < version or now - sent >= self._retry


def _needed(newest: int, earlier: int) -> int:
    """Number of bundles of which at least one almost surely arrives, estimated from the last bundles' arrivals."""
    sent, arrived = min(newest, _WINDOW) + 1, earlier.bit_count() + 1
    return _FEWEST if arrived >= sent else max(_FEWEST, math.ceil(math.log(_UNLIKELY) / math.log1p(-arrived / sent)))


class DeadlineAgent(ABC):
    """Base of an agent in an agreement by a deadline: its announcements to every agent that it exchanges messages with
    (``more`` beyond neighbours), and checks of arrivals. ``refused`` counts inadmissible entries by sender.
    """

    def __init__(
        self, name: str, graph: FactorGraph, settings: Any, decision: int, more: Iterable[str] = (), retry: int = 1
    ) -> None:
        require_number(decision)
        self.name, self.decision, self.refused = name, decision, Counter[str]()
        self._graph, self._column, self._threshold = graph, graph.column_of, settings.threshold
        self._factors, self._variables = graph.factors_owned_by(name), graph.variables_owned_by(name)
        of_own = [f for x in self._variables for f in graph.factors_of(x)]
        near = {*map(graph.owner, of_own), *more}
        near |= {graph.variable_owner(x) for f in (*self._factors, *of_own) for x in graph.scope(f)}
        others = [agent for agent in graph.agents if agent in near - {name}]
        self._peers = {other: Peer(settings.patience, retry) for other in others}
        self._received_versions: dict[Key, int] = {}
        self._now = self._version = 0

    @abstractmethod
    def tick(self, now: int, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrivals, continue, and send changes to others; nothing is sent after the deadline."""

    @abstractmethod
    def decided_values(self) -> dict[str, Any]:
        """Values of its own variables; final after the deadline."""

    @property
    def silent(self) -> tuple[str, ...]:
        """Agents that have been silent long enough to count as failed."""
        return tuple(other for other in self._peers if self.is_silent(other))

    @abstractmethod
    def accept(self, sender: str, message: messages.Message) -> bool:
        """Store an entry if it is admissible from this sender; return True if it was stored."""

    def _receive_all(self, now: int, inbox: Sequence[Envelope]) -> None:
        self._now, self._version = max(self._now, now), self._version + 1
        for envelope in inbox:
            try:
                label, bundle = messages.Codec.read(envelope.payload)
            except TransportError:
                continue  # counts as lost, like a message of another decision or from an unknown agent
            other = self._peers.get(envelope.sender)
            if other is None or label.decision != self.decision or not isinstance(bundle, Bundle):
                continue
            other.receive(bundle, self._now)
            for version, message in zip(bundle.versions, bundle.updates, strict=False):
                # bundles overtake one another, so an older state of an entry may arrive after a newer one
                if version <= self._received_versions.get(message.key, -1):
                    continue
                if not self.accept(envelope.sender, message):
                    self.refused[envelope.sender] += 1
                    continue
                self._received_versions[message.key] = version
                if isinstance(message, messages.Valued):
                    self.put_to_all(message, version)

    def put(self, recipient: str, message: Update, version: int) -> None:
        """Announce a message to another agent; no effect for itself."""
        if recipient in self._peers:
            self._peers[recipient].put(message, version)

    def announce(self, recipient: str, message: Any, change: Callable[..., Any], unit: float = 1.0) -> None:
        """Announce a message unless the ``change`` of its entries since the last one is at most ``threshold`` units."""
        if recipient in self._peers:
            before = cast(Any, self._peers[recipient].last_announced(message.key))
            # compared with the last message sent, not with the last tick: slow drifts would never be sent
            if before is None or change(before.entries, message.entries) > self._threshold * unit:
                self._peers[recipient].put(message, self._version)

    def is_to_variable(self, sender: str, factor: str, variable: str) -> bool:
        """True if an agent may send a factor's message to an own variable."""
        graph = self._graph
        return variable in self._variables and factor in graph.factors_of(variable) and graph.owner(factor) == sender

    def is_owner(self, sender: str, variable: str) -> bool:
        """True if an agent may send a variable's message."""
        return variable in self._column and self._graph.variable_owner(variable) == sender

    def put_to_all(self, message: Update, version: int) -> None:
        """Announce to every other agent a message that is forwarded until all have it."""
        self._received_versions[message.key] = version
        for other in self._peers.values():
            other.put(message, version)

    def last_announced(self, recipient: str, key: Key) -> Update | None:
        """Newest message of a key to another agent."""
        return self._peers[recipient].last_announced(key)

    def is_silent(self, agent: str) -> bool:
        """True if another agent has been silent long enough to count as failed."""
        return agent in self._peers and self._peers[agent].is_silent(self._now)

    def _outgoing(self) -> list[Envelope]:
        out: list[Envelope] = []
        for name, other in self._peers.items():
            if (bundle := other.next_bundle(self._now)) is not None:
                label = messages.Label(self.decision, bundle.number)
                out.append(Envelope(self.name, name, messages.Codec.encode(bundle, label)))
        return out


def require_number(decision: int) -> None:
    """Refuse a decision's number that a label cannot hold."""
    if not 0 <= decision < 2**32:
        raise ConfigError(f"got decision {decision}; wanted 0 to {2**32 - 1}: number decisions from 0 upwards")


def link_report(
    agents: Mapping[str, DeadlineAgent],
    living: Sequence[str],
    deadline: int,
    transport: Transport,
    without: Collection[str] = (),
    clashes: int = 0,
) -> LinkReport:
    """Report of links, and of agents that failed or were silent; ``without`` are agents that found no value."""
    heard_silent = {other for name in living for other in agents[name].silent}
    silent = tuple(name for name in agents if name in heard_silent or name not in living)
    valueless = tuple(name for name in agents if name in without)
    edges = by_name(transport.edges if isinstance(transport, InProcessTransport) else {})
    return LinkReport(deadline, silent=silent, without=valueless, clashes=clashes, edges=edges)


def run_until_deadline(agents: Mapping[str, DeadlineAgent], deadline: int, transport: Transport) -> tuple[str, ...]:
    """Tick agents until the deadline, and return the names of agents that were present all the time."""
    living = set(agents)
    reached = {name: transport.routes.hops_from(name) for name in agents}
    inboxes = {}
    for now in range(deadline + 1):
        if isinstance(transport, FaultyTransport):
            living = {name for name in living if not transport.is_gone(name)}
        for name, agent in agents.items():
            if name in living:
                for envelope in agent.tick(now, inboxes.get(name, ())):
                    if envelope.recipient in reached[name]:
                        transport.send(envelope)
        inboxes = transport.deliver() if now < deadline else {}
    return tuple(name for name in agents if name in living)
