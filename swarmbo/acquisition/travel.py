"""Travel times of agents between places, which a world may offer for route planning."""

from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

NEVER = np.iinfo(np.int64).max // 4  # rounds to an unreachable place; sums of a few do not overflow


def is_never(rounds: Int[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Mask of unreachable places, for any large number that marks them."""
    return rounds >= 2**31 - 1


class Travel(Protocol):
    """Travel times of a world, in rounds."""

    def rounds(
        self, agent: str, origins: Float[np.ndarray, "n d"], places: Float[np.ndarray, "m d"]
    ) -> Int[np.ndarray, "n m"]:
        """Least rounds of an agent from each origin to each place (physical); 0 if already there.

        ``NEVER``, or as large a number, without a path.
        """
        ...

    def rounds_left(self, agent: str) -> int:
        """Rounds for which it can still move, ``NEVER`` if unlimited."""
        ...

    def base(self, agent: str) -> Float[np.ndarray, " d"] | None:
        """Location where it has to be back by then; None: anywhere."""
        ...
