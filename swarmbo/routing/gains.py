"""What measurements add to the way-points of a team, as one agent believes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.acquisition.target_worth import TargetScores, TargetWorth
from swarmbo.belief import PlaceBelief

_NEIGHBOURS = 64  # way-points nearest to an agent that it takes into account when it measures between them


@dataclass(frozen=True, eq=False)
class Gains:
    """What an agent believes, and by what it values measurements.

    Args:
        belief: The agent's.
        worth: What measurements are worth.
        places: What may become a way-point (p, d), physical.
    """

    belief: PlaceBelief
    worth: TargetWorth
    places: Float[np.ndarray, "p d"]

    def begin(self) -> TargetScores:
        """What each place is worth as a way-point, while more and more of them are taken."""
        return self.worth.scores(self.belief, self.places, picks=len(self.places))

    def between(
        self,
        candidates: Float[np.ndarray, "k d"],
        planned: Bool[np.ndarray, " p"],
        picks: Sequence[Float[np.ndarray, " d"]],
        way: Float[np.ndarray, "k s d"] | None = None,
    ) -> Float[np.ndarray, " k"]:
        """What measurements add to the way-points of all, and to where others measure next.

        Args:
            candidates: Physical, k >= 1.
            planned: Which places are way-points.
            picks: Where others measure next, off their way-points (d,).
            way: What is measured on the way to each candidate, NaN where nothing; None: nothing on any.
        """
        given = np.array([*self.places[planned], *picks])
        if len(given) > _NEIGHBOURS:
            off = ((given - candidates.mean(axis=0)) ** 2).sum(axis=1)
            given = given[np.sort(np.argsort(off, kind="stable")[:_NEIGHBOURS])]
        if way is not None:
            given = given.reshape(-1, candidates.shape[1])
            belief = self.belief.condition_on_pending(given) if len(given) else self.belief
            return self.worth.with_way(belief, candidates, way)
        own, k, t = self.worth, len(candidates), len(self.worth.targets)
        cache = self.belief.posterior_cache(np.concatenate([candidates, own.targets, *given[:, None]]))
        here, targets, known = np.arange(k), np.arange(k, k + t), np.arange(k + t, len(cache.mean))
        told, var = cache.cov(here, targets), cache.var[here]
        if len(given):
            across = cache.cov(known, here)
            gain = np.linalg.solve(cache.cov(known, known) + own.noise_variance * np.eye(len(given)), across)
            told, var = told - gain.T @ cache.cov(known, targets), var - np.einsum("gk,gk->k", gain, across)
        return (told**2 @ own.weights) / (np.maximum(var, 0.0) + own.noise_variance)
