"""Reliable letters, repeated until a receipt arrives and processed once; and policies of the hub for silent agents."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from swarmbo.coordination.schema import refusals_text
from swarmbo.deciding.team_state import read_state, write_state
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.letters import DIGEST, Here, Letter, Ping, Receipt, opened, sealed
from swarmbo.fleet.link import Link, Parcel
from swarmbo.fleet.plan import Plan

_SOON, _LATE = 0.2, 2.0  # seconds until a letter is repeated: at first, and at most
GOODBYE = 3.0  # seconds for which members wait for receipts when a run has ended
_REMEMBERED = 100_000  # letters; one repeated after so many others is of an ended round
_LENGTH = 4  # bytes before each entry
# seconds of waiting for an agent never heard: a person may have to go there and start it
JOINING = 600.0
_HANGS = 2  # times that an agent may hang before it stays out
_STARTING = 120.0  # seconds that a process on this machine may take to start


class Mail:
    """Letters of one member. ``keep`` saves a new letter before its receipt is sent, so that it survives a kill; one
    that does not fit is dropped. ``refused`` counts bad parcels, ``odd`` unchanged ones of them by sender.
    """

    def __init__(
        self,
        carrier: Link,
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
        until, left = self._clock() + seconds, seconds
        while left >= 0 and not is_enough():
            self._repeat()
            parcel = self._carrier.wait(min(left, _SOON / 4))
            if parcel is not None and (letter := self._taken_in(parcel)) is not None:
                return parcel[0], letter
            left = until - self._clock()
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


class Journal:
    """A member's state after a round, and later letters, in two files; a letter torn by a kill comes again."""

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
                entry = msgspec.msgpack.decode(data[start + _LENGTH : end], type=tuple[str, bytes])
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{path}: is damaged ({error}); wanted it as the member wrote it") from error
            yield entry
            start = end
        if start < len(data):
            self._log.truncate(start)

    def keep(self, sender: str, content: bytes) -> None:
        """Save a letter."""
        entry = msgspec.msgpack.encode((sender, content))
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


class Absence:
    """Policy of the hub for silent agents, which are pinged after half of the patience.

    If one is silent for the patience, the run ends in lockstep; by a deadline, the agent fails. Ten minutes if never
    heard. In lockstep, the run also ends if agents send only receipts for the patience.
    """

    def __init__(
        self, plan: Plan, agents: Collection[str], mail: Mail, here: Collection[str], ended: Mapping[str, str]
    ) -> None:
        self._patience, self._goes_on = plan.patience_s, plan.goes_on
        self._agents, self._mail = tuple(agents), mail
        self._here, self._ended = frozenset(here), ended
        self.away, self.back, self.forgetful = dict[str, str](), set[str](), set[str]()
        self._hung = Counter[str]()
        self._noted = set[str]()  # agents with a noted end
        self._parcels, self._pings = Counter[str](), 0
        self._quiet, self._idle = dict[str, float](), 0.0
        self._starts: dict[str, set[bytes]] = {}
        # seconds after which live agents that do not carry out orders count as failed
        self.longest = JOINING + 10.0 * plan.patience_s if plan.goes_on else math.inf

    @property
    def present(self) -> tuple[str, ...]:
        """Present agents."""
        return tuple(agent for agent in self._agents if agent not in self.away)

    @property
    def returning(self) -> tuple[str, ...]:
        """Agents that run again, and are not readmitted yet."""
        return tuple(agent for agent in self._agents if agent in self.back)

    def begin(self) -> None:
        """Start to listen: agents without orders have not been silent."""
        self._quiet, self._idle = dict.fromkeys(self._agents, 0.0), 0.0

    def look(self, seconds: float, waited_for: str, missing: Collection[str], refused: Mapping[str, int]) -> None:
        """Note failed agents, or raise if all are needed, after ``seconds`` without arrivals (all processed before)."""
        unread = {recipient for recipient, _ in self._mail.outstanding}
        needed = [agent for agent in self._agents if agent in unread or agent in missing]
        gone = dict[str, float]()
        for agent in self.present if self._goes_on else needed:
            if agent in self._ended and agent not in self._noted:
                self._noted.add(agent)
                self.leave(agent, self._ended[agent])
                continue
            come = self._mail.parcels[agent]
            quiet = 0.0 if come != self._parcels[agent] else self._quiet.get(agent, 0.0) + seconds
            self._parcels[agent], self._quiet[agent] = come, quiet
            starting = _STARTING if self._goes_on and agent in self._here else JOINING
            patience = self._patience if come else max(starting, self._patience)
            if agent in unread and quiet > patience:
                gone[agent] = quiet
            elif agent not in unread and quiet > patience / 2.0:
                self._pings += 1
                self._mail.write(agent, Ping(self._pings))
        if self._goes_on:
            for agent, quiet in gone.items():
                self.leave(agent, f"received nothing of it for {quiet:.0f} s")
            return
        # agents that ignore orders send receipts, and nothing new
        self._idle = self._idle + seconds * (not unread) if seconds else 0.0
        if gone or self._idle > self._patience:
            got = f"received nothing {'' if gone else 'new '}from {list(gone) or needed}"
            wanted = f"{waited_for}: do they run, with this plan and their journals, and can all reach one another?"
            seconds = max(gone.values(), default=self._idle)
            raise TransportError(f"{got} for {seconds:.0f} s; wanted {wanted}{refusals_text(refused)}")

    def leave(self, agent: str, why: str, *, is_hung: bool = False) -> None:
        """Note that an agent failed, and drop its letters. A live one that does not carry out orders ``is_hung``: it is
        readmitted once, as it would delay others repeatedly, or later with an empty journal.
        """
        self.away[agent] = why
        self._hung[agent] += is_hung
        self.back.discard(agent)
        self._mail.forget(agent)

    def hear(self, agent: str, letter: Here, *, has_orders: bool) -> None:
        """Note that an agent runs; ``has_orders`` is True if it reported an order before, and so has a journal."""
        if not self._goes_on:  # others wait in any case
            return
        starts = self._starts.setdefault(agent, set())
        is_again = letter.is_new and has_orders and bool(starts) and letter.start not in starts
        starts.add(letter.start)
        if is_again:
            self.forgetful.add(agent)
            del self._hung[agent]
            if agent not in self.away:
                self.leave(agent, "what it had written down is lost")
        if agent in self.away and self._hung[agent] < _HANGS:
            self.back.add(agent)

    def admit(self, agent: str) -> None:
        """Note that an agent is readmitted."""
        del self.away[agent]
        self.back.discard(agent)
        self.forgetful.discard(agent)
        self._quiet[agent] = 0.0
