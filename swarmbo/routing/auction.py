"""Who visits which places, and in which order: way-points are auctioned one by one, and put into routes.

In every step each agent bids for the place that adds most to what all of them will learn, per round that the visit adds
to its route. The highest bid of the part wins; every agent then works out for itself what the other places are still
worth. When no route has room left, agents whose first way-point is rounds away choose in turn where to measure on the
way to it.

Source: sequential single-item auctions with insertion, as Koenig et al. 2006; here the gain is submodular, not a
distance.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.distance import cdist

from swarmbo.acquisition.target_worth import TargetScores
from swarmbo.acquisition.travel import Travel
from swarmbo.coordination.requests import AllReduce, Best, Steps
from swarmbo.coordination.view import LocalView
from swarmbo.routing.gains import Gains
from swarmbo.routing.tour import Tour, in_time

_LOOKED_AT = 64  # places on the way that an agent looks at closely: those near which most is left to learn

Order = Literal["auction", "sequential"]


@dataclass(frozen=True, eq=False)
class Pilot:
    """What one agent knows of a decision, and nobody else.

    Args:
        agent: Its name.
        gains: What way-points are worth, as it believes; agents that believe the same may have one in common.
        travel: How many rounds its ways take.
        start: Where it is (d,), if that is known.
        candidates: What it can measure in this round (k, d), k >= 1.
        is_open: Which of the places it may plan to measure.
        horizon: Rounds that its route may take.
        price: Of a measurement, in the unit of the field; None where it measures in any case.
    """

    agent: str
    gains: Gains
    travel: Travel
    start: Float[np.ndarray, " d"] | None
    candidates: Float[np.ndarray, "k d"]
    is_open: Bool[np.ndarray, " p"]
    horizon: int
    price: float | None = None

    @property
    def places(self) -> Float[np.ndarray, "p d"]:
        """What may become a way-point."""
        return self.gains.places

    def tour(self) -> Tour:
        """Its route, with no way-point yet."""
        return Tour(self.agent, self.travel, self.start, self.places, self.is_open, self.horizon)

    def in_reach(self) -> Bool[np.ndarray, " p"]:
        """Which places it can measure in this round."""
        listed = {place.tobytes() for place in self.candidates}
        return np.array([place.tobytes() in listed for place in self.places])

    def pick(
        self,
        tour: Tour,
        left_over: Float[np.ndarray, " p"],
        planned: Bool[np.ndarray, " p"],
        picks: Sequence[Float[np.ndarray, " d"]],
        taken: Collection[bytes],
    ) -> Float[np.ndarray, " d"] | None:
        """Where it measures on the way to its first way-point: where it is still in time, or soonest there.

        None where it declines, or all is taken; its base where it has to go home and there is nothing on the way.

        Args:
            tour: Its route.
            left_over: What places add to the way-points of all.
            planned: Which places are way-points.
            picks: Where others measure in this round, off their way-points.
            taken: Where others measure in this round, as bytes.
        """
        left = self.candidates[[place.tobytes() not in taken for place in self.candidates]]
        base = self.travel.base(self.agent)
        if base is not None and len(left):
            left = left[in_time(self.agent, self.travel, left, base, self.travel.rounds_left(self.agent))]
        if not len(left):
            return base  # it has to go home, and there is nothing to measure on the way
        if tour.stops:
            target = self.places[tour.stops[0]]
            rest = self.travel.rounds(self.agent, left, target[None])[:, 0]
            left = left[rest <= max(tour.first_leg - 1.0, float(rest.min()))]
        if len(left) > _LOOKED_AT:
            nearest = cdist(left, self.places).argmin(axis=1)
            left = left[np.sort(np.argsort(-left_over[nearest], kind="stable")[:_LOOKED_AT])]
        gains = self.gains.between(left, planned, picks)
        best = int(gains.argmax())
        if self.price is not None and not tour.stops and gains[best] <= self.price:
            return None
        return left[best]


class Legs(NamedTuple):
    """What whoever sees some agents of a part comes out with.

    Args:
        points: Where each of them measures next (d,); who declines is missing.
        routes: The way-points of each (w, d), in the order of visits.
        rounds: Steps of the part's exchange.
    """

    points: dict[str, Float[np.ndarray, " d"]]
    routes: dict[str, Float[np.ndarray, "w d"]]
    rounds: int


def auction(view: LocalView, pilots: Mapping[str, Pilot], order: Order) -> Steps[Legs]:
    """What whoever sees some agents of a part does.

    Args:
        view: The agents, as variables; each owns one factor.
        pilots: Of at least the own agents; no others are looked at.
        order: Who is served first: the highest bid, or each agent until its route is full.
    """
    agents, own = view.graph.variables, [pilots[agent] for agent in view.variables]
    number = {agent: n for n, agent in enumerate(agents)}
    left: dict[int, TargetScores] = {}
    for pilot in own:
        if id(pilot.gains) not in left:
            left[id(pilot.gains)] = pilot.gains.begin()
    bidders = [_Bidder(pilot, number[pilot.agent]) for pilot in own]
    groups = [_Group([b for b in bidders if id(b.pilot.gains) == key], gains) for key, gains in left.items()]
    places, rounds = own[0].places, 0
    planned = np.zeros(len(places), dtype=bool)
    next_stop, detours = dict[str, int](), dict.fromkeys(agents, True)
    while True:
        best = yield Best(np.array([row for group in groups for row in group.bids(order)]))
        rounds += 1
        if best[0] == -np.inf:
            break
        winner, place = agents[-int(best[1 if order == "auction" else 0])], int(best[2])
        detours[winner], planned[place] = bool(best[3]), True
        if best[4]:
            next_stop[winner] = place
        for group in groups:
            group.award(winner, place)
    points = {pilot.agent: places[next_stop[pilot.agent]] for pilot in own if not detours[pilot.agent]}
    taken = {places[next_stop[agent]].tobytes() for agent in agents if not detours[agent]}
    picks = list[np.ndarray]()
    for agent in (agent for agent in agents if detours[agent]):
        told = np.zeros((len(bidders), 1, places.shape[1] + 1))
        for n, bidder in enumerate(bidders):
            if bidder.pilot.agent == agent:
                pick = bidder.pilot.pick(bidder.tour, left[id(bidder.pilot.gains)].value, planned, picks, taken)
                if pick is not None:
                    told[n, 0], points[agent] = [1.0, *pick], pick
        heard = (yield AllReduce(told))[0]
        rounds += 1
        if heard[0]:
            picks.append(heard[1:])
            taken.add(picks[-1].tobytes())
    return Legs(points, {bidder.pilot.agent: places[bidder.tour.stops] for bidder in bidders}, rounds)


class _Bidder:
    """An agent with its route in the course of an auction."""

    def __init__(self, pilot: Pilot, number: int) -> None:
        self.pilot, self.number, self.tour = pilot, number, pilot.tour()
        self.extra, self.slots = self.tour.extra()
        self._in_reach = pilot.in_reach()

    def next_stop(self, place: int) -> tuple[bool, bool]:
        """Once a place is put in: whether the first way-point is out of reach in this round, and is that place."""
        is_first = bool(self.slots[place] == 0)
        return not self._in_reach[place if is_first else self.tour.stops[0]], is_first

    def award(self, winner: str, place: int) -> None:
        if winner == self.pilot.agent:
            self.tour.put_in(place, int(self.slots[place]))
            self.tour.close(place)
            self.extra, self.slots = self.tour.extra()
        else:
            self.tour.close(place)
            self.extra[place] = np.inf


class _Group:
    """Agents that believe the same: what they bid is worked out for all of them at once, each row by itself."""

    def __init__(self, bidders: list[_Bidder], gains: TargetScores) -> None:
        self._bidders, self._gains = bidders, gains
        self._extra = np.array([bidder.extra for bidder in bidders])
        self._prices = np.array([[bidder.pilot.price or 0.0] for bidder in bidders])

    def bids(self, order: Order) -> list[tuple[float, ...]]:
        """For each its best bid: what decides (two numbers, the first one first), the place, and its ``next_stop``."""
        rates = (self._gains.value - self._prices) / self._extra
        places = rates.argmax(axis=1)
        rows: list[tuple[float, ...]] = []
        for n, (bidder, place) in enumerate(zip(self._bidders, places.tolist(), strict=True)):
            rate, turn = float(rates[n, place]), -float(bidder.number)
            if rate <= 0.0:
                rows.append((-np.inf, -np.inf, -1.0, 0.0, 0.0))
            else:
                rows.append((*((rate, turn) if order == "auction" else (turn, rate)), place, *bidder.next_stop(place)))
        return rows

    def award(self, winner: str, place: int) -> None:
        """A place becomes a way-point of somebody."""
        self._gains.take(place)
        for n, bidder in enumerate(self._bidders):
            bidder.award(winner, place)
            if winner == bidder.pilot.agent:
                self._extra[n] = bidder.extra
        self._extra[:, place] = np.inf
