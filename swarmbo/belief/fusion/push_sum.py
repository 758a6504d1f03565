"""Consensus, for comparison: the information of all agents in contact, exact over links with loss."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.features.feature_gp import FeatureGP, Information, packed_size
from swarmbo.belief.fusion.fused_view import MOST, FusedView, are_numbers, is_sound, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.spaces import Domain


@dataclass
class Mass:
    """Vector of a weight of agents and packed information, and the share of each batch of measurements in it."""

    vector: Float[np.ndarray, " _"]
    tally: dict[str, float] = field(default_factory=dict[str, float])

    def __add__(self, other: "Mass", factor: float = 1.0) -> "Mass":
        batches = dict.fromkeys([*self.tally, *other.tally])
        tally = {batch: self.tally.get(batch, 0.0) + factor * other.tally.get(batch, 0.0) for batch in batches}
        return Mass(self.vector + factor * other.vector, tally)

    def __sub__(self, other: "Mass") -> "Mass":
        return self.__add__(other, -1.0)

    def scaled(self, factor: float) -> "Mass":
        """Multiple of the mass."""
        return Mass(factor * self.vector, {batch: factor * share for batch, share in self.tally.items()})


_ROUNDING = 1e-9  # shares of measurements below it are rounding errors
_SETTLED = 1e-6  # largest relative difference between the shares of measurements in settled mass


class _Body(msgspec.Struct, array_like=True):
    """Message of one end of a link: the numbers of both ends' sessions, and the total mass given in its own session."""

    number: int  # of this message
    heard: int  # number of the last message from the other end
    own: int  # number of this end's session
    theirs: int  # number of the other end's session, if known
    hears: bool  # True if messages from the other end arrive
    given: bytes  # vector of the mass given; empty for none
    tally: dict[str, float]  # of the mass given


class _Link:
    """One end of a link, with the totals given and taken in the present session."""

    PLAIN = ("own", "theirs", "sent", "heard", "silence", "is_heard")

    def __init__(self, size: int, patience: int) -> None:
        self.own, self.theirs, self.sent, self.heard = 1, 0, 0, 0
        self.silence, self.is_heard = patience + 1, False
        self.given = self.taken = Mass(np.zeros(size))


class _View(NamedTuple):
    """An agent's information, and the share of each batch of measurements in it, at most 1."""

    information: Information
    shares: dict[str, float]
    is_settled: bool

    @property
    def reached(self) -> dict[str, float]:
        reached: dict[str, float] = {}
        for batch, share in sorted(self.shares.items()):
            agent, _, n = batch.rsplit(" ", 2)
            reached[agent] = reached.get(agent, 0.0) + share * int(n)
        return reached


class PushSum(FusedView):
    """An agent of a ratio consensus: precision of the weights = prior + N times the average of all agents' information.

    In every step, it splits its mass (its share of all agents' weight and information) evenly between itself and the
    neighbours that receive it. A message contains the total given so far, so the next message makes up for a lost one:
    message loss delays mass but does not destroy it. Information divided by weight converges to the average.

    Running sums over a link belong to a *session*, which both ends number. An end without arrivals for ``patience``
    steps begins a new session, and takes back its totals of the old one; the other end follows when it learns of this.
    So each agent's mass is always its own measurements plus taken minus given mass over the present links. Measurements
    of disconnected agents leave the average; after the agents' return, each counts exactly once. At a loss of 0.3 and
    the default patience, a working link counts as down once in 1e6 steps, which only causes delay.

    A tally accompanies the mass: the share of every batch of measurements (those of an agent between two steps). N is
    chosen so that no batch counts more than once. Older measurements have spread further than new ones, so new ones
    would at first reduce the weight of all others. Therefore the agent keeps its previous belief, with its own new
    measurements, until its mass holds more measurements or has settled. An agent that returns without its state counts
    as new: its old measurements are lost.

    Source: Kempe, Dobra & Gehrke 2003, protocol push-vector; Hadjicostis, Vaidya & Domínguez-García 2016 (running
    sums). Sessions are our own, after the flows of Jesus, Baquero & Almeida 2009.
    """

    content = _Body
    patience = 12
    _previous_view: _View | None  # its view at its last message, with its own new measurements
    _cached_view: _View | None  # result of ``_view``; None if it must be computed again

    def __init__(self, name: str, domain: Domain, proposal: Proposal) -> None:
        self._links: dict[str, _Link] = {}
        super().__init__(name, domain, proposal)

    @property
    def belief(self) -> FeatureGP:
        """Belief from its own measurements and received messages."""
        information = self._view().information  # its own measurements only if received mass is invalid
        return self._by_features(information if is_sound(information) else self._own_information)

    @property
    def reached(self) -> dict[str, float]:
        """Number of measurements in its belief by agent; integers once mass has settled."""
        return self._view().reached

    @property
    def is_finished(self) -> bool:
        """True if it has no neighbours: an agent cannot detect the end of the consensus."""
        return not self.neighbours

    @property
    def is_settled(self) -> bool:
        """True if mass has settled: its belief holds all measurements, once, of every agent in contact."""
        return self._view().is_settled

    @property
    def _own_information(self) -> Information:
        return Information.unpacked(self._own_mass.vector[1:], self.proposal.n_features)

    def _size(self) -> int:
        return 1 + packed_size(self.proposal.n_features)

    def _has_measured(self, n_new: int) -> None:
        before = self._view()
        new, batch = self._information(slice(self.n_measurements - n_new, None)), self._batch(n_new)
        self._previous_view = _View(before.information + new, before.shares | {batch: 1.0}, is_settled=False)
        self._own_mass = self._own_mass + Mass(np.concatenate([[0.0], new.packed()]), {batch: 1.0})
        self._cached_view = None

    def _has_adopted(self) -> None:
        tally = {self._batch(self.n_measurements): 1.0} if self.n_measurements else {}
        self._own_mass = Mass(np.concatenate([[1.0], self._information().packed()]), tally)
        for link in self._links.values():
            self._begin_session(link)
        self._previous_view = self._cached_view = None

    def _batch(self, n: int) -> str:
        return f"{self.name} {self.n_measurements - n} {n}"

    def _begin_session(self, link: _Link) -> None:
        link.own += 1
        link.silence = self.patience + 1
        self._reset(link)

    def _reset(self, link: _Link) -> None:
        """Undo all given and taken mass, as the other end will when it learns of it."""
        link.is_heard = False
        link.given = link.taken = Mass(np.zeros(self._size()))

    def _fits(self, said: _Body) -> bool:
        are_counts = all(0 <= n < MOST for n in (said.number, said.heard, said.own, said.theirs))
        is_tally = all(self._is_batch(name) and abs(share) <= MOST for name, share in said.tally.items())
        return are_counts and is_tally and (not said.given or are_numbers(said.given, self._size()))

    def _is_batch(self, name: str) -> bool:
        """True if it is an agent's batch name, as from ``_batch``."""
        agent, first, n = name.rsplit(" ", 2) if name.count(" ") > 1 else ("", "", "")
        return self._is_known([agent]) and all(y.isascii() and y.isdecimal() and len(y) < 10 for y in (first, n))

    def _take(self, sender: str, said: _Body) -> None:
        if sender not in self.neighbours or said.number <= (link := self._link(sender)).heard:
            return
        link.heard, link.silence = said.number, 0
        if said.heard > link.sent:  # the other end has received messages that this agent has forgotten
            link.sent, link.own = said.heard, max(link.own, said.theirs) + 1
            self._reset(link)
        if said.own != link.theirs:
            link.theirs = said.own
            self._reset(link)
        link.is_heard = said.hears and said.theirs == link.own
        if said.theirs == link.own and said.given:
            link.taken = Mass(unpacked_bytes(said.given), said.tally)
        self._cached_view = None

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        self._previous_view = self._view()._replace(is_settled=False)
        for neighbour, link in self._links.items():
            is_up = link.silence <= self.patience
            link.silence += 1
            if is_up and (link.silence > self.patience or neighbour not in self.neighbours):
                self._begin_session(link)
        heard_by = [self._link(neighbour) for neighbour in self.neighbours if self._link(neighbour).is_heard]
        share = self._mass().scaled(1.0 / (1 + len(heard_by)))
        for link in heard_by:
            link.given += share
        self._cached_view = None
        for neighbour in self.neighbours:
            link = self._link(neighbour)
            given = packed_bytes(link.given.vector) if link.given.vector[0] else b""
            hears = link.silence <= self.patience
            link.sent += 1
            yield neighbour, _Body(link.sent, link.heard, link.own, link.theirs, hears, given, link.given.tally)

    def _link(self, neighbour: str) -> _Link:
        if neighbour not in self._links:
            self._links[neighbour] = _Link(self._size(), self.patience)
        return self._links[neighbour]

    def _mass(self) -> Mass:
        mass = self._own_mass
        for link in self._links.values():
            mass = mass + link.taken - link.given
        return mass

    def _view(self) -> _View:
        if self._cached_view is None:
            view, previous = self._view_of_mass(), self._previous_view
            if not view.is_settled and previous is not None and previous.information.count > view.information.count:
                view = previous
            self._cached_view = view
        return self._cached_view

    def _view_of_mass(self) -> _View:
        """View from its mass, N times the average; from its own measurements if the mass is invalid."""
        mass = self._mass()
        if min(mass.tally.values(), default=0.0) < -_ROUNDING:  # it has forwarded mass of a session that ended
            return _View(self._own_information, dict(self._own_mass.tally), is_settled=False)
        shares = {batch: share for batch, share in mass.tally.items() if share > _ROUNDING}
        most = max(shares.values(), default=1.0)
        information = Information.unpacked(mass.vector[1:] / most, self.proposal.n_features)
        is_settled = min(shares.values(), default=1.0) >= (1.0 - _SETTLED) * most
        return _View(information, {batch: share / most for batch, share in shares.items()}, is_settled)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        links = {name: {key: getattr(link, key) for key in _Link.PLAIN} for name, link in self._links.items()}
        masses = {"own": self._own_mass}
        for name, link in self._links.items():
            masses |= {f"given/{name}": link.given, f"taken/{name}": link.taken}
        if self._previous_view is not None:
            masses["kept"] = Mass(self._previous_view.information.packed(), self._previous_view.shares)
        plain = {"links": links, "tallies": {name: mass.tally for name, mass in masses.items()}}
        return plain, {name: mass.vector.copy() for name, mass in masses.items()}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        masses = {name: Mass(arrays[name], dict(tally)) for name, tally in plain["tallies"].items()}
        self._own_mass, self._links, self._previous_view, self._cached_view = masses["own"], {}, None, None
        for name, said in plain["links"].items():
            link = self._link(name)
            link.given, link.taken = masses[f"given/{name}"], masses[f"taken/{name}"]
            for key in _Link.PLAIN:
                setattr(link, key, said[key])
        if (kept := masses.get("kept")) is not None:
            information = Information.unpacked(kept.vector, self.proposal.n_features)
            self._previous_view = _View(information, kept.tally, is_settled=False)
