"""Letters that arrive, whatever a link loses, repeats or cuts: written again until a receipt comes, taken once."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from swarmbo.errors import TransportError
from swarmbo.fleet.letters import DIGEST, Letter, Receipt, opened, sealed
from swarmbo.fleet.link import Parcel

_SOON, _LATE = 0.2, 2.0  # seconds until a letter is written again: the first time, and at most
GOODBYE = 3.0  # seconds for which members wait for receipts when a run has ended
_REMEMBERED = 100_000  # letters; one that comes again after so many others is of a round that has ended


class Carrier(Protocol):
    """Contract of what moves parcels; ``Link`` is one."""

    def send(self, recipient: str, content: bytes, /) -> None:
        """Send, without knowing whether it arrives."""
        ...

    def invite(self, recipient: str, content: bytes, /) -> None:
        """Send to an agent of whatever run, as the hub."""
        ...

    def wait(self, seconds: float, /) -> Parcel | None:
        """The next parcel; None if there is none for so long."""
        ...


class Mail:
    """One member's letters.

    Args:
        carrier: What moves them.
        keep: Called with a letter that is new, before its receipt is sent: what it wrote down is not lost if the
            process is killed then.
        clock: In seconds; does not go back.
        fits: Whether somebody can write a letter. One that cannot be is dropped, and never kept.

    Attributes:
        refused: How many parcels were no letters (cut off, changed, or nonsense), or held what they may not.
        odd: How many of these had arrived as they were sent, by sender.
        repeated: How many letters were written again.
        parcels: How many letters and receipts have come from whom, those that came again among them.
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
        """Recipient and content of each letter for which no receipt has come."""
        return [(recipient, content) for (recipient, _), (content, _, _) in self._out.items()]

    def write(self, recipient: str, letter: Letter) -> None:
        """Send a letter, again and again until its receipt comes."""
        self.post(recipient, sealed(letter))

    def post(self, recipient: str, content: bytes) -> None:
        """Send what was sealed before, as ``write`` does."""
        self._out[recipient, content[:DIGEST]] = content, self._clock() + _SOON, _SOON
        self._carrier.send(recipient, content)

    def forget(self, recipient: str) -> None:
        """Write nothing of what was written to somebody again."""
        self._out = {key: sent for key, sent in self._out.items() if key[0] != recipient}

    def remember(self, sender: str, content: bytes) -> None:
        """Note that a letter was taken, now or by a process that was killed since."""
        self._taken[sender, content[:DIGEST]] = None
        if len(self._taken) > _REMEMBERED:
            del self._taken[next(iter(self._taken))]

    def read(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> tuple[str, Letter] | None:
        """The next letter that is new; None if there is none for so long, or something is so before.

        Meanwhile what is due is written again.

        Args:
            seconds: How long.
            is_enough: What ends it, such as that all receipts have come.
        """
        until = self._clock() + seconds
        while (left := until - self._clock()) >= 0 and not is_enough():
            self._repeat()
            parcel = self._carrier.wait(min(left, _SOON / 4))
            if parcel is not None and (letter := self._taken_in(parcel)) is not None:
                return parcel.sender, letter
        return None

    def settle(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Wait for receipts of all that was written, so long at most; what comes meanwhile is not taken any further."""
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
            elif self._keep is not None:
                self._keep(sender, content)
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
