"""Flooding of raw measurements, numbered by their authors so that none counts twice: the reference for comparisons."""

from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.fusion.fused_view import MOST, FusedView, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.hyperparameters import ExactGPSettings, Hyperparameters
from swarmbo.belief.gp.observations import standardisation
from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.errors import LostStateError
from swarmbo.spaces import Domain

_PATIENCE = 3  # steps without an answer after which a message is sent again
_WITH_NOISE = b"\x01"  # last byte of an entry whose rows have a column of noise; numbers take eight bytes each


class Measurements(NamedTuple):
    """Points (n, d), outcomes (n,) and noise variances (n,), physical; NaN is an unknown noise."""

    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, rows: Float[np.ndarray, "n c"]) -> "Measurements":
        """Measurements of a log, one per row."""
        return cls(rows[:, :-2], rows[:, -2], rows[:, -1])


class _Log:
    """Immutable measurements of one author, one per row; agents of one process with equal data share one log."""

    def __init__(self, rows: Float[np.ndarray, "n c"]) -> None:
        self.rows = rows
        self._entries: dict[int, bytes] = {}
        self._extensions: WeakValueDictionary[tuple[int, bytes], _Log] = WeakValueDictionary()

    def __deepcopy__(self, memo: object) -> "_Log":
        return self

    def __reduce__(self) -> tuple[type["_Log"], tuple[Float[np.ndarray, "n c"]]]:
        return _Log, (self.rows,)  # caches of a process are not pickled, and weak references cannot be

    def __len__(self) -> int:
        return len(self.rows)

    def entry(self, has: int) -> bytes:
        """Entry with the measurements after the first ``has``, which the recipient has."""
        if has not in self._entries:
            self._entries[has] = _packed(self.rows[has:])
        return self._entries[has]

    def after(self, number: int, content: bytes) -> "_Log":
        """Log extended by an entry to ``number`` measurements; unchanged if the entry leaves a gap or is not new."""
        longer = self._extensions.get((number, content))
        if longer is None:
            rows = _unpacked(content, self.rows.shape[1])
            first = number - len(rows)
            if not first <= len(self) < number:
                return self
            longer = self._extensions[number, content] = _Log(np.concatenate([self.rows, rows[len(self) - first :]]))
        return longer


def _packed(rows: Float[np.ndarray, "n c"]) -> bytes:
    if np.isnan(rows[:, -1]).all():
        return packed_bytes(rows[:, :-1].ravel())
    return packed_bytes(rows.ravel()) + _WITH_NOISE


def _unpacked(content: bytes, n_columns: int) -> Float[np.ndarray, "n c"]:
    if content.endswith(_WITH_NOISE) and len(content) % 8:
        return unpacked_bytes(content[:-1]).reshape(-1, n_columns)
    rows = unpacked_bytes(content).reshape(-1, n_columns - 1)
    return np.column_stack([rows, np.full(len(rows), np.nan)])


@cache
def _empty(n_columns: int) -> _Log:
    return _Log(np.zeros((0, n_columns)))


class _Body(msgspec.Struct, array_like=True):
    """Numbers of measurements that the sender has by author, and entries that the recipient may lack."""

    has: dict[str, int]
    entries: dict[str, tuple[int, bytes]]  # number of the author's measurements up to the entry's last, and content
    is_whole: bool  # True if ``has`` and ``entries`` together name all authors known to the sender
    asks: bool  # True if the sender requests a message that is whole


class _Peer(msgspec.Struct):
    """State about a neighbour; its size depends on differences only, not on common knowledge.

    Agent a has three measurements when it meets b, which has none. Later a measures once more, and a message is lost:

    | step | messages | then a knows about b | then b knows about a |
    |---|---|---|---|
    | 1 | both greet; a's entry has 3 | ``is_known``, ``differs`` a: 0, ``told`` a: (3, 1) | ``is_known``, ``owed`` a |
    | 2 | b confirms a: 3 | ``differs`` and ``told`` are empty | ``owed`` is empty |
    | 4 | a's entry to 4 is lost | ``differs`` a: 3, ``told`` a: (4, 4) | as before |
    | 8, 9 | as in steps 1 and 2 | ``told`` a: (4, 8), then as in step 2 | ``owed`` a, then as in step 2 |
    """

    differs: dict[str, int] = {}  # its last known number of measurements for each author whose number differs
    told: dict[str, tuple[int, int]] = {}  # for some of these authors: the number last sent to it, and the step
    step: int = 0
    asked: int | None = None  # step of the last greeting or proposal; None: one is due
    is_known: bool = False  # True if it has sent all its numbers
    is_greeted: bool = False  # True if it has been sent all numbers of this agent
    owed: list[str] = []  # authors of entries that it sent, which this agent must confirm
    is_owed: bool = False  # True if it waits for an answer in any case
    is_owed_all: bool = False  # True if it waits for all numbers of this agent

    def __deepcopy__(self, memo: object) -> "_Peer":  # a team copies one for each pair of agents
        return msgspec.structs.replace(self, differs=self.differs.copy(), told=self.told.copy(), owed=self.owed.copy())

    @property
    def awaits_answer(self) -> bool:
        """True if it waits for a message."""
        return bool(self.owed) or self.is_owed or self.is_owed_all

    def forget(self) -> None:
        """Begin again with a greeting, as its numbers may have changed."""
        self.is_known, self.is_greeted, self.asked, self.told = False, False, None, {}


class MeasurementFlooding(FusedView):
    """An agent that collects all agents' measurements, forwards those that neighbours lack, and has an exact GP on all.

    Neighbours that meet exchange their numbers of measurements by author, and their own new measurements. From then on,
    new entries are sent at once. After three steps without a confirmation (the author's number), they are sent again.
    An entry is not sent back to its sender. So each agent knows exactly which measurements it has; once all agents have
    all entries, no agent sends anything. Entries remain after their author has left. A returning agent must have kept
    its state, or take a new name.

    A measurement takes 8 (d + 1) bytes and needs no basis. If an entry has a known noise, each of its measurements
    takes 8 bytes more, and the entry one byte more.
    """

    content = _Body
    means_by_proposal = False

    def __init__(self, name: str, domain: Domain, proposal: Proposal) -> None:
        self._counts: dict[str, int] = {}  # number of known measurements by agent; changed by ``_store`` only
        self._peers: dict[str, _Peer] = {}
        self._reached: dict[str, float] | None = None
        self._logs: dict[str, _Log] = {}
        self._belief: Any = None
        super().__init__(name, domain, proposal)

    @property
    def belief(self) -> Any:
        """Belief from its own and received measurements: an ``ExactGP``."""
        if self._belief is None:
            self._belief = self._make_belief()
        return self._belief

    def _make_belief(self) -> Any:
        return self._exact(self.known)

    def _exact(self, measurements: Measurements) -> ExactGP:
        h = self.hyperparameters
        return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, *measurements)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Hyper-parameters of the proposal; if its outcomes did not differ, in the unit of all outcomes known here."""
        h = self.proposal.hyperparameters
        if h.has_scale:
            return h
        offset, scale, is_shown = standardisation(self.known.y)
        return msgspec.structs.replace(h, offset=offset, scale=scale) if is_shown else h

    @property
    def known(self) -> Measurements:
        """All measurements that it has, its own among them."""
        rows = [self._logs[author].rows for author in sorted(self._logs)]  # the same order in every agent
        return Measurements.of(np.concatenate([np.zeros((0, self.n_columns + 2)), *rows]))

    @property
    def reached(self) -> dict[str, float]:
        """Number of measurements in its belief by agent."""
        if self._reached is None:
            self._reached = {agent: float(count) for agent, count in sorted(self._counts.items()) if count}
        return self._reached.copy()

    @property
    def knowledge(self) -> Hashable:
        """Proposal, and each author's number of measurements: together they determine the belief."""
        return self.proposal, tuple(self.reached.items())

    @property
    def is_finished(self) -> bool:
        """True if every neighbour has confirmed all entries of this agent, and has been answered."""
        peers = [self._peer(name) for name in self.neighbours]
        is_open = any(peer.awaits_answer or not peer.is_known or self._authors_lacked(peer) for peer in peers)
        return not is_open and all(self._agrees.get(name, True) for name in self.neighbours)

    def _has_met(self, neighbour: str) -> None:
        self._peer(neighbour).forget()

    def _peer(self, name: str) -> _Peer:
        if name not in self._peers:
            self._peers[name] = _Peer(differs=dict.fromkeys(self._counts, 0))
        return self._peers[name]

    def _authors_lacked(self, peer: _Peer) -> list[str]:
        """Authors whose measurements a neighbour lacks; until its numbers are known, at most this agent itself."""
        known = peer.differs if peer.is_known else {self.name} & peer.differs.keys()
        return [author for author in known if self._counts.get(author, 0) > peer.differs[author]]

    def _must_answer(self, neighbour: str) -> None:
        self._peer(neighbour).is_owed = True

    def _fits(self, said: _Body) -> bool:
        if not self._is_known([*said.has, *said.entries]):
            return False
        counts = [*said.has.values(), *(number for number, _ in said.entries.values())]
        own = max(said.has.get(self.name, 0), said.entries.get(self.name, (0, b""))[0])
        if not all(0 <= count < MOST for count in counts) or (self.is_whole and own > self.n_measurements):
            return False
        news = [entry for author, entry in said.entries.items() if entry[0] > self._counts.get(author, 0)]
        return all(self._is_entry(number, content) for number, content in news)

    def _take(self, sender: str, said: _Body) -> None:
        peer, numbers = self._peer(sender), {author: number for author, (number, _) in said.entries.items()}
        has_now = said.has | numbers
        if (own := has_now.get(self.name, 0)) > self.n_measurements:
            got = f"agent {self.name!r}: got {self.n_measurements} measurements, and {sender!r} knows of {own}"
            raise LostStateError(f"{got}; wanted its last state (load_state_dict), or a new name")
        for author, (number, content) in said.entries.items():
            if number > self._counts.get(author, 0):
                self._store(author, number, content)
        if said.asks:  # unless both greet each other at once
            peer.is_owed_all = peer.is_owed_all or peer.is_known or not peer.is_greeted
        if said.is_whole:  # it has nothing of authors that it does not name
            has_now = dict.fromkeys([*self._counts, *peer.differs], 0) | has_now
        for author, count in has_now.items():
            if count != self._counts.get(author, 0):
                peer.differs[author] = count
            elif peer.differs.pop(author, None) is not None:
                peer.told.pop(author, None)
        peer.is_known = peer.is_known or said.is_whole
        peer.owed += said.entries
        if any(number > self._counts.get(author, 0) for author, number in numbers.items()):
            peer.forget()  # an entry left a gap: the neighbour expects that this agent knows more

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        for neighbour in self.neighbours:
            body = self._next_body(self._peer(neighbour), agrees=self._agrees.get(neighbour, True))
            if body is not None:
                yield neighbour, body

    def _next_body(self, peer: _Peer, *, agrees: bool) -> _Body | None:
        """Message of this step to a neighbour, noted as sent; None if there is nothing to send."""
        peer.step += 1
        must_ask = not (peer.is_known and agrees)
        asks = must_ask and (peer.asked is None or peer.step - peer.asked > _PATIENCE)
        sent = {author: peer.told.get(author, (0, 0)) for author in self._authors_lacked(peer)}
        news = [
            author for author, (n, step) in sent.items() if self._counts[author] > n or peer.step - step > _PATIENCE
        ]
        if not (news or peer.awaits_answer or asks):
            return None
        has, is_whole = self._counts, peer.is_owed_all or not peer.is_known
        entries = {author: (has[author], self._logs[author].entry(peer.differs[author])) for author in news}
        to_confirm = has if is_whole else peer.owed
        confirmed = {author: has.get(author, 0) for author in to_confirm if author not in entries}
        peer.told |= {author: (has[author], peer.step) for author in news}
        peer.owed, peer.is_owed, peer.is_owed_all = [], False, False
        peer.is_greeted = peer.is_greeted or is_whole
        peer.asked = peer.step if must_ask else None
        return _Body(confirmed, entries, is_whole, not peer.is_known)

    def _is_entry(self, number: int, content: bytes) -> bool:
        has_noise, n_columns = content.endswith(_WITH_NOISE) and len(content) % 8 == 1, self.n_columns + 2
        if (len(content) - has_noise) % (8 * (n_columns - 1 + has_noise)):
            return False
        rows = _unpacked(content, n_columns)
        X, y, noise = Measurements.of(rows)
        is_near = self.domain.is_near(X[:, : self.domain.n_dims]).all() and np.isfinite(X).all()
        is_noise = np.isnan(noise) | ((noise >= 0.0) & (noise <= LARGEST_OUTCOME**2))
        return 0 < len(rows) <= number and bool(is_near and (np.abs(y) <= LARGEST_OUTCOME).all() and is_noise.all())

    def _store(self, author: str, number: int, content: bytes) -> None:
        """Store a new entry; an entry that leaves a gap is ignored."""
        known = self._logs.get(author) or _empty(self.n_columns + 2)
        log = known.after(number, content)
        if log is not known:
            before = self._counts.get(author, 0)
            self._logs[author], self._belief = log, None
            self._counts[author], self._reached = number, None
            for peer in self._peers.values():
                if peer.differs.setdefault(author, before) == number:
                    del peer.differs[author]

    def _has_measured(self, n_new: int) -> None:
        new = slice(self.n_measurements - n_new, None)
        rows = np.column_stack([self.X[new], self.y[new], self.noise[new]])
        self._store(self.name, self.n_measurements, _packed(rows))

    def _has_adopted(self) -> None:
        for peer in self._peers.values():
            peer.asked = None
        self._belief = None

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        plain = {"has": dict(self._counts), "peers": msgspec.to_builtins(self._peers)}
        return plain, {"readings": np.column_stack(self.known)}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self._counts, self._reached = dict(plain["has"]), None
        self._peers = msgspec.convert(plain["peers"], dict[str, _Peer])
        counts = sorted(self._counts.items())  # the order of rows in ``known``
        rows = np.split(arrays["readings"], np.cumsum([count for _, count in counts])[:-1])
        nothing = _empty(self.n_columns + 2)
        told = zip(counts, rows, strict=False)  # without authors, the split has one empty part
        self._logs = {author: nothing.after(count, _packed(log)) for (author, count), log in told}
        self._belief = None


class FailureFlooding(MeasurementFlooding):
    """An agent that collects locations of failures as measurements of 0; as long as it has none, it sends nothing."""

    @property
    def is_finished(self) -> bool:
        """True if it knows of no failure, or its neighbours know all of them."""
        return not self._counts or super().is_finished

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        return super()._bodies() if self._counts else ()
