"""What one agent tells another over links that lose, delay and repeat: what changed, until the other has it.

Bundles are numbered. Each carries the entries that are new since the other acknowledged them, the newest state of each
entry alone, and which bundles of the other have come. So nothing depends on which of them arrive, or in which order.

Which of the last bundles came also says how much a link loses. Who has nothing to say speaks so often that of what it
says within the other's patience some comes, and the other waits longer where even a bundle in each tick is too few: so
silence means that an agent is gone, on links that lose much, too.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from swarmbo.coordination.messages import Bundle, Key, News

_NOTED = 32  # bundles before the newest one of which an acknowledgement says whether they came
_FEWEST = 3  # bundles within the patience of the other, on links that lose none
_UNLIKELY = 1e-4  # that of so many bundles none comes: then the other is gone


class Entry(NamedTuple):
    """What is told of one key: the newer version holds."""

    version: int
    message: News


class Correspondence:
    """One agent's side of what it and another tell each other.

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
        """What was last put there of a key."""
        return self._entries[key].message if key in self._entries else None

    def hear(self, bundle: Bundle, now: int) -> None:
        """Take note of a bundle of the other: that it has come, and what it acknowledges."""
        self.last_heard, self._owes_answer = now, self._owes_answer or bool(bundle.news)
        self._needed = _needed(bundle.heard, bundle.before)
        ahead = min(bundle.number - self._newest, _NOTED + 1)  # whatever number it says: further is forgotten alike
        if ahead > 0:
            came = self._before << ahead | (1 << ahead - 1 if self._newest >= 0 else 0)
            self._before, self._newest = came & ((1 << _NOTED) - 1), bundle.number
        elif 0 < -ahead <= _NOTED:
            self._before |= 1 << (-ahead - 1)
        for number in _acknowledged(bundle.heard, bundle.before):
            for key, version in self._contents.pop(number, {}).items():
                self._known[key] = max(self._known.get(key, -1), version)
        for version, message in zip(bundle.versions, bundle.news, strict=False):  # what it says it need not be told
            self._known[message.key] = max(self._known.get(message.key, -1), version)

    def bundle(self, now: int) -> Bundle | None:
        """What there is to say at a tick; None: nothing."""
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
        """Whether nothing has come for so long that the other is taken to be gone."""
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
    """How many bundles it takes until one comes, all but surely, by which of the last ones have."""
    sent, came = min(newest, _NOTED) + 1, before.bit_count() + 1
    return _FEWEST if came >= sent else max(_FEWEST, math.ceil(math.log(_UNLIKELY) / math.log1p(-came / sent)))


def _acknowledged(newest: int, before: int) -> Iterator[int]:
    if newest >= 0:
        yield newest
        for place in range(_NOTED):
            if before >> place & 1:
                yield newest - 1 - place
