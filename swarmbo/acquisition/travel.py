"""How long agents that move take between places: what a world may offer to those who plan routes."""

from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

NEVER = np.iinfo(np.int64).max // 4  # rounds to a place that an agent can't get to; sums of a few don't overflow


def is_never(rounds: Int[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Whether there is no way, whatever large number stands for that."""
    return rounds >= 2**31 - 1


class Travel(Protocol):
    """How many rounds ways take, as the world has it."""

    def rounds(
        self, agent: str, origins: Float[np.ndarray, "n d"], places: Float[np.ndarray, "m d"]
    ) -> Int[np.ndarray, "n m"]:
        """The fewest rounds in which an agent gets from each origin to each place: 0 where it is there already, and
        ``NEVER``, or as large a number, where there is no way.

        Args:
            agent: Who.
            origins: Physical.
            places: Physical.
        """
        ...

    def rounds_left(self, agent: str) -> int:
        """For how many rounds it can still move, ``NEVER`` where nothing ends that."""
        ...

    def base(self, agent: str) -> Float[np.ndarray, " d"] | None:
        """Where it has to be back by then; None: anywhere."""
        ...
