"""What every agent expects at some points, without working anything out twice."""

from collections.abc import Hashable

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.views import PlaceBelief, Views


def means_by_agent(views: Views, X: Float[np.ndarray, "m d"]) -> dict[str, Float[np.ndarray, " m"]]:
    """Each agent's means at physical points.

    Agents that have one belief in common have one answer in common. Of different ones with equal hyper-parameters,
    which mostly hold much the same data, covariances with the points are taken once.

    Args:
        views: What the agents believe.
        X: Points (m, d), physical.

    Returns:
        Means (m,) by agent, in the unit of the outcome.
    """
    groups: dict[Hashable, dict[int, PlaceBelief]] = {}
    for belief in views.by_agent.values():
        kind = (belief.hyperparameters, belief.now) if isinstance(belief, ExactGP) else id(belief)
        groups.setdefault(kind, {})[id(belief)] = belief
    means: dict[int, Float[np.ndarray, " m"]] = {}
    for group in groups.values():
        exact = {key: belief for key, belief in group.items() if isinstance(belief, ExactGP)}
        if len(exact) > 1:
            means |= zip(exact, ExactGP.posterior_means(list(exact.values()), X), strict=True)
        else:
            means |= {key: belief.posterior_mean(X) for key, belief in group.items()}
    return {name: means[id(belief)] for name, belief in views.by_agent.items()}
