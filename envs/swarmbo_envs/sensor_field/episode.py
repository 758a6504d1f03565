"""The state of an episode: everything that changes from round to round."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from swarmbo_envs.episodes import WorldEpisode


@dataclass
class Episode(WorldEpisode):
    """Where the sensors stand; what it has in common with those of all worlds is its base.

    Args:
        spots: What each sensor is pointed at, m.
        last: Last good measurement of each sensor; NaN while there is none.
        spent_j: Energy that each has used.
        sampled: Which sensors sampled in the last round.
        failed: Which of these failed.
        knots_mean: What the world believes of the field, for rewards: see ``Scorer``; empty with the task ``peak``.
        knots_covariance: Of that.
        score: How good that belief is; 0 with the task ``peak``.
    """

    spots: Float[np.ndarray, "n 2"]
    last: Float[np.ndarray, " n"]
    spent_j: Float[np.ndarray, " n"]
    sampled: Bool[np.ndarray, " n"]
    failed: Bool[np.ndarray, " n"]
    knots_mean: Float[np.ndarray, " k"]
    knots_covariance: Float[np.ndarray, "k k"]
    score: float
