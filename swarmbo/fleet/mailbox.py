"""Mailbox of a member, which repeats messages until a receipt arrives, and receives each once; and its journal."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from swarmbo.deciding.team_state import read_state, write_state
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.link import Arrival, Link
from swarmbo.fleet.messages import DIGEST_BYTES, Message, Receipt, decode, encode

FAREWELL_S = 3.0  # that members wait for receipts when a run has ended
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 2.0  # before a message is sent again
_MOST_REMEMBERED = 100_000  # messages; if more have arrived since, a repeated message belongs to an ended round
_LENGTH_BYTES = 4  # of an entry's length, before each entry of a journal


class _Sent(NamedTuple):
    """A message without a receipt, the time at which it is repeated, and the pause before that."""

    content: bytes
    due: float
    pause_s: float


class Mailbox:
    """Messages of one member. ``save`` stores a new message before its receipt is sent, so that it survives a kill; one
    that ``accepts`` refuses is dropped. ``refused`` counts dropped arrivals; ``inadmissible``, undamaged, by sender.
    """

    def __init__(
        self,
        link: Link,
        save: Callable[[str, bytes], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        accepts: Callable[[str, Message], bool] = lambda sender, message: True,
    ) -> None:
        self._link, self._save, self._clock, self._accepts = link, save, clock, accepts
        self._sent: dict[tuple[str, bytes], _Sent] = {}  # by recipient and digest
        self._processed: dict[tuple[str, bytes], None] = {}  # senders and digests, in order
        self.repeated = self.refused = 0
        self.arrivals, self.inadmissible = Counter[str](), Counter[str]()

    @property
    def unacknowledged(self) -> list[tuple[str, bytes]]:
        """Recipient and content of each message without a receipt."""
        return [(recipient, sent.content) for (recipient, _), sent in self._sent.items()]

    def send(self, recipient: str, message: Message) -> None:
        """Send a message, repeatedly until its receipt arrives."""
        self.send_encoded(recipient, encode(message))

    def send_encoded(self, recipient: str, content: bytes) -> None:
        """Send an encoded message as ``send`` does."""
        self._sent[recipient, content[:DIGEST_BYTES]] = _Sent(content, self._clock() + _FIRST_PAUSE_S, _FIRST_PAUSE_S)
        self._link.send(recipient, content)

    def cancel(self, recipient: str) -> None:
        """Stop repeating messages to a recipient."""
        self._sent = {key: sent for key, sent in self._sent.items() if key[0] != recipient}

    def mark_processed(self, sender: str, content: bytes) -> None:
        """Record that a message was processed, by this or a killed process."""
        self._processed[sender, content[:DIGEST_BYTES]] = None
        if len(self._processed) > _MOST_REMEMBERED:
            del self._processed[next(iter(self._processed))]

    def receive(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> tuple[str, Message] | None:
        """Next new message; None if there is none in time, or if ``is_done`` holds. Due messages are repeated."""
        end, left = self._clock() + seconds, seconds
        while left >= 0 and not is_done():
            self._repeat_due()
            arrival = self._link.wait(min(left, _FIRST_PAUSE_S / 4))
            if arrival is not None and (message := self._opened(arrival)) is not None:
                return arrival[0], message
            left = end - self._clock()
        return None

    def await_receipts(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait for receipts of all messages for a limited time; arrivals meanwhile are ignored."""
        end = self._clock() + seconds
        while self._sent and self._clock() < end and not stop():
            self.receive(_FIRST_PAUSE_S)

    def _opened(self, arrival: Arrival) -> Message | None:
        """Message of an arrival, acknowledged; None for receipts, repeated and refused messages."""
        sender, content = arrival
        try:
            message = decode(content)
        except TransportError:
            self.refused += 1
            return None
        self.arrivals[sender] += 1
        if isinstance(message, Receipt):
            self._sent.pop((sender, message.digest), None)
            return None
        is_new = (sender, content[:DIGEST_BYTES]) not in self._processed
        if is_new:
            self.mark_processed(sender, content)
            if not self._accepts(sender, message):
                self.refused += 1
                self.inadmissible[sender] += 1
                is_new = False
            # saved before the receipt: a message that was acknowledged is never lost
            elif self._save is not None:
                self._save(sender, content)
        # for repeated messages, too: the first receipt may have been lost
        self._link.send(sender, encode(Receipt(content[:DIGEST_BYTES])))
        return message if is_new else None

    def _repeat_due(self) -> None:
        now = self._clock()
        for key, sent in self._sent.items():
            if sent.due <= now:
                pause_s = min(2.0 * sent.pause_s, _LONGEST_PAUSE_S)
                self._sent[key] = _Sent(sent.content, now + pause_s, pause_s)
                self.repeated += 1
                self._link.send(key[0], sent.content)


class Journal:
    """A member's last saved state, and messages since, in two files; a message cut by a kill is received again."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._number = max((int(file.stem) for file in folder.glob("*.npz") if file.stem.isdecimal()), default=0)
        self._log = (folder / f"{self._number}.letters").open("ab")

    def state(self) -> dict[str, Any] | None:
        """Last saved state; None before the first."""
        return read_state(self._path("npz")) if self._number else None

    def messages(self) -> Iterator[tuple[str, bytes]]:
        """Sender and content of each message since the last saved state, in order."""
        path = self._path("letters")
        data, start = path.read_bytes(), 0
        while start + _LENGTH_BYTES <= len(data):
            begin = start + _LENGTH_BYTES
            end = begin + int.from_bytes(data[start:begin], "little")
            if end > len(data):
                break
            try:
                entry = msgspec.msgpack.decode(data[begin:end], type=tuple[str, bytes])
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{path}: is damaged ({error}); wanted the journal as the member wrote it") from error
            yield entry
            start = end
        if start < len(data):
            self._log.truncate(start)

    def append(self, sender: str, content: bytes) -> None:
        """Save a message."""
        entry = msgspec.msgpack.encode((sender, content))
        self._log.write(len(entry).to_bytes(_LENGTH_BYTES, "little") + entry)
        self._log.flush()

    def save_state(self, state: Mapping[str, Any], unacknowledged: Sequence[tuple[str, bytes]]) -> None:
        """Save a state with unacknowledged messages, in place of the last state and the messages since."""
        encoded = [[recipient, content.hex()] for recipient, content in unacknowledged]
        old, self._number = self._number, self._number + 1
        # after this, the new files are valid
        write_state(self._path("npz"), {**state, "json": {**state["json"], "outstanding": encoded}})
        self._log.close()
        self._log = self._path("letters").open("ab")
        for suffix in ("npz", "letters"):
            (self.folder / f"{old}.{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def _path(self, suffix: str) -> Path:
        return self.folder / f"{self._number}.{suffix}"
