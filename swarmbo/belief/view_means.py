"""Means of all agents at some points, without repeated computations."""

from collections.abc import Hashable

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.views import PlaceBelief, Views


def means_by_agent(views: Views, X: Float[np.ndarray, "m d"]) -> dict[str, Float[np.ndarray, " m"]]:
    """Each agent's means (m,) at physical points (m, d), in the unit of the outcome.

    Agents that share a belief share the result. For beliefs with equal hyper-parameters, which mostly have common data,
    covariances with the points are computed once.
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
