"""Ascent of a team to the peak: each agent goes to its best expected place within the remaining rounds.

Agents in turn send their goals, then their next measurements. Both have the largest value by the acquisition, given the
earlier messages: the goal of all way-points in reach until the end; the next place of all in reach once the goal is,
before of those that keep the schedule as far as possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.acquisition.by_view import Chooser
from swarmbo.acquisition.targeted_variance import keys_of
from swarmbo.belief import PlaceBelief
from swarmbo.coordination.requests import AllReduce, Best, Steps
from swarmbo.coordination.schema import are_not_negative, flagged
from swarmbo.coordination.view import LocalView
from swarmbo.routing.auction import Legs, Pilot, in_turn
from swarmbo.routing.tour import Tour

SPARE = 6.0  # rounds at the summit, after the first robot's arrival

Places = Sequence[Float[np.ndarray, " d"]]


@dataclass(frozen=True, eq=False)
class Climber:
    """Private knowledge of one agent in an ascent: its pilot, and its choosers of a goal and of a next place."""

    pilot: Pilot
    goal: Chooser
    step: Chooser

    @cached_property
    def rounds(self) -> Float[np.ndarray, " p"]:
        """Rounds to each way-point; inf if it cannot be reached and left in time, or not be measured."""
        return self.pilot.tour().extra()

    def rounds_to_best(self, reached: Bool[np.ndarray, " p"]) -> float:
        """Rounds to the best way-point of those ``reached`` by any agent; inf if only others reach it."""
        listed = np.flatnonzero(self.pilot.is_open & reached)
        best = self.goal(self.pilot.agent, self.pilot.gains.belief, self.pilot.places[listed]) if len(listed) else None
        return np.inf if best is None else float(self.rounds[listed[best]])

    def bound(self, goals: Places) -> Tour:
        """Route to its best way-point of those in reach until the end, without others' ``goals``; empty without one."""
        pilot, tour, taken = self.pilot, self.pilot.tour(), set(keys_of(np.array(goals))) if goals else set[bytes]()
        keys = keys_of(pilot.places)
        listed = [n for n in np.flatnonzero(np.isfinite(self.rounds)).tolist() if keys[n] not in taken]
        if listed:
            chosen = self.goal(pilot.agent, self._given(goals), pilot.places[listed])
            if chosen is not None:
                tour.put_in(listed[chosen], 0)
        return tour

    def pick(self, tour: Tour, picks: Places, taken: set[bytes]) -> Float[np.ndarray, " d"] | None:
        """Place of its next measurement; None if it abstains, or all is taken.

        ``picks`` and ``taken`` are others' measurements in this round, as arrays and as bytes.
        """
        left = self.pilot.untaken(taken)
        is_there = bool(tour.stops) and self.pilot.places[tour.stops[0]].tobytes() in keys_of(left)
        left = self.pilot.in_time(self.pilot.tour() if is_there else tour, left)
        if not len(left):
            return self.pilot.travel.base(self.pilot.agent)
        chosen = self.step(self.pilot.agent, self._given(picks), left)
        return None if chosen is None else left[chosen]

    def _given(self, others: Places) -> PlaceBelief:
        belief = self.pilot.gains.belief
        return belief.condition_on_pending(np.array(others)) if others else belief


def is_due(own: Mapping[str, Climber], left: int) -> Steps[bool]:
    """True if the path to the best reachable place takes the remaining rounds ``left``, except for those to spare."""
    # first the reachable way-points of all: an unreachable best place is no reason to stop exploring
    gets_there = np.array([[np.isfinite(climber.rounds)] for climber in own.values()], dtype=float)
    reached = (yield AllReduce(gets_there, are_not_negative))[0] > 0.0
    best = yield Best(np.array([[-climber.rounds_to_best(reached)] for climber in own.values()]))
    return bool(np.isfinite(best[0]) and left <= SPARE - best[0])


def ascent(view: LocalView, own: Mapping[str, Climber]) -> Steps[Legs]:
    """Program of a process with some agents of a part; ``own`` are the climbers of its own agents."""
    agents, goals, tours = view.graph.variables, list[np.ndarray](), dict[str, Tour]()
    places = next(iter(own.values())).pilot.places
    for agent in agents:
        told = np.zeros((len(own), 1, 1 + places.shape[1]))
        for n, (name, climber) in enumerate(own.items()):
            if name == agent:
                tours[name] = climber.bound(goals)
                told[n, 0] = [1.0, *places[tours[name].stops[0]]] if tours[name].stops else told[n, 0]
        heard = yield AllReduce(told, flagged(agent))
        goals += [row[1:] for row in heard if row[0]]
    taken = set[bytes]()
    points = yield from in_turn(
        agents,
        {name: climber.pilot for name, climber in own.items()},
        lambda pilot, picks: own[pilot.agent].pick(tours[pilot.agent], picks, taken),
        taken,
    )
    return Legs(points, {agent: places[tour.stops] for agent, tour in tours.items()}, 2 * len(agents))
