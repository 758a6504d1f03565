"""From the places that an agent can reach to the few that the agents bargain over.

The rule: half of the list by greedy batch UCB (each pick has the highest mean + sqrt(beta variance), or what else a
place is worth, once the picks before it are taken as measured, so the list is spread out), the rest by plain UCB (so
that the list is dense where the promise is highest). The place of highest UCB is always on it.
"""

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.local_worth import Worth
from swarmbo.belief import PlaceBelief
from swarmbo.belief.views import PosteriorCache


def shortlist(belief: PlaceBelief, places: Float[np.ndarray, "k d"], size: int, worth: Worth) -> Int[np.ndarray, " s"]:
    """Indices of the shortlisted places, in the order in which they were picked; all of them in their own order, unless
    the rule wants it otherwise.

    Args:
        belief: With posterior mean and covariance.
        places: What can be reached (k, d), in physical units.
        size: How many to pick; all of them if k is smaller.
        worth: What a place is good for.
    """
    if len(places) <= size:
        listed = np.arange(len(places))
        return listed[np.argsort(-worth.rank(*belief.posterior(places)), kind="stable")] if worth.in_order else listed
    cache = belief.posterior_cache(places)
    spread = greedy_batch(cache, belief.noise_variance, size - size // 2, worth)
    upper = worth.rank(cache.mean, cache.var)
    upper[spread] = -np.inf
    dense = np.argsort(-upper, kind="stable")[: size // 2]
    return np.concatenate([spread, dense])


def greedy_batch(cache: PosteriorCache, noise_variance: float, size: int, worth: Worth) -> Int[np.ndarray, " s"]:
    """Pick places one by one, each as if those before it had been measured (GP-BUCB's rule, Desautels et al. 2014).

    Args:
        cache: Posterior over the places (k of them).
        noise_variance: Of a measurement, in squared units of the outcome.
        size: How many to pick, at most k.
        worth: What a place is good for.

    Returns:
        Indices of the picks; no place is picked twice.
    """
    everywhere = np.arange(len(cache.mean))
    var = cache.var.copy()
    score = worth.rank(cache.mean, var)
    rows = np.empty((size, len(var)))  # of the Cholesky factor of the picks' covariance, extended pick by pick
    picks: list[int] = []
    for n in range(size):
        pick = int(score.argmax())
        picks.append(pick)
        row = cache.cov(everywhere[pick : pick + 1], everywhere)[0] - rows[:n, pick] @ rows[:n]
        rows[n] = row / np.sqrt(max(var[pick], 0.0) + noise_variance)
        var = np.maximum(var - rows[n] ** 2, 0.0)
        score = worth.rank(cache.mean, var)
        score[picks] = -np.inf
    return np.array(picks)
