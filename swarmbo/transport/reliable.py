"""Messages that arrive whatever a link loses: acknowledged, and repeated until they are."""

import math
import struct
from dataclasses import dataclass
from typing import ClassVar

from swarmbo.records import EdgeTraffic, LinkReport, Traffic, by_name
from swarmbo.transport.faults import FaultyTransport
from swarmbo.transport.in_process import Envelope
from swarmbo.transport.routes import Routes

_CHANCE = 40.0  # a message is given up only where mere loss would have a chance of exp(-40)
_PATIENCE = 1000  # steps at least: cuts shorter than that do no harm
_SLOWEST = 8  # with a limited bandwidth repetitions come more and more slowly, up to 2^8 times


@dataclass
class _Open:
    """A message that its recipient has not acknowledged."""

    frame: Envelope
    next: int  # when it is sent again
    until: int  # not given up before
    most: int  # times that it is sent
    wait: int
    tries: int = 1


class Reliable:
    r"""A transport with faults, below methods that wait for every message: each comes once, in the end.

    On the wire: a byte that says data, with four of its number from sender to recipient (unsigned, little-endian) and
    the message; or a byte that says acknowledgement, with the numbers that have come, four bytes each. What is not
    acknowledged in time is sent again. A recipient that answers nothing for so long that mere loss can't be why is
    given up, and nothing more is sent to it: then an agreement that needs it ends unfinished, but it ends.

    Args:
        below: What carries the messages.

    Attributes:
        ticks: Steps of the transport below.
        given_up: From whom to whom nothing is sent any more.

    Example:
        >>> from swarmbo.transport import Faults
        >>> transport = Reliable(Faults(loss=0.7).open(["a", "b"]))
        >>> for n in range(3):
        ...     transport.send(Envelope("a", "b", bytes([n])))
        >>> arrived = []
        >>> while inboxes := transport.deliver():
        ...     arrived += [envelope.payload for envelope in inboxes["b"]]
        >>> sorted(arrived), transport.traffic.messages > 3
        ([b'\x00', b'\x01', b'\x02'], True)
    """

    _data: ClassVar = struct.Struct("<BI")

    def __init__(self, below: FaultyTransport) -> None:
        self.below, self.ticks = below, 0
        self.given_up: set[tuple[str, str]] = set()
        self._open: dict[tuple[str, str, int], _Open] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._seen: set[tuple[str, str, int]] = set()
        self._here: list[Envelope] = []
        self._first = 0  # bytes that were sent for the first time, without what is added to them

    @property
    def routes(self) -> Routes:
        """Shortest paths between agents."""
        return self.below.routes

    @property
    def traffic(self) -> Traffic:
        """All that was sent: repetitions and acknowledgements, too."""
        return self.below.traffic

    @property
    def edges(self) -> dict[tuple[str, str], EdgeTraffic]:
        """The same from each sender to each recipient."""
        return self.below.edges

    def send(self, envelope: Envelope) -> None:
        """Take a message.

        Raises:
            TransportError: If sender or recipient is unknown, or no path of links joins them.
        """
        sender, recipient, payload = envelope
        hops = self.routes.hops(sender, recipient)
        if self.below.is_gone(sender):
            return
        if not hops:
            self._here.append(envelope)
            return
        number = self._numbers.get((sender, recipient), 0)
        self._numbers[sender, recipient] = number + 1
        self._first += len(payload)
        if (sender, recipient) in self.given_up:
            return
        faults = self.below.faults
        wait = 2 * (1 + hops * faults.delay)
        survives = (1.0 - faults.loss) ** (2 * hops)  # the message, and the answer
        most = math.ceil(_CHANCE / -math.log1p(-survives)) if survives < 1.0 else 1
        frame = Envelope(sender, recipient, self._data.pack(0, number) + payload)
        until = self.ticks + _PATIENCE
        self._open[sender, recipient, number] = _Open(frame, self.ticks + wait, until, most, wait)
        self.below.send(frame)

    def deliver(self) -> dict[str, list[Envelope]]:
        """Let steps pass until a message arrives that is news to its recipient; nothing if none will any more."""
        new, self._here = {(e.sender, e.recipient, -1 - i): e for i, e in enumerate(self._here)}, []
        while not new and (self._open or not self.below.is_quiet):
            new = self._step()
        place = {agent: i for i, agent in enumerate(self.routes.agents)}
        inboxes: dict[str, list[Envelope]] = {agent: [] for agent in self.routes.agents}
        for sender, recipient, number in sorted(new, key=lambda key: (place[key[0]], key[2])):
            inboxes[recipient].append(new[sender, recipient, number])
        return {agent: inbox for agent, inbox in inboxes.items() if inbox}

    def report(self, without: tuple[str, ...] = ()) -> LinkReport:
        """Report of how links fared.

        Args:
            without: Agents that came out with no choice.
        """
        gone = {recipient for _, recipient in self.given_up}
        gone |= {agent for agent in self.routes.agents if self.below.is_gone(agent)}
        return LinkReport(
            ticks=self.ticks,
            repeated=self.traffic.bytes - self._first,
            silent=tuple(agent for agent in self.routes.agents if agent in gone),
            without=without,
            edges=by_name(self.edges),
        )

    def _step(self) -> dict[tuple[str, str, int], Envelope]:
        """One step of the transport below: what has come for the first time."""
        new: dict[tuple[str, str, int], Envelope] = {}
        arrived = self.below.deliver()
        self.ticks += 1
        for agent, inbox in arrived.items():
            come: dict[str, list[int]] = {}
            for sender, _, payload in inbox:
                if payload[0]:
                    for (number,) in struct.iter_unpack("<I", payload[1:]):
                        self._open.pop((agent, sender, number), None)
                    continue
                _, number = self._data.unpack_from(payload)
                come.setdefault(sender, []).append(number)
                if (sender, agent, number) not in self._seen:
                    self._seen.add((sender, agent, number))
                    new[sender, agent, number] = Envelope(sender, agent, payload[self._data.size :])
            for sender, numbers in come.items():
                self.below.send(Envelope(agent, sender, struct.pack(f"<B{len(numbers)}I", 1, *numbers)))
        self._repeat()
        return new

    def _repeat(self) -> None:
        for key, waiting in list(self._open.items()):
            sender, recipient, _ = key
            if self.below.is_gone(sender) or (sender, recipient) in self.given_up:
                del self._open[key]
            elif self.ticks >= waiting.until and waiting.tries >= waiting.most:
                self.given_up.add((sender, recipient))
                del self._open[key]
            elif self.ticks >= waiting.next:
                slower = min(waiting.tries, _SLOWEST) if self.below.faults.bandwidth is not None else 0
                waiting.tries += 1
                waiting.next = self.ticks + waiting.wait * 2**slower
                self.below.send(waiting.frame)
