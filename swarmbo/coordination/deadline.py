"""An agreement by a deadline: agents that wait for nobody, what they announce to one another, and the ticks of a clock.

Each tells each other what changed, until the other has it. Bundles are numbered. Each carries the entries that are new
since the other acknowledged them, the newest state of each entry alone, and which bundles of the other have come. So
nothing depends on which of them arrive, or in which order.

Which of the last bundles came also says how much a link loses. Who has nothing to say speaks so often that of what it
says within the other's patience some comes, and the other waits longer where even a bundle in each tick is too few: so
silence means that an agent is gone, on links that lose much, too.

What agents agree on is up to ``deadline_tables`` and ``deadline_box``.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from swarmbo.coordination.messages import Bundle, Codec, Key, Label, Message, News, Valued
from swarmbo.errors import ConfigError, TransportError
from swarmbo.records import LinkReport, by_name
from swarmbo.transport import Envelope, FaultyTransport, InProcessTransport, Transport

_NOTED = 32  # bundles before the newest one of which an acknowledgement says whether they came
_FEWEST = 3  # bundles within the patience of the other, on links that lose none
_UNLIKELY = 1e-4  # that of so many bundles none comes: then the other is gone


class Paced(Protocol):
    """Settings of every agreement by a deadline; see ``MaxSum(…)`` and ``ADMM(…)``."""

    @property
    def deadline(self) -> int: ...  # noqa: D102

    @property
    def patience(self) -> int: ...  # noqa: D102

    @property
    def threshold(self) -> float: ...  # noqa: D102


@runtime_checkable
class Timed(Paced, Protocol):
    """Settings of an agreement by a deadline, if that is the mode."""

    @property
    def mode(self) -> Literal["lockstep", "asynchronous"]: ...  # noqa: D102


def has_deadline(settings: object) -> bool:
    """True if settings are of a way to agree by a deadline."""
    return isinstance(settings, Timed) and settings.mode == "asynchronous"


def require_lockstep(settings: Timed) -> None:
    """Refuse to plan for agents that wait where they do not.

    Raises:
        ConfigError: If the mode is another than lockstep.
    """
    if settings.mode != "lockstep":
        raise ConfigError(f"got {settings.mode!r}; wanted 'lockstep' for agents that wait", at="$.coordination.mode")


class Entry(NamedTuple):
    """State of one key as it is announced: the newer version holds."""

    version: int
    message: News


class Correspondence:
    """One agent's side of the announcements between it and another.

    Args:
        patience: Ticks, >= 1, after which one who says nothing counts as silent, on links that lose nothing.
        retry: Ticks, >= 1, until what was not acknowledged is told again; an answer takes two.

    Attributes:
        number: Of the next bundle.
        last_heard: The tick at which something last came; None before.
    """

    def __init__(self, patience: int, retry: int = 1) -> None:
        self.number, self.last_heard = 0, None
        self._patience, self._retry, self._needed = patience, retry, _FEWEST
        self._entries: dict[Key, Entry] = {}
        self._known: dict[Key, int] = {}  # the version of each entry that the other has acknowledged
        self._under_way: dict[Key, tuple[int, int]] = {}  # what was sent last: version, and when
        self._contents: dict[int, dict[Key, int]] = {}  # of bundles that were not acknowledged
        self._newest, self._before = -1, 0  # of the other's bundles, and which of those before it have come, as bits
        self._owes_answer = False
        self._last_sent: int | None = None

    last_heard: int | None

    def put(self, message: News, version: int) -> None:
        """Have something told, in the place of what was told of its key before."""
        self._entries[message.key] = Entry(version, message)

    def told(self, key: Key) -> News | None:
        """The newest message of a key; None: there is none."""
        return self._entries[key].message if key in self._entries else None

    def hear(self, bundle: Bundle, now: int) -> None:
        """Take note of a bundle of the other: that it has come, and what it acknowledges."""
        self.last_heard, self._owes_answer = now, self._owes_answer or bool(bundle.news)
        self._needed = _needed(bundle.heard, bundle.before)
        # a number that is far ahead shifts out all bits and no more: a hostile one must not make a shift of 2^60
        ahead = min(bundle.number - self._newest, _NOTED + 1)
        if ahead > 0:
            came = self._before << ahead | (1 << ahead - 1 if self._newest >= 0 else 0)
            self._before, self._newest = came & ((1 << _NOTED) - 1), bundle.number
        elif 0 < -ahead <= _NOTED:
            self._before |= 1 << (-ahead - 1)
        for number in _acknowledged(bundle.heard, bundle.before):
            for key, version in self._contents.pop(number, {}).items():
                self._known[key] = max(self._known.get(key, -1), version)
        # who says an entry has it: what is handed on until all know is not told back
        for version, message in zip(bundle.versions, bundle.news, strict=False):
            self._known[message.key] = max(self._known.get(message.key, -1), version)

    def bundle(self, now: int) -> Bundle | None:
        """The next bundle, if there is anything to say at a tick."""
        due = {key: entry for key, entry in self._entries.items() if self._is_due(key, entry, now)}
        is_time = self._last_sent is None or now - self._last_sent >= self._pause(self._needed)
        if not (due or self._owes_answer or is_time):
            return None
        number, self.number = self.number, self.number + 1
        if due:
            self._contents[number] = {key: entry.version for key, entry in due.items()}
            self._under_way |= {key: (entry.version, now) for key, entry in due.items()}
        self._last_sent, self._owes_answer = now, False
        versions = tuple(entry.version for entry in due.values())
        return Bundle(number, self._newest, self._before, versions, tuple(entry.message for entry in due.values()))

    def is_silent(self, now: int) -> bool:
        """True if nothing has come for so long that the other is taken to be gone."""
        needed = _needed(self._newest, self._before)
        heard = 0 if self.last_heard is None else self.last_heard
        return now - heard > max(self._patience, needed * self._pause(needed))

    def _pause(self, needed: int) -> int:
        """Ticks between bundles that say nothing new, where so many are needed for one to come."""
        return max(1, self._patience // needed)

    def _is_due(self, key: Key, entry: Entry, now: int) -> bool:
        if self._known.get(key, -1) >= entry.version:
            return False
        version, sent = self._under_way.get(key, (-1, 0))
        return version < entry.version or now - sent >= self._retry


def _needed(newest: int, before: int) -> int:
    """Number of bundles until one comes, all but surely, by which of the last ones have."""
    sent, came = min(newest, _NOTED) + 1, before.bit_count() + 1
    return _FEWEST if came >= sent else max(_FEWEST, math.ceil(math.log(_UNLIKELY) / math.log1p(-came / sent)))


def _acknowledged(newest: int, before: int) -> Iterator[int]:
    if newest >= 0:
        yield newest
        for place in range(_NOTED):
            if before >> place & 1:
                yield newest - 1 - place


class Correspondent(ABC):
    """Base of agents that agree by a deadline.

    Nothing that arrives, or does not, makes one raise or wait: what is broken, of another decision, or not the sender's
    to say is dropped. Of each entry the newest version holds.

    Args:
        name: Its name, as in the graph.
        decision: Number of the decision, 0 to 2^32 - 1.
        others: With whom it exchanges bundles.
        patience: Ticks, >= 1, after which another one that says nothing counts as silent; more where links lose so much
            that nothing may come for as long.
        retry: Ticks, >= 1, until what was not acknowledged is told again: more send less, and news come later.

    Attributes:
        dropped: How many messages were of no use: broken, of another decision, or said by whom they are none of.
        refused: How many of these held what they may not, by sender.
    """

    def __init__(self, name: str, decision: int, others: Iterable[str], patience: int, retry: int = 1) -> None:
        if not 0 <= decision < 2**32:
            raise ConfigError(f"got decision {decision}; wanted 0 to {2**32 - 1}: number decisions from 0 upwards")
        self.name, self.decision, self.dropped, self.refused = name, decision, 0, Counter[str]()
        self._others = {other: Correspondence(patience, retry) for other in others if other != name}
        self._versions: dict[Key, int] = {}
        self._now = self._turn = 0

    @abstractmethod
    def tick(self, now: int, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Take what has arrived, go on, and tell others what changed.

        Args:
            now: Ticks since the decision began; after the deadline nothing is said.
            inbox: What has arrived since the last tick.

        Returns:
            Messages to others.
        """

    @abstractmethod
    def word(self) -> dict[str, Any]:
        """The values of its own variables; after the deadline they are final."""

    @property
    def unheard(self) -> tuple[str, ...]:
        """Of whom it has heard nothing for so long that they are taken to be gone."""
        return tuple(other for other in self._others if self.is_silent(other))

    @abstractmethod
    def take(self, sender: str, message: Message) -> bool:
        """Put an entry in its place, if it is one that the sender may state."""

    def _hear_all(self, now: int, inbox: Sequence[Envelope]) -> None:
        """Begin a tick with what has arrived."""
        self._now, self._turn = max(self._now, now), self._turn + 1
        for envelope in inbox:
            self._hear(envelope)

    def _hear(self, envelope: Envelope) -> None:
        try:
            label, bundle = Codec.read(envelope.payload)
        except TransportError:
            self.dropped += 1
            return
        other = self._others.get(envelope.sender)
        if other is None or label.decision != self.decision or not isinstance(bundle, Bundle):
            self.dropped += 1
            return
        other.hear(bundle, self._now)
        for version, message in zip(bundle.versions, bundle.news, strict=False):
            # bundles overtake one another, so an older state of an entry may come after a newer one
            if version <= self._versions.get(message.key, -1):
                continue
            if not self.take(envelope.sender, message):
                self.dropped += 1
                self.refused[envelope.sender] += 1
                continue
            self._versions[message.key] = version
            if isinstance(message, Valued):
                self.put_to_all(message, version)

    def put(self, recipient: str, message: News, version: int) -> None:
        """Have another told something; nothing if it is itself."""
        if recipient in self._others:
            self._others[recipient].put(message, version)

    def put_to_all(self, message: News, version: int) -> None:
        """Have everybody told what is handed on until all know."""
        self._versions[message.key] = version
        for other in self._others.values():
            other.put(message, version)

    def told(self, recipient: str, key: Key) -> News | None:
        """The newest message of a key to another agent."""
        return self._others[recipient].told(key)

    def is_silent(self, agent: str) -> bool:
        """True if nothing has come of another agent for so long that it is taken to be gone."""
        return agent in self._others and self._others[agent].is_silent(self._now)

    def _posted(self) -> list[Envelope]:
        """Envelopes with what there is to say to all others."""
        out: list[Envelope] = []
        for name, other in self._others.items():
            bundle = other.bundle(self._now)
            if bundle is not None:
                out.append(Envelope(self.name, name, Codec.encode(bundle, Label(self.decision, bundle.number))))
        return out


def links_of(
    agents: Mapping[str, Correspondent],
    living: Sequence[str],
    deadline: int,
    transport: Transport,
    without: Collection[str] = (),
    clashes: int = 0,
) -> LinkReport:
    """Report of links, and of agents that were gone or unheard of.

    Args:
        agents: All, by name.
        living: Those that were there all the time.
        deadline: Ticks.
        transport: Over which they spoke.
        without: Agents that found no value.
        clashes: Pairs of values that forbid each other.
    """
    unheard = {other for name in living for other in agents[name].unheard}
    edges = transport.edges if isinstance(transport, InProcessTransport) else {}
    return LinkReport(
        ticks=deadline,
        silent=tuple(name for name in agents if name in unheard or name not in living),
        without=tuple(name for name in agents if name in without),
        clashes=clashes,
        edges=by_name(edges),
    )


def ticked(agents: Mapping[str, Correspondent], deadline: int, transport: Transport) -> tuple[str, ...]:
    """Tick agents until the deadline, and return who was there all the time."""
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
