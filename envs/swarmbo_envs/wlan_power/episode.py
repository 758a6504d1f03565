"""The state of an episode: everything that changes from round to round."""

import msgspec
import numpy as np
from jaxtyping import Bool, Float


class Episode(msgspec.Struct):
    """Where an episode stands.

    Args:
        seed: Of noise, failures and users.
        number: Of the episode with this seed.
        round: Rounds that are over.
        running: Whether agents are live.
        powers: Transmit powers (k,), dBm.
        last: Last good measurement of each agent (k,); NaN while there is none.
        totals: What the network got in each round without noise, Mbit/s; NaN where a simulation failed.
        users: Places (m, 2), m.
        present: Which users are there (m,).
    """

    seed: int
    number: int
    round: int
    running: bool
    powers: Float[np.ndarray, " k"]
    last: Float[np.ndarray, " k"]
    totals: list[float]
    users: Float[np.ndarray, "m 2"]
    present: Bool[np.ndarray, " m"]
