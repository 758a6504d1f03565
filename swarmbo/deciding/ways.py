"""Where agents in a field measure on their ways, as they tell one another."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.acquisition.travel import OnTheWay
from swarmbo.boundary.values import short
from swarmbo.errors import ShapeError

Place = tuple[float, ...]
Ways = tuple[tuple[Place, ...], ...]  # for each candidate what is passed, in turn


def checked_ways(ways: Sequence[ArrayLike], n_candidates: int, n_dims: int) -> Ways:
    """What is measured on the way to each candidate.

    Args:
        ways: For each of them places (m, d), in turn; rows that are NaN as a whole are none.
        n_candidates: How many there are.
        n_dims: Coordinates of a place.

    Raises:
        ShapeError: If there is not one way for each candidate, or something is no place.
    """
    if len(ways) != n_candidates:
        raise ShapeError(f"on_the_way: got {len(ways)} ways; wanted one for each of {n_candidates} candidates")
    return tuple(_checked(way, n_dims) for way in ways)


def _checked(way: ArrayLike, n_dims: int) -> tuple[Place, ...]:
    wanted = f"on_the_way: got {short(way)}; wanted finite numbers (m, {n_dims}), or NaN for a whole place"
    try:
        told = np.asarray(way, dtype=float)
    except (TypeError, ValueError) as error:
        raise ShapeError(wanted) from error
    if told.size == 0:
        return ()
    if told.shape != (len(told), n_dims):
        raise ShapeError(wanted)
    places = told[~np.isnan(told).all(axis=1)]
    if not np.isfinite(places).all():
        raise ShapeError(wanted)
    return tuple(map(tuple, places.tolist()))


class SaidWays:
    """An ``OnTheWay`` that knows of each agent's candidates what it said of them, and of no other place.

    Args:
        said: For each agent its candidates, and where it measures on the way to each.
        name: Whose side this is.
        own: Where that agent measures on any of its ways, if it knows; of account where it said so of its candidates.
    """

    def __init__(
        self, said: Mapping[str, tuple[Sequence[Place], Ways]], name: str = "", own: OnTheWay | None = None
    ) -> None:
        self._said = {agent: dict(zip(places, ways, strict=True)) for agent, (places, ways) in said.items()}
        self._name, self._own = name, own if name in said else None

    def __call__(
        self, agent: str, origin: Float[np.ndarray, " d"], places: Float[np.ndarray, "m d"]
    ) -> Float[np.ndarray, "m k d"]:
        """As a world says it; ``origin`` is where the agent stood when it said so, or anywhere on its own ways."""
        if agent == self._name and self._own is not None:
            return self._own(agent, origin, places)
        known = self._said.get(agent, {})
        ways = [known.get(tuple(place), ()) for place in places.tolist()]
        out = np.full((len(ways), max(map(len, ways), default=0), places.shape[1]), np.nan)
        for row, way in zip(out, ways, strict=True):
            row[: len(way)] = np.array(way).reshape(-1, places.shape[1])
        return out
