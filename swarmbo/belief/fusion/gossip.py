"""Flooding of agents' entries, each with its author's name and a number, so that nothing counts twice."""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from swarmbo.belief.fusion.fused_view import MOST, FusedView, read_body, require_at_least_one
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.errors import LostStateError
from swarmbo.spaces import Domain


class _Body(msgspec.Struct, array_like=True):
    """Numbers of measurements that the sender has by author, and entries that the recipient may lack."""

    has: dict[str, int]
    entries: dict[str, tuple[int, bytes]]  # number of the author's measurements with it, and content
    is_whole: bool  # True if ``has`` and ``entries`` together name all authors known to the sender
    asks: bool  # True if the sender requests the same


class _Peer(msgspec.Struct):
    """State about a neighbour; its size depends on differences only, not on common knowledge."""

    differs: dict[str, int] = {}  # its number of measurements, as far as known, of authors for which it differs
    told: dict[str, tuple[int, int]] = {}  # of these the number sent, and the step
    step: int = 0
    asked: int | None = None  # step of the last greeting or proposal; None: one is due
    is_known: bool = False  # True if it has sent all its numbers
    is_greeted: bool = False  # True if it got all numbers of this agent while it was unknown
    owed: list[str] = []  # authors of entries that it sent, to be confirmed
    is_owed: bool = False  # True if it waits for an answer in any case
    is_owed_all: bool = False  # True if it waits for all numbers of this agent


class Gossip(FusedView):
    """An agent that keeps the newest entry of every known author, and forwards what neighbours lack.

    Neighbours that meet exchange their numbers of measurements by author, and their own news. From then on an entry is
    sent at once, and again every ``patience`` steps until the neighbour confirms it by the author's number. The sender
    of an entry has it, so it is not sent back. So an agent's knowledge is exact and known to it; once all agents have
    all entries, none sends. Entries of an agent remain after it has left.

    Entries are identified by their author's name, so a returning agent must have kept its state, or take a new name.

    Args:
        patience: Steps, >= 1, after which unconfirmed entries are sent again.
    """

    def __init__(
        self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = (), patience: int = 3
    ) -> None:
        self.patience = require_at_least_one("patience", patience)
        self._has: dict[str, int] = {}  # number of known measurements by agent; changed by ``_holds`` only
        self._peers: dict[str, _Peer] = {}
        self._reached: dict[str, float] | None = None
        super().__init__(name, domain, proposal, neighbours)

    @property
    def reached(self) -> dict[str, float]:
        """Number of measurements in its belief by agent."""
        if self._reached is None:
            self._reached = {agent: float(count) for agent, count in sorted(self._has.items()) if count}
        return self._reached.copy()

    @property
    def knowledge(self) -> Hashable:
        """Proposal, and the number of each author's entry, which determines its content."""
        return self.proposal, tuple(self.reached.items())

    @property
    def is_finished(self) -> bool:
        """True if every neighbour has confirmed all entries of this agent, and has been answered."""
        return all(self._agrees.get(name, True) and self._is_done(self._peer(name)) for name in self.neighbours)

    def _is_done(self, peer: _Peer) -> bool:
        is_owed = peer.owed or peer.is_owed or peer.is_owed_all
        return peer.is_known and not is_owed and not self._lacks(peer)

    def meet(self, neighbours: Iterable[str]) -> None:
        """Set the neighbours within radio range."""
        before = set(self.neighbours)
        super().meet(neighbours)
        for name in self.neighbours:
            if name not in before:  # it may have received much from others since
                self._forget(self._peer(name))

    @abstractmethod
    def _entry(self, author: str, has: int) -> bytes:
        """Entry for a recipient with the author's first ``has`` measurements."""

    @abstractmethod
    def _file(self, author: str, number: int, content: bytes) -> None:
        """Store a new entry; one that leaves a gap is ignored."""

    def _holds(self, author: str, count: int) -> None:
        """Note the number of an author's measurements that it has now."""
        before = self._has.get(author, 0)
        self._has[author], self._reached = count, None
        for peer in self._peers.values():
            if peer.differs.setdefault(author, before) == count:
                del peer.differs[author]

    def _peer(self, name: str) -> _Peer:
        if name not in self._peers:
            self._peers[name] = _Peer(differs=dict.fromkeys(self._has, 0))
        return self._peers[name]

    def _forget(self, peer: _Peer) -> None:
        """Greet a neighbour again."""
        peer.is_known, peer.is_greeted, peer.asked, peer.told = False, False, None, {}

    def _lacks(self, peer: _Peer) -> list[str]:
        """Authors of which a neighbour has less; before it is known, only this agent itself."""
        known = peer.differs if peer.is_known else {self.name} & peer.differs.keys()
        return [author for author in known if self._has.get(author, 0) > peer.differs[author]]

    def _has_adopted(self) -> None:
        self._has, self._reached = {}, None
        for peer in self._peers.values():
            self._forget(peer)
            peer.differs, peer.owed = {}, []

    def _must_answer(self, neighbour: str) -> None:
        self._peer(neighbour).is_owed = True

    def _fits(self, body: msgspec.Raw) -> bool:
        said = read_body(body, _Body)
        if said is None or not self._is_known([*said.has, *said.entries]):
            return False
        counts = [*said.has.values(), *(number for number, _ in said.entries.values())]
        own = max(said.has.get(self.name, 0), said.entries.get(self.name, (0, b""))[0])
        if not all(0 <= count < MOST for count in counts) or (self.is_whole and own > self.n_measurements):
            return False
        news = [entry for author, entry in said.entries.items() if entry[0] > self._has.get(author, 0)]
        return all(self._is_entry(number, content) for number, content in news)

    @abstractmethod
    def _is_entry(self, number: int, content: bytes) -> bool:
        """True if content is admissible for an author with so many measurements."""

    def _take(self, sender: str, body: msgspec.Raw) -> None:
        said, peer = msgspec.msgpack.decode(body, type=_Body), self._peer(sender)
        told = said.has | {author: number for author, (number, _) in said.entries.items()}
        if (own := told.get(self.name, 0)) > self.n_measurements:
            raise LostStateError(
                f"agent {self.name!r}: got {self.n_measurements} measurements, and {sender!r} knows of {own}; "
                "wanted the state it had (load_state_dict), or a new name"
            )
        leaves_a_gap = False
        for author, (number, content) in said.entries.items():
            if number > self._has.get(author, 0):
                self._file(author, number, content)
                leaves_a_gap = leaves_a_gap or number > self._has.get(author, 0)
        if said.asks:  # unless both greet each other at once
            peer.is_owed_all = peer.is_owed_all or peer.is_known or not peer.is_greeted
        if said.is_whole:
            told = dict.fromkeys([*self._has, *peer.differs], 0) | told
        for author, count in told.items():
            if count != self._has.get(author, 0):
                peer.differs[author] = count
            elif peer.differs.pop(author, None) is not None:
                peer.told.pop(author, None)
        peer.is_known = peer.is_known or said.is_whole
        peer.owed += said.entries
        if leaves_a_gap:
            self._forget(peer)  # the neighbour expects that this agent knows more

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        has = self._has
        for neighbour in self.neighbours:
            peer = self._peer(neighbour)
            peer.step += 1
            agrees = self._agrees.get(neighbour, True)
            asks = not (peer.is_known and agrees) and (peer.asked is None or peer.step - peer.asked > self.patience)
            news = [author for author in self._lacks(peer) if self._is_news(peer, author, has[author])]
            if not (asks or news or peer.owed or peer.is_owed or peer.is_owed_all):
                continue
            is_whole = peer.is_owed_all or not peer.is_known
            entries = {author: (has[author], self._entry(author, peer.differs[author])) for author in news}
            confirmed = has if is_whole else {author: has.get(author, 0) for author in peer.owed}
            confirmed = {author: count for author, count in confirmed.items() if author not in entries}
            peer.told |= {author: (has[author], peer.step) for author in news}
            peer.owed, peer.is_owed, peer.is_owed_all = [], False, False
            peer.is_greeted = peer.is_greeted or is_whole
            peer.asked = None if peer.is_known and agrees else peer.step
            yield neighbour, _Body(confirmed, entries, is_whole, not peer.is_known)

    def _is_news(self, peer: _Peer, author: str, count: int) -> bool:
        told, step = peer.told.get(author, (0, 0))
        return count > told or peer.step - step > self.patience

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"has": dict(self._has), "peers": msgspec.to_builtins(self._peers)}, {}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self._has, self._reached = dict(plain["has"]), None
        self._peers = msgspec.convert(plain["peers"], dict[str, _Peer])
