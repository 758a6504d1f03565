"""What a method that sees only one number per evaluation makes of a history."""

from typing import Literal, NamedTuple

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


class Trial(NamedTuple):
    """An evaluation as peers that keep trials hear of it.

    Args:
        point: In the unit cube.
        status: Whether its total is known, will never be, or is still to come.
        total: NaN where it is not known.
    """

    point: list[float]
    status: Literal["complete", "failed", "running"]
    total: float


def trials(situation: JointSituation) -> list[Trial]:
    """What a peer that is told all again for each decision is told: what came back, in order, then what is pending.

    An evaluation of which some factors are still to come, and so its total, is out.
    """
    U, y = seen_totals(situation)
    awaited = situation.history.awaited
    partly = np.zeros(len(y), dtype=bool) if awaited is None else awaited.any(axis=1) & ~np.isfinite(y)
    out = np.concatenate([situation.domain.to_unit(situation.pending), U[partly]])
    told = [
        Trial(np.clip(u, 0.0, 1.0).tolist(), "complete" if np.isfinite(total) else "failed", total)
        for u, total in zip(U[~partly], y[~partly].tolist(), strict=True)
    ]
    return told + [Trial(np.clip(u, 0.0, 1.0).tolist(), "running", np.nan) for u in out]


def n_asked(situation: JointSituation) -> int:
    """Points asked for so far, by anybody: a number that no two decisions share."""
    return len(situation.history) + len(situation.pending)
