"""The state of an episode: everything that changes from round to round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float


@dataclass
class Episode:
    """Where the sensors stand.

    Args:
        seed: Of all randomness since the last reset that gave one.
        number: Episodes since that reset; each has its own randomness.
        round: Rounds that are over.
        running: Whether the episode goes on.
        spots: What each sensor is pointed at, m.
        last: Last good measurement of each sensor; NaN while there is none.
        spent_j: Energy that each has used.
        sampled: Which sensors sampled in the last round.
        failed: Which of these failed.
    """

    seed: int
    number: int
    round: int
    running: bool
    spots: Float[np.ndarray, "n 2"]
    last: Float[np.ndarray, " n"]
    spent_j: Float[np.ndarray, " n"]
    sampled: Bool[np.ndarray, " n"]
    failed: Bool[np.ndarray, " n"]
