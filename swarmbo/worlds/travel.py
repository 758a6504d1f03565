"""Travel times stated by an environment."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.situation import NEVER
from swarmbo.boundary.values import short
from swarmbo.errors import ShapeError


class WorldTravel:
    """Travel times of an environment with ``travel_rounds``, and optional ``rounds_left`` and ``base``."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def rounds(
        self, agent: str, origins: Float[np.ndarray, "n d"], places: Float[np.ndarray, "m d"]
    ) -> Int[np.ndarray, "n m"]:
        """Fewest rounds from each origin to each place."""
        told, wanted = np.asarray(self._world.travel_rounds(agent, origins, places)), (len(origins), len(places))
        if told.shape != wanted or told.dtype.kind not in "iu" or (told < 0).any():
            raise ShapeError(
                f"travel_rounds({agent!r}, …): got {short(told)} of shape {told.shape} and type {told.dtype}; wanted "
                f"whole numbers {wanted}, >= 0"
            )
        return told

    def rounds_left(self, agent: str) -> int:
        """Number of rounds for which an agent can still move."""
        return int(self._world.rounds_left(agent)) if hasattr(self._world, "rounds_left") else NEVER

    def base(self, agent: str) -> Float[np.ndarray, " d"] | None:
        """Location where it has to be back by then; None: anywhere."""
        place = self._world.base(agent) if hasattr(self._world, "base") else None
        return None if place is None else np.asarray(place, dtype=float)
