"""The state of an episode: everything that changes from round to round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass
class Episode:
    """Where the agents of a function stand.

    Args:
        seed: Of all randomness since the last reset that gave one.
        number: Episodes since that reset; each has its own randomness.
        round: Rounds that are over.
        running: Whether the episode goes on.
        setting: Value of each variable.
        last: Last good measurement of each agent; NaN while there is none.
        best: Best true value after each round; NaN while there is none.
    """

    seed: int
    number: int
    round: int
    running: bool
    setting: Float[np.ndarray, " n"]
    last: Float[np.ndarray, " agents"]
    best: list[float]
