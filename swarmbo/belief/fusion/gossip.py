"""Flooding of what agents have to tell, each entry under its author's name and a number: nothing is counted twice."""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from swarmbo.belief.fusion.fusing_agent import FusingAgent
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.spaces import Domain


class _Body(msgspec.Struct, array_like=True):
    """What the sender has, by author, entries that the recipient may lack, and whether it wants to hear of them."""

    has: dict[str, int]
    entries: dict[str, tuple[int, bytes]]  # number and content
    asks: bool


class _Peer(msgspec.Struct):
    """What is known of a neighbour."""

    has: dict[str, int] = {}  # as it said last
    told: dict[str, int] = {}  # what it was sent since
    age: int = 0  # steps since it was sent something without an answer
    is_owed: bool = False  # whether it waits to hear what has arrived


class Gossip(FusingAgent):
    """An agent that keeps the newest entry of every author it has heard of, and passes on what neighbours lack.

    Entries go out at once, and again every ``patience`` steps until the neighbour says that it has them. Whoever gets
    entries says what it has. So all is exact for what has reached an agent, and it knows what has; when all have all,
    nobody speaks. What an agent said stays with the others after it has left.

    Args:
        name: Its name; no other agent's.
        domain: The box of physical points.
        proposal: What all agents are started with.
        neighbours: Whom it speaks to, from the start.
        patience: Steps, >= 1, after which entries that nobody confirmed are sent again.
    """

    def __init__(
        self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = (), patience: int = 3
    ) -> None:
        self.patience = patience
        self._peers: dict[str, _Peer] = {}
        super().__init__(name, domain, proposal, neighbours)

    @property
    def reached(self) -> dict[str, float]:
        """How many readings of which agent its belief holds."""
        return {agent: float(count) for agent, count in sorted(self._has().items()) if count}

    @property
    def knowledge(self) -> Hashable:
        """The proposal, and the number of each author's entry, which tells what is in it."""
        return self.proposal, tuple(self.reached.items())

    @property
    def is_finished(self) -> bool:
        """Whether every neighbour has said that it has all that this agent has, and has been answered."""
        return all(
            self._agrees.get(neighbour, True)
            and not self._peer(neighbour).is_owed
            and not self._lacks(self._peer(neighbour))
            for neighbour in self.neighbours
        )

    @abstractmethod
    def _has(self) -> dict[str, int]:
        """How many readings of which agent it knows of."""

    @abstractmethod
    def _entry(self, author: str, has: int) -> tuple[int, bytes]:
        """What to tell somebody who knows of the author's first ``has`` readings."""

    @abstractmethod
    def _file(self, author: str, number: int, content: bytes) -> None:
        """Take an entry; one that says nothing new is passed over."""

    def _peer(self, name: str) -> _Peer:
        return self._peers.setdefault(name, _Peer())

    def _lacks(self, peer: _Peer) -> list[str]:
        return [author for author, count in self._has().items() if count > peer.has.get(author, 0)]

    def _has_adopted(self) -> None:
        for peer in self._peers.values():
            peer.has, peer.told, peer.age = {}, {}, self.patience

    def _take(self, sender: str, body: msgspec.Raw) -> None:
        said, peer = msgspec.msgpack.decode(body, type=_Body), self._peer(sender)
        peer.has = said.has
        peer.is_owed = peer.is_owed or said.asks
        for author, (number, content) in said.entries.items():
            self._file(author, number, content)

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        has = self._has()
        for neighbour in self.neighbours:
            peer = self._peer(neighbour)
            if peer.age >= self.patience:
                peer.told = {}
            news = [author for author in self._lacks(peer) if has[author] > peer.told.get(author, 0)]
            is_due = peer.age >= self.patience and not self._agrees.get(neighbour, True)
            peer.age += 1
            if news or peer.is_owed or is_due:
                entries = {author: self._entry(author, peer.has.get(author, 0)) for author in news}
                peer.told |= {author: has[author] for author in news}
                peer.is_owed = False
                if news or is_due:
                    peer.age = 0
                yield neighbour, _Body(has, entries, bool(news) or is_due)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"peers": msgspec.to_builtins(self._peers)}, {}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self._peers = msgspec.convert(plain["peers"], dict[str, _Peer])
