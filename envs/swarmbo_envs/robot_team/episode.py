"""The state of an episode: everything that changes from round to round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from swarmbo_envs.episodes import WorldEpisode


@dataclass
class Episode(WorldEpisode):
    """Where the team stands; what it has in common with those of all worlds is its base.

    Args:
        poses: (x, y, heading) of each robot.
        last: Last good measurement of each robot; NaN while there is none.
        measured: Which of the field's sites were measured; used only where nothing lies between the sites.
        trails: Per robot, points of the path driven so far.
        samples: Per measurement so far: robot, x, y, measurement.
        on_the_way: Per measurement on the way so far: robot, x, y, measurement.
        batteries: Seconds of driving that each robot has left; infinite without batteries.
        bases: Where each loads.
        engine: Per robot, the state of the engine that moves it; no columns without one.
    """

    poses: Float[np.ndarray, "robots 3"]
    last: Float[np.ndarray, " robots"]
    measured: Bool[np.ndarray, " k"]
    trails: list[Float[np.ndarray, "points 2"]]
    samples: Float[np.ndarray, "n 4"]
    on_the_way: Float[np.ndarray, "m 4"]
    batteries: Float[np.ndarray, " robots"]
    bases: Float[np.ndarray, "robots 2"]
    engine: Float[np.ndarray, "robots n"]
