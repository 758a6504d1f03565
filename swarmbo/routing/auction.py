"""Auction of way-points: each goes to the agent with the highest bid, and into its route; and an ascent to the peak.

Each agent bids for the place with the largest gain for the team per round that the visit adds to its route. When no
route has room left, agents whose first way-point is rounds away choose measurements en route, one agent after another.
In an ascent they also choose one after another: first goals in reach before the end, then measurements en route.

Source: sequential single-item auctions with insertion (Koenig et al. 2006); here the gain is submodular.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.by_view import Chooser
from swarmbo.acquisition.targeted_variance import TargetScores, keys_of
from swarmbo.belief import PlaceBelief
from swarmbo.coordination.part import LocalView
from swarmbo.coordination.requests import AllReduce, Best, Steps
from swarmbo.coordination.schema import are_not_negative
from swarmbo.routing.pilot import Legs, Mask, Pilot, Spot, Tour, choose_in_turn

Order = Literal["auction", "sequential"]
_TURN: dict[Order, int] = {"auction": 1, "sequential": 0}  # column of a bid with minus the number of its agent
SPARE = 6.0  # rounds at the best place, after the first agent's arrival

Places = Sequence[Spot]


def auction(view: LocalView, pilots: Mapping[str, Pilot], order: Order) -> Steps[Legs]:
    """Program of a process with its agents' ``pilots``; the highest bid wins, or, if sequential, the first bidder's."""
    agents, own_pilots = view.graph.variables, [pilots[agent] for agent in view.variables]
    # agents with equal beliefs share one table of values, updated once per award
    distinct = {id(pilot.gains): pilot.gains for pilot in own_pilots}
    scores = {key: one.utility.scores(one.belief, one.places, picks=len(one.places)) for key, one in distinct.items()}
    bidders = [_Bidder(pilot, agents.index(pilot.agent)) for pilot in own_pilots]
    groups = [_Group([b for b in bidders if id(b.pilot.gains) == key], table) for key, table in scores.items()]
    places, rounds = own_pilots[0].places, 0
    planned = np.zeros(len(places), dtype=bool)
    first_stops, is_out_of_reach = dict[str, int](), dict.fromkeys(agents, True)  # in this round; True without a stop
    while True:
        rows = np.array([row for group in groups for row in group.bids(order)])
        # the largest row, lexicographically: equal rates go to the first agent, for every driver
        best = yield Best(rows, partial(_is_bid, agents, planned, order))
        rounds += 1
        # no bids: no route has room for a place whose gain exceeds its price
        if best[0] == -np.inf:
            break
        winner, place = agents[-int(best[_TURN[order]])], int(best[2])
        planned[place], is_out_of_reach[winner] = True, bool(best[3])
        if best[4]:
            first_stops[winner] = place
        for group in groups:
            group.award(winner, place)
    goals = {agent: places[first_stops[agent]] for agent in agents if not is_out_of_reach[agent]}
    points = {pilot.agent: goals[pilot.agent] for pilot in own_pilots if pilot.agent in goals}
    taken_keys = {goal.tobytes() for goal in goals.values()}
    tours = {bidder.pilot.agent: bidder.tour for bidder in bidders}
    en_route = [agent for agent in agents if agent not in goals]

    def pick(pilot: Pilot, picks: Places) -> Spot | None:
        return pilot.pick(tours[pilot.agent], scores[id(pilot.gains)].value, planned, picks, taken_keys)

    points |= yield from choose_in_turn(en_route, {pilot.agent: pilot for pilot in own_pilots}, pick, taken_keys)
    return Legs(points, {agent: places[tour.stops] for agent, tour in tours.items()}, rounds + len(en_route))


def _is_bid(
    agents: Sequence[str], planned: Mask, order: Order, row: Float[np.ndarray, " m"], bidders: frozenset[str]
) -> bool:
    """True if a row, as from ``_Group.bids``, can be the best bid of one of the ``bidders`` for an open place."""
    if row[0] == -np.inf:
        return True
    number, place = -row[_TURN[order]], row[2]
    is_theirs = number in range(len(agents)) and agents[int(number)] in bidders
    return is_theirs and place in range(len(planned)) and not planned[int(place)]


class _Bidder:
    def __init__(self, pilot: Pilot, number: int) -> None:
        self.pilot, self.number, self.tour = pilot, number, Tour(pilot)
        listed = set(keys_of(pilot.candidates))
        self._in_reach = [key in listed for key in keys_of(pilot.places)]  # in this round

    def next_stop(self, place: int) -> tuple[bool, bool]:
        """True if the first way-point is out of reach this round once ``place`` is added; True if it is ``place``."""
        is_first = self.tour.best_slot(place) == 0
        return not self._in_reach[place if is_first else self.tour.stops[0]], is_first


class _Group:
    """Agents with equal beliefs: their bids are computed together, each row independently."""

    def __init__(self, bidders: list[_Bidder], remaining: TargetScores) -> None:
        self._bidders, self._remaining = bidders, remaining
        self._added_rounds = np.array([bidder.tour.added_rounds() for bidder in bidders])
        self._prices = np.array([[bidder.pilot.price or 0.0] for bidder in bidders])

    def bids(self, order: Order) -> list[tuple[float, ...]]:
        """Best bid of each agent: the two numbers that are compared first, the place, and its ``next_stop``."""
        # gain per round that the visit adds; closed places cost inf, so their rate is 0
        rates = (self._remaining.value - self._prices) / self._added_rounds
        places = rates.argmax(axis=1)
        rows: list[tuple[float, ...]] = []
        for n, (bidder, place) in enumerate(zip(self._bidders, places.tolist(), strict=True)):
            rate, turn = float(rates[n, place]), -float(bidder.number)
            deciding = (rate, turn) if order == "auction" else (turn, rate)
            no_bid = -np.inf, -np.inf, -1.0, 0.0, 0.0
            rows.append(no_bid if rate <= 0.0 else (*deciding, place, *bidder.next_stop(place)))
        return rows

    def award(self, winner: str, place: int) -> None:
        self._remaining.take(place)
        for n, bidder in enumerate(self._bidders):
            tour = bidder.tour
            tour.exclude(place)  # before the added rounds, which are inf for excluded places
            if winner == bidder.pilot.agent:
                tour.insert(place, tour.best_slot(place))
                self._added_rounds[n] = tour.added_rounds()
        self._added_rounds[:, place] = np.inf


@dataclass(frozen=True, eq=False)
class Climber:
    """Private knowledge of one agent in an ascent: its pilot, and its choosers of a goal and of a next place."""

    pilot: Pilot
    goal: Chooser
    step: Chooser

    @cached_property
    def rounds(self) -> Float[np.ndarray, " p"]:
        """Rounds to each place; inf if it is not open, or if the rounds left are too few to go there and to base."""
        return Tour(self.pilot).added_rounds()

    def rounds_to_best(self, reached: Mask) -> float:
        """Rounds to the best place, by its belief, among those ``reached`` by any agent; inf if it cannot get there."""
        listed = np.flatnonzero(self.pilot.is_open & reached)
        best = self.goal(self.pilot.agent, self.pilot.gains.belief, self.pilot.places[listed]) if len(listed) else None
        return np.inf if best is None else float(self.rounds[listed[best]])

    def route_to_goal(self, goals: Places) -> Tour:
        """Route to the best place that it can reach before the end, except others' ``goals``; empty if none is left."""
        pilot, tour, taken = self.pilot, Tour(self.pilot), set(keys_of(np.array(goals))) if goals else set[bytes]()
        keys = keys_of(pilot.places)
        reachable = [n for n in np.flatnonzero(np.isfinite(self.rounds)).tolist() if keys[n] not in taken]
        if reachable:
            chosen = self.goal(pilot.agent, self._given(goals), pilot.places[reachable])
            if chosen is not None:
                tour.insert(reachable[chosen], 0)
        return tour

    def pick(self, tour: Tour, picks: Places, taken: set[bytes]) -> Spot | None:
        """Next measurement by ``Pilot.on_schedule``, given others' ``picks``; no schedule if the goal is in reach."""
        free = self.pilot.free_candidates(taken)
        is_there = bool(tour.stops) and self.pilot.places[tour.stops[0]].tobytes() in keys_of(free)
        choose = partial(self.step, self.pilot.agent, self._given(picks))
        return self.pilot.on_schedule(Tour(self.pilot) if is_there else tour, free, choose)

    def _given(self, others: Places) -> PlaceBelief:
        belief = self.pilot.gains.belief
        return belief.condition_on_pending(np.array(others)) if others else belief


def is_due(own: Mapping[str, Climber], rounds_left: int) -> Steps[bool]:
    """True if at most ``SPARE`` rounds would be left after the way to the best reachable place."""
    # first exchange which way-points are reachable: an unreachable best place is no reason to stop exploring
    gets_there = np.array([[np.isfinite(climber.rounds)] for climber in own.values()], dtype=float)
    reached = (yield AllReduce(gets_there, are_not_negative))[0] > 0.0
    best = yield Best(np.array([[-climber.rounds_to_best(reached)] for climber in own.values()]))
    return bool(np.isfinite(best[0]) and rounds_left <= SPARE - best[0])


def ascent(view: LocalView, own: Mapping[str, Climber]) -> Steps[Legs]:
    """Program of a process with the climbers of its ``own`` agents."""
    agents, tours, taken_keys = view.graph.variables, dict[str, Tour](), set[bytes]()
    pilots = {name: climber.pilot for name, climber in own.items()}
    places = next(iter(pilots.values())).places

    def goal(pilot: Pilot, goals: Places) -> Spot | None:
        tours[pilot.agent] = tour = own[pilot.agent].route_to_goal(goals)
        return places[tour.stops[0]] if tour.stops else None

    def step(pilot: Pilot, picks: Places) -> Spot | None:
        return own[pilot.agent].pick(tours[pilot.agent], picks, taken_keys)

    yield from choose_in_turn(agents, pilots, goal, set())
    points = yield from choose_in_turn(agents, pilots, step, taken_keys)
    return Legs(points, {agent: places[tour.stops] for agent, tour in tours.items()}, 2 * len(agents))
