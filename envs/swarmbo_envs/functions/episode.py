"""The state of an episode: everything that changes from round to round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo_envs.episodes import WorldEpisode


@dataclass
class Episode(WorldEpisode):
    """Where the agents of a function stand; what it has in common with those of all worlds is its base.

    Args:
        setting: Value of each variable.
        last: Last good measurement of each agent; NaN while there is none.
        best: Best true value after each round; NaN while there is none.
    """

    setting: Float[np.ndarray, " n"]
    last: Float[np.ndarray, " agents"]
    best: list[float]
