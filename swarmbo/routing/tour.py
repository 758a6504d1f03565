"""The route of one agent: what it takes to put a way-point in, and where it goes best."""

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.acquisition.travel import Travel, is_never

FREE = 0.5  # rounds that a way-point counts as which lies on the way


class Tour:
    """Way-points in the order in which one agent visits them, each in a round of its own.

    Args:
        agent: Whose.
        travel: How many rounds ways take.
        start: Where it is (d,); None where nobody knows: then it has no route.
        places: What may become a way-point (p, d).
        is_open: Which of these may, to this agent.
        horizon: Rounds that the route may take; the way home may take others besides, as the battery allows.

    Attributes:
        stops: The way-points so far, as indices of places.
    """

    def __init__(
        self,
        agent: str,
        travel: Travel,
        start: Float[np.ndarray, " d"] | None,
        places: Float[np.ndarray, "p d"],
        is_open: Bool[np.ndarray, " p"],
        horizon: int,
    ) -> None:
        self._agent, self._travel, self._places, self.stops = agent, travel, places, list[int]()
        self._open, self._left = is_open.copy(), float(horizon)
        # of others nobody asks how far they are: a world may take long to say so
        self._asked = np.flatnonzero(is_open)
        base = travel.base(agent)
        self._home = np.zeros(len(places))
        if start is None:
            self._open[:] = False
            return
        self._from = [self._away_from(start)]  # here, and each stop
        self._to = list[Float[np.ndarray, " p"]]()  # each stop
        self._legs = list[float]()  # rounds to each stop
        self._has_base = base is not None
        if base is not None:
            battery = float(travel.rounds_left(agent))
            self._home = unspared(self._way_to(base), self._left, battery)
            self._left = min(self._left, battery)
        # what each place adds before each stop, and behind the last one; every leg takes a round at least, which bounds
        # how many stops there can be
        most = int(min(self._left, len(places)))
        self._added = np.empty((most + 1, len(places)))
        self._added[0] = self._from[0]
        self._fitting = self._added[:1]

    @property
    def first_leg(self) -> float:
        """Rounds to the first way-point; 0 where there is none."""
        return float(self._from[0][self.stops[0]]) if self.stops else 0.0

    def close(self, place: int) -> None:
        """A place is somebody's way-point now."""
        self._open[place] = False

    def extra(self) -> Float[np.ndarray, " p"]:
        """The fewest rounds that each place adds to the route; inf where it can't be put in, ``FREE`` where it lies on
        the way.
        """
        n = len(self.stops)
        if not self._open.any():
            return np.full(len(self._places), np.inf)
        added, room = self._added[: n + 1], self._left - sum(self._legs)
        if self._has_base:
            back = np.full(added.shape, self._home[self.stops[-1]] if n else 0.0)
            back[n] = self._home  # from the last way-point
            added = np.where(added + back <= room, added, np.inf)
        self._fitting = added
        least = added.min(axis=0)
        return np.where((least <= room) & self._open, np.maximum(least, FREE), np.inf)

    def slot(self, place: int) -> int:
        """Number of stops before a place where it adds fewest rounds, as ``extra`` last had them."""
        return int(self._fitting[:, place].argmin())

    def put_in(self, place: int, slot: int) -> None:
        """Make a place a way-point, after so many others."""
        here, n = self._places[place], len(self.stops)
        self.stops.insert(slot, place)
        self._from.insert(slot + 1, self._away_from(here))
        self._to.insert(slot, self._way_to(here))
        self._legs[slot:slot] = [0.0]
        self._added[slot + 2 : n + 2] = self._added[slot + 1 : n + 1].copy()
        for at in range(slot, min(slot + 2, n + 1)):
            self._legs[at] = float(self._from[at][self.stops[at]])
            self._added[at] = self._from[at] + self._to[at] - self._legs[at]
        if slot == n:
            self._added[n + 1] = self._from[n + 1]

    def _away_from(self, here: Float[np.ndarray, " d"]) -> Float[np.ndarray, " p"]:
        rounds = np.full(len(self._places), np.inf)
        rounds[self._asked] = in_rounds(self._travel.rounds(self._agent, here[None], self._places[self._asked])[0])
        return rounds

    def _way_to(self, end: Float[np.ndarray, " d"]) -> Float[np.ndarray, " p"]:
        rounds = np.full(len(self._places), np.inf)
        told = self._travel.rounds(self._agent, self._places[self._asked], end[None])
        rounds[self._asked] = in_rounds(told[:, 0])
        return rounds


def in_rounds(told: Int[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """Rounds that ways count as: a measurement takes one also where an agent is already, and never is inf."""
    return np.where(is_never(told), np.inf, np.maximum(told, 1))


def unspared(home: Float[np.ndarray, " p"], horizon: float, battery: float) -> Float[np.ndarray, " p"]:
    """Rounds that ways home take of a route, where the battery need not last for them after its end.

    Args:
        home: Rounds from places to the base; inf where there is no way.
        horizon: Rounds that the route may take.
        battery: Rounds by which the agent has to be back.

    Returns:
        So many that a route is short enough, and leads home in time, if both fit into the fewer of these rounds.
    """
    return np.maximum(home - max(battery - horizon, 0.0), 0.0)


def in_time(
    agent: str, travel: Travel, candidates: Float[np.ndarray, "k d"], end: Float[np.ndarray, " d"], left: float
) -> Bool[np.ndarray, " k"]:
    """Places of this round from which an agent still gets somewhere.

    Args:
        agent: Who.
        travel: How many rounds ways take.
        candidates: What it can measure in this round, k >= 1.
        end: Where it has to get.
        left: Within how many rounds, this one included.

    Returns:
        Which of the candidates.
    """
    return np.asarray(travel.rounds(agent, candidates, end[None]))[:, 0] <= left - 1.0
