"""What a method that sees only one number per evaluation makes of a history."""

import numpy as np
from jaxtyping import Float

from swarmbo.belief.model.joint_situation import JointSituation


def seen_totals(situation: JointSituation) -> tuple[Float[np.ndarray, "t n"], Float[np.ndarray, " t"]]:
    """Evaluated points in the unit cube and their totals, in the order in which they were told.

    A total that was not told is the sum of the outcomes of all factors; NaN where one of them is missing too.

    Args:
        situation: What is known.
    """
    history = situation.history
    totals = np.where(np.isfinite(history.totals), history.totals, history.factors.sum(axis=1))
    return situation.domain.to_unit(history.X), np.where(np.isfinite(totals), totals, np.nan)


def known_totals(situation: JointSituation) -> tuple[Float[np.ndarray, "t n"], Float[np.ndarray, " t"]]:
    """The same without evaluations that failed."""
    U, y = seen_totals(situation)
    return U[np.isfinite(y)], y[np.isfinite(y)]


def n_asked(situation: JointSituation) -> int:
    """Points asked for so far, by anybody: a number that no two decisions share."""
    return len(situation.history) + len(situation.pending)
