"""One agent on a route: its knowledge, costs of insertions, and its next measurement; agents choose sequentially."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.distance import cdist

from swarmbo.acquisition.situation import Travel, is_never
from swarmbo.acquisition.targeted_variance import TargetUtility, keys_of
from swarmbo.belief import PlaceBelief
from swarmbo.coordination.requests import AllReduce, Steps
from swarmbo.coordination.schema import flagged

_NEIGHBOURS = 64  # nearest way-points that an agent considers when it measures between them
_SHORTLIST = 64  # places en route whose exact gains are computed: those near the largest remaining gains
FREE = 0.5  # rounds counted for a way-point that adds none, as it lies en route
PerPlace = Float[np.ndarray, " p"]
Mask = Bool[np.ndarray, " p"]
Spot = Float[np.ndarray, " d"]
Places = Float[np.ndarray, "k d"]


class Tour:
    """Way-points of one agent in the order of its visits, each in a separate round, within ``horizon`` rounds; the
    return to base may take more, if the battery permits. Without a ``start`` there is no route.
    """

    def __init__(self, pilot: "Pilot") -> None:
        self._agent, self._travel, self._places = pilot.agent, pilot.travel, pilot.places
        self._is_open, self._rounds_left, self.stops = pilot.is_open.copy(), float(pilot.horizon), list[int]()
        # distances of closed places are not queried: a world may take long to compute them
        self._open_indices = np.flatnonzero(pilot.is_open)
        base = pilot.travel.base(pilot.agent)
        self._rounds_home = np.zeros(len(pilot.places))
        if pilot.start is None:
            self._is_open[:] = False
            return
        self._from = [self._away_from(pilot.start)]  # rounds from here, and from each stop, to every place
        self._to = list[PerPlace]()  # rounds from every place to each stop
        self._legs = list[float]()  # rounds to each stop from the one before
        if base is not None:
            # after the horizon, a return may use all rounds that the battery lasts; only rounds beyond these count
            battery = float(pilot.travel.rounds_left(pilot.agent))
            self._rounds_home = np.maximum(self._way_to(base) - max(battery - self._rounds_left, 0.0), 0.0)
            self._rounds_left = min(self._rounds_left, battery)

    @property
    def first_leg(self) -> float:
        """Rounds to the first way-point; 0 if there is none."""
        return float(self._from[0][self.stops[0]]) if self.stops else 0.0

    def exclude(self, place: int) -> None:
        """Exclude a place that is now a way-point, of this agent or of another."""
        self._is_open[place] = False

    def added_rounds(self) -> PerPlace:
        """Fewest rounds that each place adds to the route; inf if it does not fit, ``FREE`` if it lies en route."""
        n = len(self.stops)
        if not self._is_open.any():
            return np.full(len(self._places), np.inf)
        # rounds added by an insertion before each stop, and after the last one
        segments = zip(self._from[:n], self._to, self._legs, strict=True)
        added = np.array([*(away + to - leg for away, to, leg in segments), self._from[n]])
        room = self._rounds_left - sum(self._legs)
        return_rounds = np.full(added.shape, self._rounds_home[self.stops[-1]] if n else 0.0)
        return_rounds[n] = self._rounds_home  # from the last way-point
        self._fitting = np.where(added + return_rounds <= room, added, np.inf)
        least = self._fitting.min(axis=0)
        return np.where((least <= room) & self._is_open, np.maximum(least, FREE), np.inf)

    def best_slot(self, place: int) -> int:
        """Index in the route at which a place adds the fewest rounds, by the last call of ``added_rounds``."""
        return int(self._fitting[:, place].argmin())

    def insert(self, place: int, slot: int) -> None:
        """Insert a place as a way-point after ``slot`` others."""
        here = self._places[place]
        self.stops.insert(slot, place)
        self._from.insert(slot + 1, self._away_from(here))
        self._to.insert(slot, self._way_to(here))
        self._legs = [float(away[stop]) for away, stop in zip(self._from, self.stops, strict=False)]

    def _away_from(self, here: Spot) -> PerPlace:
        return self._in_rounds(self._travel.rounds(self._agent, here[None], self._places[self._open_indices])[0])

    def _way_to(self, end: Spot) -> PerPlace:
        return self._in_rounds(self._travel.rounds(self._agent, self._places[self._open_indices], end[None])[:, 0])

    def _in_rounds(self, ways: Int[np.ndarray, " a"]) -> PerPlace:
        """Rounds of ways to or from places: at least 1, for the measurement; inf without a way, or if not open."""
        rounds = np.full(len(self._places), np.inf)
        rounds[self._open_indices] = np.where(is_never(ways), np.inf, np.maximum(ways, 1))
        return rounds


@dataclass(frozen=True, eq=False)
class Gains:
    """Belief of an agent, and the rule by which it values measurements; ``places`` (p, d) may become way-points."""

    belief: PlaceBelief
    utility: TargetUtility
    places: Float[np.ndarray, "p d"]

    def given(self, candidates: Places, planned: Mask, picks: Sequence[Spot]) -> Float[np.ndarray, " k"]:
        """Gains of measurements, given all ``planned`` way-points and the next measurements of others (``picks``)."""
        visits = np.array([*self.places[planned], *picks])
        if len(visits) > _NEIGHBOURS:
            squared = ((visits - candidates.mean(axis=0)) ** 2).sum(axis=1)
            visits = visits[np.sort(np.argsort(squared, kind="stable")[:_NEIGHBOURS])]
        # one cache for all points, as each cache costs the belief a triangular solve
        utility, k, t = self.utility, len(candidates), len(self.utility.targets)
        cache = self.belief.posterior_cache(np.concatenate([candidates, utility.targets, *visits[:, None]]))
        here, targets, rows = np.arange(k), np.arange(k, k + t), np.arange(k + t, len(cache.mean))
        across, var = cache.cov(here, targets), cache.var[here]
        if len(visits):
            to_known = cache.cov(rows, here)
            gain = np.linalg.solve(cache.cov(rows, rows) + utility.noise_variance * np.eye(len(visits)), to_known)
            across, var = across - gain.T @ cache.cov(rows, targets), var - np.einsum("gk,gk->k", gain, to_known)
        return (across**2 @ utility.weights) / (np.maximum(var, 0.0) + utility.noise_variance)


@dataclass(frozen=True, eq=False)
class Pilot:
    """Private knowledge of one agent in a decision. ``candidates`` are in reach in this round, ``is_open`` marks places
    that it may plan; without a ``price`` it never abstains. Agents with equal beliefs may share ``gains``.
    """

    agent: str
    gains: Gains
    travel: Travel
    start: Spot | None
    candidates: Places
    is_open: Mask
    horizon: int
    price: float | None = None

    @property
    def places(self) -> Float[np.ndarray, "p d"]:
        """Places that may become way-points."""
        return self.gains.places

    def pick(
        self, tour: Tour, remaining: PerPlace, planned: Mask, picks: Sequence[Spot], taken: Collection[bytes]
    ) -> Spot | None:
        """Its first way-point if in reach, else by ``on_schedule``; ``remaining`` gains shortlist the candidates."""
        free = self.free_candidates(taken)
        if tour.stops and (first := self.places[tour.stops[0]]).tobytes() in keys_of(free):
            return first

        def best(places_near: Places) -> int | None:
            listed = np.arange(len(places_near))
            if len(places_near) > _SHORTLIST:
                nearest = cdist(places_near, self.places).argmin(axis=1)
                listed = np.sort(np.argsort(-remaining[nearest], kind="stable")[:_SHORTLIST])
            gains = self.gains.given(places_near[listed], planned, picks)
            is_worth_it = self.price is None or tour.stops or gains.max() > self.price
            return int(listed[gains.argmax()]) if is_worth_it else None

        return self.on_schedule(tour, free, best)

    def free_candidates(self, taken: Collection[bytes]) -> Places:
        """Candidates of this round, except locations that others measure."""
        return self.candidates[[key not in taken for key in keys_of(self.candidates)]]

    def on_schedule(self, tour: Tour, free: Places, choose: Callable[[Places], int | None]) -> Spot | None:
        """Place chosen among those that permit the return to base and keep the schedule as well as possible; None if it
        abstains. If no place permits the return, the base; None without a base.
        """
        base = self.travel.base(self.agent)
        if base is not None and len(free):
            # this round's measurement is one of the rounds left
            return_rounds = np.asarray(self.travel.rounds(self.agent, free, base[None]))[:, 0]
            free = free[return_rounds <= self.travel.rounds_left(self.agent) - 1.0]
        if not len(free):
            return base
        if tour.stops:
            remaining = self.travel.rounds(self.agent, free, self.places[tour.stops[0]][None])[:, 0]
            free = free[remaining <= max(tour.first_leg - 1.0, float(remaining.min()))]
        chosen = choose(free)
        return None if chosen is None else free[chosen]


Points = dict[str, Spot]
Pick = Callable[[Pilot, Sequence[Spot]], Spot | None]


class Legs(NamedTuple):
    """Next measurements (of agents that do not abstain) and routes of a process's own agents; number of exchanges."""

    points: Points
    routes: dict[str, Float[np.ndarray, "w d"]]
    rounds: int


def choose_in_turn(agents: Sequence[str], own: Mapping[str, Pilot], pick: Pick, taken: set[bytes]) -> Steps[Points]:
    """Next measurements of own agents, which ``pick`` sequentially; all agents' choices join ``taken``."""
    picks, points = list[np.ndarray](), dict[str, np.ndarray]()
    d = next(iter(own.values())).places.shape[1] if own else 0
    for agent in agents:
        own_choices = np.zeros((len(own), 1, 1 + d))
        for n, (name, pilot) in enumerate(own.items()):
            if name == agent and (place := pick(pilot, picks)) is not None:
                own_choices[n, 0], points[name] = [1.0, *place], place
        # a sum with one author: others add rows of zeros
        choice = yield AllReduce(own_choices, flagged(agent))
        if choice[0, 0]:
            picks.append(choice[0, 1:])
            taken.add(choice[0, 1:].tobytes())
    return points
