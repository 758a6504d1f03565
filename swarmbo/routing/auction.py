"""Auction of way-points: one by one they go to the highest bidding agent, and into its route.

In every step each agent bids for the place with the largest information gain for the team per round that the visit adds
to its route. The highest bid of the part wins; every agent then updates the values of the other places. When no route
has room left, agents whose first way-point is rounds away choose in turn a measurement en route.

Source: sequential single-item auctions with insertion, as Koenig et al. 2006; here the gain is submodular, not a
distance.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.distance import cdist

from swarmbo.acquisition.situation import Travel
from swarmbo.acquisition.targeted_variance import TargetScores, TargetUtility, keys_of
from swarmbo.belief import PlaceBelief
from swarmbo.coordination.requests import AllReduce, Best, Steps
from swarmbo.coordination.schema import flagged
from swarmbo.coordination.view import LocalView
from swarmbo.routing.tour import Tour, in_time

_NEIGHBOURS = 64  # nearest way-points that an agent considers when it measures between them
_LOOKED_AT = 64  # places en route evaluated closely: those near the largest remaining gains

Order = Literal["auction", "sequential"]
Points = dict[str, Float[np.ndarray, " d"]]


@dataclass(frozen=True, eq=False)
class Gains:
    """Belief of an agent, and the rule by which it values measurements; ``places`` (p, d) may become way-points."""

    belief: PlaceBelief
    utility: TargetUtility
    places: Float[np.ndarray, "p d"]

    def begin(self) -> TargetScores:
        """Scores of places as way-points, while places are successively taken."""
        return self.utility.scores(self.belief, self.places, picks=len(self.places))

    def between(
        self,
        candidates: Float[np.ndarray, "k d"],
        planned: Bool[np.ndarray, " p"],
        picks: Sequence[Float[np.ndarray, " d"]],
    ) -> Float[np.ndarray, " k"]:
        """Gains of measurements beyond all way-points (``planned``) and others' next measurements (``picks``)."""
        given = np.array([*self.places[planned], *picks])
        if len(given) > _NEIGHBOURS:
            off = ((given - candidates.mean(axis=0)) ** 2).sum(axis=1)
            given = given[np.sort(np.argsort(off, kind="stable")[:_NEIGHBOURS])]
        own, k, t = self.utility, len(candidates), len(self.utility.targets)
        cache = self.belief.posterior_cache(np.concatenate([candidates, own.targets, *given[:, None]]))
        here, targets, known = np.arange(k), np.arange(k, k + t), np.arange(k + t, len(cache.mean))
        told, var = cache.cov(here, targets), cache.var[here]
        if len(given):
            across = cache.cov(known, here)
            gain = np.linalg.solve(cache.cov(known, known) + own.noise_variance * np.eye(len(given)), across)
            told, var = told - gain.T @ cache.cov(known, targets), var - np.einsum("gk,gk->k", gain, across)
        return (told**2 @ own.weights) / (np.maximum(var, 0.0) + own.noise_variance)


@dataclass(frozen=True, eq=False)
class Pilot:
    """Private knowledge of one agent in a decision.

    Args:
        agent: Its name.
        gains: Values of way-points by its belief; agents with equal beliefs may share one.
        travel: Travel times in rounds.
        start: Its position (d,), if known.
        candidates: Places that it can measure in this round (k, d), k >= 1.
        is_open: Mask of places that it may plan to measure.
        horizon: Most rounds of its route.
        price: Price of a measurement, in the unit of the field; None if it cannot abstain.
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
        """Places that may become way-points."""
        return self.gains.places

    def tour(self) -> Tour:
        """Its empty route."""
        return Tour(self.agent, self.travel, self.start, self.places, self.is_open, self.horizon)

    def in_reach(self) -> Bool[np.ndarray, " p"]:
        """Mask of places that it can measure in this round."""
        listed = set(keys_of(self.candidates))
        return np.array([key in listed for key in keys_of(self.places)])

    def pick(
        self,
        tour: Tour,
        left_over: Float[np.ndarray, " p"],
        planned: Bool[np.ndarray, " p"],
        picks: Sequence[Float[np.ndarray, " d"]],
        taken: Collection[bytes],
    ) -> Float[np.ndarray, " d"] | None:
        """Place of its next measurement: its first way-point, or one en route that keeps the schedule as far as
        possible.

        None if it abstains, or all is taken; its base if it has to return and there is nothing to measure en route.
        """
        left = self.untaken(taken)
        if tour.stops and (first := self.places[tour.stops[0]]).tobytes() in keys_of(left):
            return first
        left = self.in_time(tour, left)
        if not len(left):
            # it has to return, and there is nothing to measure en route
            return self.travel.base(self.agent)
        if len(left) > _LOOKED_AT:
            nearest = cdist(left, self.places).argmin(axis=1)
            left = left[np.sort(np.argsort(-left_over[nearest], kind="stable")[:_LOOKED_AT])]
        gains = self.gains.between(left, planned, picks)
        best = int(gains.argmax())
        if self.price is not None and not tour.stops and gains[best] <= self.price:
            return None
        return left[best]

    def untaken(self, taken: Collection[bytes]) -> Float[np.ndarray, "k d"]:
        """Candidates of this round without others' measurements."""
        return self.candidates[[key not in taken for key in keys_of(self.candidates)]]

    def in_time(self, tour: Tour, left: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "m d"]:
        """Candidates from which it can return to base, and that keep the schedule as far as possible."""
        base = self.travel.base(self.agent)
        if base is not None and len(left):
            left = left[in_time(self.agent, self.travel, left, base, self.travel.rounds_left(self.agent))]
        if tour.stops and len(left):
            rest = self.travel.rounds(self.agent, left, self.places[tour.stops[0]][None])[:, 0]
            left = left[rest <= max(tour.first_leg - 1.0, float(rest.min()))]
        return left


Pick = Callable[[Pilot, Sequence[Float[np.ndarray, " d"]]], Float[np.ndarray, " d"] | None]


class Legs(NamedTuple):
    """Result of a program for some agents of a part; ``points`` lack abstaining agents, ``rounds`` are exchanges."""

    points: dict[str, Float[np.ndarray, " d"]]
    routes: dict[str, Float[np.ndarray, "w d"]]
    rounds: int


def auction(view: LocalView, pilots: Mapping[str, Pilot], order: Order) -> Steps[Legs]:
    """Program of a process with some agents of a part; it reads the pilots of its own agents only.

    ``order``: the highest bid first, or each agent until its route is full.
    """
    agents, own = view.graph.variables, [pilots[agent] for agent in view.variables]
    number = {agent: n for n, agent in enumerate(agents)}
    left: dict[int, TargetScores] = {}
    for pilot in own:
        # agents with equal beliefs share one table of values, updated once per award
        if id(pilot.gains) not in left:
            left[id(pilot.gains)] = pilot.gains.begin()
    bidders = [_Bidder(pilot, number[pilot.agent]) for pilot in own]
    groups = [_Group([b for b in bidders if id(b.pilot.gains) == key], gains) for key, gains in left.items()]
    places, rounds = own[0].places, 0
    planned, is_won = np.zeros(len(places), dtype=bool), np.zeros(len(places), dtype=bool)
    next_stop, detours = dict[str, int](), dict.fromkeys(agents, True)
    while True:
        rows = np.array([row for group in groups for row in group.bids(order)])
        best = yield Best(rows, partial(_is_bid, agents, is_won, order))
        rounds += 1
        # no bids: no route has room for a place that is worth its price
        if best[0] == -np.inf:
            break
        winner, place = agents[-int(best[1 if order == "auction" else 0])], int(best[2])
        detours[winner], planned[place], is_won[place] = bool(best[3]), True, True
        if best[4]:
            next_stop[winner] = place
        for group in groups:
            group.award(winner, place)
    points = {pilot.agent: places[next_stop[pilot.agent]] for pilot in own if not detours[pilot.agent]}
    taken = {places[next_stop[agent]].tobytes() for agent in agents if not detours[agent]}
    tours = {bidder.pilot.agent: bidder.tour for bidder in bidders}
    left_over = {bidder.pilot.agent: left[id(bidder.pilot.gains)].value for bidder in bidders}
    late = [agent for agent in agents if detours[agent]]
    points |= yield from on_schedule(late, {pilot.agent: pilot for pilot in own}, tours, left_over, planned, taken)
    return Legs(points, {agent: places[tour.stops] for agent, tour in tours.items()}, rounds + len(late))


def on_schedule(
    agents: Sequence[str],
    own: Mapping[str, Pilot],
    tours: Mapping[str, Tour],
    left_over: Mapping[str, Float[np.ndarray, " p"]],
    planned: Bool[np.ndarray, " p"],
    taken: set[bytes],
) -> Steps[dict[str, Float[np.ndarray, " d"]]]:
    """Next measurements of agents in turn: at their first way-points, or en route to them.

    Returns:
        Places of the own ones; abstaining agents are missing.
    """

    def pick(pilot: Pilot, picks: Sequence[Float[np.ndarray, " d"]]) -> Float[np.ndarray, " d"] | None:
        return pilot.pick(tours[pilot.agent], left_over[pilot.agent], planned, picks, taken)

    return (yield from in_turn(agents, own, pick, taken))


def in_turn(agents: Sequence[str], own: Mapping[str, Pilot], pick: Pick, taken: set[bytes]) -> Steps[Points]:
    """Next measurements of agents, chosen and sent one after the other; abstaining agents are missing.

    ``pick`` chooses for an own agent, given the choices before it; ``taken`` are all choices as bytes, and grows.
    """
    picks, points = list[np.ndarray](), dict[str, np.ndarray]()
    d = next(iter(own.values())).places.shape[1] if own else 0
    for agent in agents:
        told = np.zeros((len(own), 1, 1 + d))
        for n, (name, pilot) in enumerate(own.items()):
            if name == agent and (place := pick(pilot, picks)) is not None:
                told[n, 0], points[name] = [1.0, *place], place
        heard = yield AllReduce(told, flagged(agent))
        if heard[0, 0]:
            picks.append(heard[0, 1:])
            taken.add(heard[0, 1:].tobytes())
    return points


def _is_bid(
    agents: Sequence[str],
    is_won: Bool[np.ndarray, " p"],
    order: Order,
    row: Float[np.ndarray, " m"],
    bidders: frozenset[str],
) -> bool:
    """True if a row is a valid bid of one of some agents, in the form of ``_Group.bids``, for a place still available.

    ``bidders`` are the agents whose best bid it is.
    """
    if row[0] == -np.inf:
        return True
    number, place = -row[1 if order == "auction" else 0], row[2]
    is_theirs = number in range(len(agents)) and agents[int(number)] in bidders
    return is_theirs and place in range(len(is_won)) and not is_won[int(place)]


class _Bidder:
    def __init__(self, pilot: Pilot, number: int) -> None:
        self.pilot, self.number, self.tour = pilot, number, pilot.tour()
        self.extra = self.tour.extra()
        self._in_reach = pilot.in_reach()

    def next_stop(self, place: int) -> tuple[bool, bool]:
        """After an insertion: True if the first way-point is out of reach in this round; True if it is that place."""
        is_first = self.tour.slot(place) == 0
        return not self._in_reach[place if is_first else self.tour.stops[0]], is_first

    def award(self, winner: str, place: int) -> None:
        if winner == self.pilot.agent:
            self.tour.put_in(place, self.tour.slot(place))
            self.tour.close(place)
            self.extra = self.tour.extra()
        else:
            self.tour.close(place)


class _Group:
    """Agents with equal beliefs: their bids are computed together, each row independently."""

    def __init__(self, bidders: list[_Bidder], gains: TargetScores) -> None:
        self._bidders, self._gains = bidders, gains
        self._extra = np.array([bidder.extra for bidder in bidders])
        self._prices = np.array([[bidder.pilot.price or 0.0] for bidder in bidders])

    def bids(self, order: Order) -> list[tuple[float, ...]]:
        """Best bid of each: the two deciding numbers, the place, and its ``next_stop``."""
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
        """Make a place a way-point of an agent."""
        self._gains.take(place)
        for n, bidder in enumerate(self._bidders):
            bidder.award(winner, place)
            if winner == bidder.pilot.agent:
                self._extra[n] = bidder.extra
        self._extra[:, place] = np.inf
