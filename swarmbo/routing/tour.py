"""Route of one agent: costs of insertions, and their best positions."""

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.acquisition.situation import Travel, is_never

FREE = 0.5  # rounds that a way-point en route counts as


class Tour:
    """Way-points in the order in which one agent visits them, each in a separate round.

    The route takes at most ``horizon`` rounds; the return to base may take more, if the battery permits. With an
    unknown ``start`` there is no route.

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
        # distances of other places are not queried: a world may take long to compute them
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
        # costs of each place before each stop, and after the last one; every leg takes at least a round, which bounds
        # the number of stops
        most = int(min(self._left, len(places)))
        self._added = np.empty((most + 1, len(places)))
        self._added[0] = self._from[0]
        self._fitting = self._added[:1]

    @property
    def first_leg(self) -> float:
        """Rounds to the first way-point; 0 without one."""
        return float(self._from[0][self.stops[0]]) if self.stops else 0.0

    def close(self, place: int) -> None:
        """Exclude a place that has become a way-point."""
        self._open[place] = False

    def extra(self) -> Float[np.ndarray, " p"]:
        """Fewest rounds that each place adds to the route; inf if it does not fit, ``FREE`` if it lies en route."""
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
        """Number of stops before a place at its best position, by the last ``extra``."""
        return int(self._fitting[:, place].argmin())

    def put_in(self, place: int, slot: int) -> None:
        """Insert a place as a way-point after ``slot`` others."""
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
    """Rounds that paths count as: at least one for a measurement, inf if unreachable."""
    return np.where(is_never(told), np.inf, np.maximum(told, 1))


def unspared(home: Float[np.ndarray, " p"], horizon: float, battery: float) -> Float[np.ndarray, " p"]:
    """Rounds of returns to base that count towards a route: those that the battery does not cover after its end.

    A route is short enough, and leads home in time, if both fit into the smaller of ``horizon`` and ``battery``.

    Args:
        home: Rounds from places to the base; inf without a path.
        horizon: Rounds that the route may take.
        battery: Rounds by which the agent has to be back.
    """
    return np.maximum(home - max(battery - horizon, 0.0), 0.0)


def in_time(
    agent: str, travel: Travel, candidates: Float[np.ndarray, "k d"], end: Float[np.ndarray, " d"], left: float
) -> Bool[np.ndarray, " k"]:
    """Mask of this round's candidates from which an agent reaches ``end`` within ``left`` rounds, this one included."""
    return np.asarray(travel.rounds(agent, candidates, end[None]))[:, 0] <= left - 1.0
