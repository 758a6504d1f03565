"""Reliable messages over links with loss: they are repeated until they are acknowledged."""

import math
import struct
from dataclasses import dataclass
from typing import ClassVar

from swarmbo.records import LinkReport, Traffic, by_name
from swarmbo.transport.faults import FaultyTransport
from swarmbo.transport.routes import Envelope

_CHANCE = 40.0  # a message is given up once its losses would have a probability below exp(-40)
_RAREST = 2e-4  # least assumed share of answered messages: all are given up after 200,000 repetitions
_PATIENCE = 1000  # least steps before a message is given up, so shorter cuts and absences do no harm
_SLOWEST = 8  # with a limited bandwidth, the wait doubles with each repetition, up to 2^8 times its length


@dataclass
class _Pending:
    frame: Envelope
    last_sent: int  # step
    next_due: int  # step in which it is sent again
    patient_until: int  # step; only a message that was sent since is given up
    min_tries: int  # transmissions before it is given up
    wait: int
    tries: int = 1


class Reliable:
    r"""Transport for methods that wait for every message, over a transport with faults: each arrives once, eventually.

    On the wire: a byte for data, with four bytes of its number from sender to recipient (unsigned, little-endian) and
    the message; or a byte for an acknowledgement, with the numbers that have arrived, four bytes each. A message
    without a timely acknowledgement is repeated. A recipient that is silent for longer than losses explain, or for
    200,000 repetitions, is given up, and gets nothing more: an agreement that needs it then ends unfinished.

    Attributes:
        ticks: Steps of the transport below.
        given_up: Pairs (sender, recipient) that are given up.
    """

    _data: ClassVar = struct.Struct("<BI")

    def __init__(self, below: FaultyTransport) -> None:
        self.below, self.routes, self.ticks = below, below.routes, 0
        self.given_up: set[tuple[str, str]] = set()
        self._pending: dict[tuple[str, str, int], _Pending] = {}
        self._next_numbers: dict[tuple[str, str], int] = {}
        self._arrived: set[tuple[str, str, int]] = set()
        self._to_itself: list[Envelope] = []
        self._first_bytes = 0  # bytes of first transmissions, without headers

    @property
    def traffic(self) -> Traffic:
        """All traffic, with repetitions and acknowledgements."""
        return self.below.traffic

    def is_gone(self, agent: str) -> bool:
        """True if an agent has failed, or has not joined yet, and does not return in time."""
        return self.below.is_gone(agent, _PATIENCE)

    def send(self, envelope: Envelope) -> None:
        """Accept a message."""
        sender, recipient, payload = envelope
        hops = self.routes.hops(sender, recipient)
        if self.is_gone(sender):
            return
        if not hops:
            self._to_itself.append(envelope)
            return
        number = self._next_numbers.get((sender, recipient), 0)
        self._next_numbers[sender, recipient] = number + 1
        if (sender, recipient) in self.given_up:
            return
        self._first_bytes += len(payload)
        faults = self.below.faults
        wait = 2 * (1 + hops * faults.delay)
        survives = max((1.0 - faults.loss) ** (2 * hops), _RAREST)  # both the message and its answer
        most = math.ceil(_CHANCE / -math.log1p(-survives)) if survives < 1.0 else 1
        frame = Envelope(sender, recipient, self._data.pack(0, number) + payload)
        until = self.ticks + _PATIENCE
        self._pending[sender, recipient, number] = _Pending(frame, self.ticks, self.ticks + wait, until, most, wait)
        self.below.send(frame)

    def deliver(self) -> dict[str, list[Envelope]]:
        """Let steps pass until a new message arrives; empty if none is left."""
        new, self._to_itself = {(e.sender, e.recipient, -1 - i): e for i, e in enumerate(self._to_itself)}, []
        while not new and (self._pending or not self.below.is_quiet):
            new = self._step()
        place = {agent: i for i, agent in enumerate(self.routes.agents)}
        inboxes: dict[str, list[Envelope]] = {agent: [] for agent in self.routes.agents}
        for sender, recipient, number in sorted(new, key=lambda key: (place[key[0]], key[2])):
            inboxes[recipient].append(new[sender, recipient, number])
        return {agent: inbox for agent, inbox in inboxes.items() if inbox}

    def report(self, without: tuple[str, ...] = ()) -> LinkReport:
        """Report of links; ``without`` are agents without a choice."""
        gone = {recipient for _, recipient in self.given_up}
        gone |= {agent for agent in self.routes.agents if self.below.is_gone(agent)}
        silent = tuple(agent for agent in self.routes.agents if agent in gone)
        repeated, edges = self.traffic.bytes - self._first_bytes, by_name(self.below.edges)
        return LinkReport(self.ticks, repeated=repeated, silent=silent, without=without, edges=edges)

    def _step(self) -> dict[tuple[str, str, int], Envelope]:
        new: dict[tuple[str, str, int], Envelope] = {}
        arrived = self.below.deliver()
        self.ticks += 1
        for agent, inbox in arrived.items():
            to_acknowledge: dict[str, list[int]] = {}
            for sender, _, payload in inbox:
                if payload[0]:
                    for (number,) in struct.iter_unpack("<I", payload[1:]):
                        self._pending.pop((agent, sender, number), None)
                    continue
                _, number = self._data.unpack_from(payload)
                to_acknowledge.setdefault(sender, []).append(number)
                if (sender, agent, number) not in self._arrived:
                    self._arrived.add((sender, agent, number))
                    new[sender, agent, number] = Envelope(sender, agent, payload[self._data.size :])
            for sender, numbers in to_acknowledge.items():
                self.below.send(Envelope(agent, sender, struct.pack(f"<B{len(numbers)}I", 1, *numbers)))
        self._repeat()
        return new

    def _repeat(self) -> None:
        for key, waiting in list(self._pending.items()):
            sender, recipient, _ = key
            is_late = waiting.last_sent >= waiting.patient_until and waiting.tries >= waiting.min_tries
            is_narrow = self.below.faults.bandwidth is not None
            if self.is_gone(sender) or (sender, recipient) in self.given_up:
                del self._pending[key]
            elif self.ticks < waiting.next_due or self.below.is_gone(sender):
                continue
            elif is_late and not self.below.is_between(sender, recipient):  # else a slow link still carries something
                self.given_up.add((sender, recipient))
                del self._pending[key]
            else:
                waiting.next_due = self.ticks + waiting.wait * 2 ** (min(waiting.tries, _SLOWEST) if is_narrow else 0)
                if not is_narrow or not self.below.is_between(sender, recipient):  # repetitions would queue
                    waiting.last_sent, waiting.tries = self.ticks, waiting.tries + 1
                    self.below.send(waiting.frame)
