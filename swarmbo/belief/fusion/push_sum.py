"""Consensus on the information of all agents that reach one another, exact over links that lose messages."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from swarmbo.belief.feature_gp import FeatureGP
from swarmbo.belief.fusion.fusing_agent import FusingAgent, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.mass import Mass
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.information import Information, packed_size
from swarmbo.spaces import Domain

_NOTHING = 1e-9  # a share of a reading that is rounding
_SETTLED = 1e-6  # share of an agent's readings by which a settled tally may be off


class _Body(msgspec.Struct, array_like=True):
    """What one end of a link says: its session and the other's as it knows it, and all that it ever gave in it."""

    number: int
    own: int
    theirs: int
    hears: bool
    readings: dict[str, int]
    given: bytes
    tally: dict[str, float]


class _Link:
    """One end of a link: what it gave and took in the present session."""

    def __init__(self, size: int, patience: int) -> None:
        self.own, self.theirs, self.number = 1, 0, 0
        self.silence, self.is_heard = patience + 1, False
        self.given, self.taken = Mass.none(size), Mass.none(size)

    def reset(self, size: int) -> None:
        """Undo all that was given and taken, as the other end will when it hears of it."""
        self.is_heard = False
        self.given, self.taken = Mass.none(size), Mass.none(size)


class PushSum(FusingAgent):
    """An agent of a ratio consensus: precision of the weights = prior + N times the average of all agents' information.

    In every step it splits its mass (its share of everybody's weight and information) evenly between itself and the
    neighbours that hear it. It never says what it gives now but all that it gave so far; who missed a message learns
    from the next one, so lost messages delay mass and lose none. Information by weight goes to the average.

    To running sums over a link belongs a *session*, which both ends number. An end that hears nothing for ``patience``
    steps begins a new one and takes back what it gave and took in the old one; the other end does so when it hears of
    it. So each agent's mass is always its own readings plus what it took less what it gave over the links that are up:
    readings of agents that are cut off leave the average, and come back with them, once.

    While mass is under way N is set so that the readings of no agent weigh more, in sum, than they should: what is on
    its way is missed, not counted twice. An agent that comes back must have kept its state.

    Source: Kempe, Dobra & Gehrke 2003, protocol push-vector; Hadjicostis, Vaidya & Domínguez-García 2016
    (running sums). Sessions are ours, after the flows of Jesus, Baquero & Almeida 2009.

    Args:
        name: Its name; no other agent's.
        domain: The box of physical points.
        proposal: What all agents are started with.
        neighbours: Whom it speaks to, from the start.
        patience: Steps of silence, >= 1, after which a link counts as down. At a loss of 0.3 a link seems down for
            nothing once in 1e6 steps at the default; that only delays.

    Example:
        >>> from swarmbo.belief.fusion import exchange
        >>> from swarmbo.belief.hyperparameters import Hyperparameters
        >>> from swarmbo.transport import Faults
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> a, b = PushSum("a", domain, start, ["b"]), PushSum("b", domain, start, ["a"])
        >>> a.measure([[0.2]], [1.0])
        >>> b.measure([[0.8], [0.9]], [0.0, 0.3])
        >>> traffic = exchange([a, b], Faults(loss=0.3).open(["a", "b"]), steps=80)
        >>> {agent: round(n, 6) for agent, n in a.reached.items()}, a.is_settled
        ({'a': 1.0, 'b': 2.0}, True)
    """

    def __init__(
        self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = (), patience: int = 12
    ) -> None:
        self.patience = patience
        self._links: dict[str, _Link] = {}
        self._readings: dict[str, int] = {}
        self._number = 0
        self._seen: tuple[Information, dict[str, float]] | None = None
        super().__init__(name, domain, proposal, neighbours)
        self._has_adopted()

    @property
    def belief(self) -> FeatureGP:
        """What it believes by what has reached it."""
        return FeatureGP(
            domain=self.domain,
            hyperparameters=self.proposal.hyperparameters,
            basis=self.proposal.basis,
            information=self._view()[0],
        )

    @property
    def reached(self) -> dict[str, float]:
        """How many readings of which agent its belief holds: whole numbers once mass has come to rest."""
        return dict(self._view()[1])

    @property
    def is_finished(self) -> bool:
        """Whether it has nobody to speak to: consensus has no end that an agent could know of."""
        return not self.neighbours

    @property
    def is_settled(self) -> bool:
        """Whether its belief holds all readings of each agent that it holds any of, as far as it has heard."""
        reached = self._view()[1]
        return all(abs(count - self._readings[agent]) <= _SETTLED * count for agent, count in reached.items())

    def _size(self) -> int:
        return 1 + packed_size(self.proposal.n_features)

    def _has_measured(self, n_new: int) -> None:
        new = self._information(slice(self.n_readings - n_new, None))
        self._own.vector[1:] += new.packed()
        self._own.tally[self.name] = float(self.n_readings)
        self._readings[self.name] = self.n_readings
        self._seen = None

    def _has_adopted(self) -> None:
        packed = self._information().packed()
        self._own = Mass(np.concatenate([[1.0], packed]), {self.name: float(self.n_readings)} if self.y.size else {})
        for link in self._links.values():
            self._begin_session(link)
        self._seen = None

    def _begin_session(self, link: _Link) -> None:
        link.own += 1
        link.silence = self.patience + 1
        link.reset(self._size())

    def _take(self, sender: str, body: msgspec.Raw) -> None:
        said = msgspec.msgpack.decode(body, type=_Body)
        if sender not in self.neighbours or said.number <= (link := self._link(sender)).number:
            return
        link.number, link.silence = said.number, 0
        if said.theirs > link.own:  # it knows of sessions that this agent has forgotten
            link.own = said.theirs + 1
            link.reset(self._size())
        if said.own != link.theirs:
            link.theirs = said.own
            link.reset(self._size())
        link.is_heard = said.hears and said.theirs == link.own
        if said.theirs == link.own and said.given:
            link.taken = Mass(unpacked_bytes(said.given), said.tally)
        for agent, count in said.readings.items():
            self._readings[agent] = max(count, self._readings.get(agent, 0))
        self._seen = None

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        self._number += 1
        for neighbour, link in self._links.items():
            is_up = link.silence <= self.patience
            link.silence += 1
            if is_up and (link.silence > self.patience or neighbour not in self.neighbours):
                self._begin_session(link)
        heard_by = [self._link(neighbour) for neighbour in self.neighbours if self._link(neighbour).is_heard]
        share = self._mass().scaled(1.0 / (1 + len(heard_by)))
        for link in heard_by:
            link.given += share
        self._seen = None
        for neighbour in self.neighbours:
            link = self._link(neighbour)
            given = packed_bytes(link.given.vector) if link.given.vector[0] else b""
            hears = link.silence <= self.patience
            tally = link.given.tally
            yield neighbour, _Body(self._number, link.own, link.theirs, hears, self._readings, given, tally)

    def _link(self, neighbour: str) -> _Link:
        if neighbour not in self._links:
            self._links[neighbour] = _Link(self._size(), self.patience)
        return self._links[neighbour]

    def _mass(self) -> Mass:
        mass = self._own
        for link in self._links.values():
            mass = mass + link.taken - link.given
        return mass

    def _view(self) -> tuple[Information, dict[str, float]]:
        if self._seen is None:
            self._seen = self._fused() or (Information.unpacked(self._own.vector[1:], self._p), dict(self._own.tally))
        return self._seen

    @property
    def _p(self) -> int:
        return self.proposal.n_features

    def _fused(self) -> tuple[Information, dict[str, float]] | None:
        """Information and tally of N times the average; None where mass under way leaves no sense in it."""
        mass = self._mass()
        if mass.vector[0] <= 0.0 or any(count < -_NOTHING for count in mass.tally.values()):
            return None  # just after a session ended: what it took there it has passed on already
        held = {agent: count for agent, count in mass.tally.items() if count > _NOTHING}
        if not held:
            return None
        factor = min(self._readings[agent] / count for agent, count in held.items())  # N / weight, at most
        information = Information.unpacked(factor * mass.vector[1:], self._p)
        eigenvalues = np.linalg.eigvalsh(information.precision)
        if eigenvalues[0] < -_SETTLED * max(1.0, eigenvalues[-1]):
            return None
        return information, {agent: factor * count for agent, count in held.items()}

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        links = {
            name: {
                "own": link.own,
                "theirs": link.theirs,
                "number": link.number,
                "silence": link.silence,
                "is_heard": link.is_heard,
                "given": link.given.tally,
                "taken": link.taken.tally,
            }
            for name, link in self._links.items()
        }
        arrays = {f"given/{name}": link.given.vector.copy() for name, link in self._links.items()}
        arrays |= {f"taken/{name}": link.taken.vector.copy() for name, link in self._links.items()}
        plain = {"links": links, "readings": dict(self._readings), "number": self._number, "tally": self._own.tally}
        return plain, arrays | {"own": self._own.vector.copy()}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self._links = {}
        for name, said in plain["links"].items():
            link = self._link(name)
            link.own, link.theirs, link.number = said["own"], said["theirs"], said["number"]
            link.silence, link.is_heard = said["silence"], said["is_heard"]
            link.given = Mass(arrays[f"given/{name}"], dict(said["given"]))
            link.taken = Mass(arrays[f"taken/{name}"], dict(said["taken"]))
        self._readings, self._number = dict(plain["readings"]), plain["number"]
        self._own = Mass(arrays["own"], dict(plain["tally"]))
        self._seen = None
