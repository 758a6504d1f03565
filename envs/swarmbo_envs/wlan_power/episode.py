"""The state of an episode: everything that changes from round to round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from swarmbo_envs.episodes import WorldEpisode


@dataclass
class Episode(WorldEpisode):
    """Where an episode stands; what it has in common with those of all worlds is its base.

    Args:
        powers: Transmit powers (k,), dBm.
        last: Last good measurement of each agent (k,); NaN while there is none.
        totals: What the network got in each round without noise, Mbit/s; NaN where a simulation failed.
        users: Places (m, 2), m.
        present: Which users are there (m,).
    """

    powers: Float[np.ndarray, " k"]
    last: Float[np.ndarray, " k"]
    totals: list[float]
    users: Float[np.ndarray, "m 2"]
    present: Bool[np.ndarray, " m"]
