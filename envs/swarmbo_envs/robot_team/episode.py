"""The state of an episode: everything that changes from round to round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float


@dataclass
class Episode:
    """Where the team stands.

    Args:
        seed: Of all randomness since the last reset that gave one.
        number: Episodes since that reset; each has its own randomness.
        round: Rounds driven so far.
        running: Whether the episode goes on.
        poses: (x, y, heading) of each robot.
        last: Last good measurement of each robot; NaN while there is none.
        measured: Which of the field's sites were measured; used only where nothing lies between the sites.
        trails: Per robot, points of the path driven so far.
        samples: Per measurement so far: robot, x, y, measurement.
    """

    seed: int
    number: int
    round: int
    running: bool
    poses: Float[np.ndarray, "robots 3"]
    last: Float[np.ndarray, " robots"]
    measured: Bool[np.ndarray, " k"]
    trails: list[Float[np.ndarray, "points 2"]]
    samples: Float[np.ndarray, "n 4"]
