"""Of how many others an agent takes the places into account: that bounds what one agent costs in a large team.

Measurements nearby screen off those behind them. Of the robots of one that has 255 others the nearest 64 hide the rest.
"""

import numpy as np
from jaxtyping import Float, Int

from swarmbo.spaces import Domain

IN_SIGHT = 64


def nearest(
    places: Float[np.ndarray, "k d"], others: Float[np.ndarray, "p d"], domain: Domain
) -> Int[np.ndarray, " s"]:
    """Which 64 of some places are nearest to the middle of others, in their order; all of them if they are fewer.

    Distances are those in the unit cube.

    Args:
        places: What an agent can reach, k >= 1.
        others: What it may take into account.
        domain: The box of places.
    """
    if len(others) <= IN_SIGHT:
        return np.arange(len(others))
    far = ((domain.to_unit(others) - domain.to_unit(places).mean(axis=0)) ** 2).sum(axis=1)
    return np.sort(np.argsort(far, kind="stable")[:IN_SIGHT])
