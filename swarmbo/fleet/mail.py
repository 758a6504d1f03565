"""Reliable letters: repeated until a receipt arrives, and processed once."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from swarmbo.deciding.team_state import read_state, write_state
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.letters import DIGEST, Letter, Receipt, opened, sealed
from swarmbo.fleet.link import Parcel

_SOON, _LATE = 0.2, 2.0  # seconds until a letter is repeated: at first, and at most
GOODBYE = 3.0  # seconds for which members wait for receipts when a run has ended
_REMEMBERED = 100_000  # letters; one repeated after so many others is of an ended round


class Carrier(Protocol):
    """Contract of a carrier of parcels, such as ``Link``."""

    def send(self, recipient: str, content: bytes, /) -> None:
        """Send without confirmation."""
        ...

    def invite(self, recipient: str, content: bytes, /) -> None:
        """Send to an agent of any run, as the hub."""
        ...

    def wait(self, seconds: float, /) -> Parcel | None:
        """Next parcel; None if there is none in time."""
        ...


class Mail:
    """Letters of one member. ``keep`` saves a new letter before its receipt is sent, so that it survives a kill; one
    that does not fit is dropped. ``refused`` counts bad parcels, ``odd`` unchanged ones of them by sender.
    """

    def __init__(
        self,
        carrier: Carrier,
        keep: Callable[[str, bytes], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        fits: Callable[[str, Letter], bool] = lambda sender, letter: True,
    ) -> None:
        self._carrier, self._keep, self._clock, self._fits = carrier, keep, clock, fits
        self.odd = Counter[str]()
        self._out: dict[tuple[str, bytes], tuple[bytes, float, float]] = {}  # content, when next, and the pause before
        self._taken: dict[tuple[str, bytes], None] = {}
        self.refused, self.repeated, self.parcels = 0, 0, Counter[str]()

    @property
    def outstanding(self) -> list[tuple[str, bytes]]:
        """Recipient and content of each letter without a receipt."""
        return [(recipient, content) for (recipient, _), (content, _, _) in self._out.items()]

    def write(self, recipient: str, letter: Letter) -> None:
        """Send a letter, repeatedly until its receipt arrives."""
        self.post(recipient, sealed(letter))

    def post(self, recipient: str, content: bytes) -> None:
        """Send sealed content as ``write`` does."""
        self._out[recipient, content[:DIGEST]] = content, self._clock() + _SOON, _SOON
        self._carrier.send(recipient, content)

    def forget(self, recipient: str) -> None:
        """Stop repeating letters to a recipient."""
        self._out = {key: sent for key, sent in self._out.items() if key[0] != recipient}

    def remember(self, sender: str, content: bytes) -> None:
        """Note that a letter was processed, by this or a killed process."""
        self._taken[sender, content[:DIGEST]] = None
        if len(self._taken) > _REMEMBERED:
            del self._taken[next(iter(self._taken))]

    def read(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> tuple[str, Letter] | None:
        """Next new letter; None if there is none in time, or if ``is_enough`` holds. Due letters are repeated."""
        until = self._clock() + seconds
        while (left := until - self._clock()) >= 0 and not is_enough():
            self._repeat()
            parcel = self._carrier.wait(min(left, _SOON / 4))
            if parcel is not None and (letter := self._taken_in(parcel)) is not None:
                return parcel.sender, letter
        return None

    def settle(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait for receipts of all letters for a limited time; arrivals meanwhile are ignored."""
        until = self._clock() + seconds
        while self._out and self._clock() < until and not stop():
            self.read(_SOON)

    def _taken_in(self, parcel: Parcel) -> Letter | None:
        sender, content = parcel
        try:
            letter = opened(content)
        except TransportError:
            self.refused += 1
            return None
        self.parcels[sender] += 1
        if isinstance(letter, Receipt):
            self._out.pop((sender, letter.digest), None)
            return None
        key = sender, content[:DIGEST]
        is_new = key not in self._taken
        if is_new:
            self.remember(sender, content)
            if not self._fits(sender, letter):
                self.refused += 1
                self.odd[sender] += 1
                is_new = False
            # saved before the receipt: a letter that was acknowledged is never lost
            elif self._keep is not None:
                self._keep(sender, content)
        # for repeated letters, too: the first receipt may have been lost
        self._carrier.send(sender, sealed(Receipt(content[:DIGEST])))
        return letter if is_new else None

    def _repeat(self) -> None:
        now = self._clock()
        for key, (content, due, pause) in self._out.items():
            if due <= now:
                pause = min(2.0 * pause, _LATE)
                self._out[key] = content, now + pause, pause
                self.repeated += 1
                self._carrier.send(key[0], content)


_LENGTH = 4  # bytes before each entry


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A processed letter, as it was sealed, with its sender."""

    sender: str
    content: bytes


class Journal:
    """A member's state after a round, and later letters, in two files. A killed process leaves at most one partial
    letter, without a receipt: it comes again.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._number = max((int(file.stem) for file in folder.glob("*.npz") if file.stem.isdecimal()), default=0)
        self._log = (folder / f"{self._number}.letters").open("ab")

    def state(self) -> dict[str, Any] | None:
        """Last saved state; None before the first."""
        return read_state(self._path("npz")) if self._number else None

    def letters(self) -> Iterator[tuple[str, bytes]]:
        """Letters since that state, in their order."""
        path = self._path("letters")
        data, start = path.read_bytes(), 0
        while start + _LENGTH <= len(data):
            end = start + _LENGTH + int.from_bytes(data[start : start + _LENGTH], "little")
            if end > len(data):
                break
            try:
                entry = msgspec.msgpack.decode(data[start + _LENGTH : end], type=Entry)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{path}: is damaged ({error}); wanted it as the member wrote it") from error
            yield entry.sender, entry.content
            start = end
        if start < len(data):
            self._log.truncate(start)

    def keep(self, sender: str, content: bytes) -> None:
        """Save a letter."""
        entry = msgspec.msgpack.encode(Entry(sender, content))
        self._log.write(len(entry).to_bytes(_LENGTH, "little") + entry)
        self._log.flush()

    def turn(self, state: Mapping[str, Any], outstanding: Sequence[tuple[str, bytes]]) -> None:
        """Begin a new page: a state, with unacknowledged letters, and no letters since."""
        plain = {**state["json"], "outstanding": [[to, content.hex()] for to, content in outstanding]}
        old, self._number = self._number, self._number + 1
        write_state(self._path("npz"), {**state, "json": plain})  # from now on this page counts
        self._log.close()
        self._log = self._path("letters").open("ab")
        for kind in ("npz", "letters"):
            (self.folder / f"{old}.{kind}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def _path(self, kind: str) -> Path:
        return self.folder / f"{self._number}.{kind}"
