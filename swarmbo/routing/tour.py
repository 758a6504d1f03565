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
        horizon: Rounds that the route may take.

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
        self._asked = np.flatnonzero(is_open)  # of others nobody asks how far they are
        base = travel.base(agent)
        self._home = np.zeros(len(places))
        if start is None:
            self._open[:] = False
            return
        self._from = [self._away_from(start)]  # here, and each stop
        self._to = list[Float[np.ndarray, " p"]]()  # each stop
        if base is not None:
            self._left = min(self._left, float(travel.rounds_left(agent)))
            self._home = self._way_to(base)

    @property
    def first_leg(self) -> float:
        """Rounds to the first way-point; 0 where there is none."""
        return float(self._from[0][self.stops[0]]) if self.stops else 0.0

    def close(self, place: int) -> None:
        """A place is somebody's way-point now."""
        self._open[place] = False

    def extra(self) -> tuple[Float[np.ndarray, " p"], Int[np.ndarray, " p"]]:
        """The fewest rounds that each place adds to the route, and where it would then be put in.

        Returns:
            Rounds, inf where it can't be put in; ``FREE`` where it lies on the way. How many stops come before it.
        """
        n, t = len(self.stops), len(self._places)
        if not self._open.any():
            return np.full(t, np.inf), np.zeros(t, dtype=int)
        legs = [self._from[i][stop] for i, stop in enumerate(self.stops)]
        added = np.array([self._from[i] + self._to[i] - legs[i] for i in range(n)] + [self._from[n]])
        back = np.full((n + 1, t), self._home[self.stops[-1]] if n else 0.0)
        back[n] = self._home  # from the last way-point
        added = np.where((sum(legs) + added + back <= self._left) & self._open, added, np.inf)
        slots = added.argmin(axis=0)
        return np.maximum(added[slots, np.arange(t)], FREE), slots

    def put_in(self, place: int, slot: int) -> None:
        """Make a place a way-point, after so many others."""
        here = self._places[place]
        self.stops.insert(slot, place)
        self._from.insert(slot + 1, self._away_from(here))
        self._to.insert(slot, self._way_to(here))

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
    """What ways count as: a measurement takes a round also where one is already, and never is inf."""
    return np.where(is_never(told), np.inf, np.maximum(told, 1))


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
