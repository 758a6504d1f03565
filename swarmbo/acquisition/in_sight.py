"""Of how many others an agent takes the places into account: that bounds what one agent costs in a large team.

Measurements nearby screen off those behind them. Of the robots of one that has 255 others the nearest 64 hide the rest.
Of these, what is measured many lengthscales from all that an agent can reach tells it nothing.
"""

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief import PlaceBelief
from swarmbo.belief.at_places import AtPlaces
from swarmbo.spaces import Domain

IN_SIGHT = 64
_FEW = 16  # measurements, up to which all count
_FAINT = 1e-3  # correlation below which one counts for nothing: of the variance it takes a millionth


def told_by(
    belief: PlaceBelief, places: Float[np.ndarray, "k d"], others: Float[np.ndarray, "p d"], domain: Domain
) -> Float[np.ndarray, "s d"]:
    """Of what others measure, all that an agent takes into account.

    Args:
        belief: The agent's.
        places: What it can reach, k >= 1.
        others: Where each of the others measures, p >= 1.
        domain: The box of places.
    """
    measured = others[nearest(places, others, domain)]
    if len(measured) <= _FEW or not isinstance(belief, AtPlaces):
        return measured
    return measured[belief.prior_correlation(measured, places) >= _FAINT]


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
