"""One agent of an agreement by a deadline, as others hear of it: numbered bundles, and who has fallen silent."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from swarmbo.coordination.correspondence import Correspondence
from swarmbo.coordination.messages import Bundle, Codec, Key, Label, Message, News, Valued
from swarmbo.errors import ConfigError, TransportError
from swarmbo.transport import Envelope


class Paced(Protocol):
    """Settings of every agreement by a deadline; see ``MaxSum(…)`` and ``ADMM(…)``."""

    @property
    def deadline(self) -> int: ...  # noqa: D102

    @property
    def patience(self) -> int: ...  # noqa: D102

    @property
    def threshold(self) -> float: ...  # noqa: D102


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
        """What it does with its own variables; after the deadline it is final."""

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
        """What another was last told of something."""
        return self._others[recipient].told(key)

    def is_silent(self, agent: str) -> bool:
        """Whether nothing has come of another one for so long that it is taken to be gone."""
        return agent in self._others and self._others[agent].is_silent(self._now)

    def _posted(self) -> list[Envelope]:
        """What there is to say to all others."""
        out: list[Envelope] = []
        for name, other in self._others.items():
            bundle = other.bundle(self._now)
            if bundle is not None:
                out.append(Envelope(self.name, name, Codec.encode(bundle, Label(self.decision, bundle.number))))
        return out
