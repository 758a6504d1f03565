"""Requirements of past failures on the next joint point, and its starting point.

A failure as a whole may be due to any factor; a failure of one factor concerns its own scope only.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.success import Requirement, SuccessGP, excess_of
from swarmbo.boundary.rng import stream

_SEARCHED = 256  # random points searched if nothing has succeeded


def requirements(situation: JointSituation, times: Sequence[TimeCorrelation] = ()) -> tuple[Requirement, ...]:
    """Requirements of past failures: one for evaluations as a whole if any failed as such, and one per failed factor.

    ``times`` are the temporal decays of factors' outcomes, if any.
    """
    failed = situation.failed
    if failed is None or not failed.any():
        return ()
    history, graph = situation.history, situation.graph
    known = np.isfinite(history.factors) | np.isfinite(history.totals)[:, None]
    whole, some = np.asarray(failed.all(axis=1)), np.asarray(failed.any(axis=1))
    place = {variable: index for index, variable in enumerate(graph.variables)}
    scopes = [tuple(place[variable] for variable in scope) for scope in graph.scopes]
    told: list[tuple[tuple[int, ...], np.ndarray, np.ndarray]] = []
    if whole.any():
        told.append((tuple(range(len(place))), whole, np.asarray(known.any(axis=1)) | (some & ~whole)))
    for factor, scope in enumerate(scopes):
        if (own := failed[:, factor] & ~whole).any():
            told.append((scope, own, known[:, factor]))
    memory = max(times, key=lambda time: time.lengthscale) if times else None
    out: list[Requirement] = []
    for columns, bad, good in told:
        rows, local = np.flatnonzero(bad | good), {column: i for i, column in enumerate(columns)}
        learned = SuccessGP.learned(
            situation.domain.to_unit(history.X[rows])[:, list(columns)],
            good[rows],
            [[local[column] for column in scope] for scope in scopes if set(scope) <= set(columns)],
            rounds=None if history.rounds is None else history.rounds[rows],
            now=situation.round,
            memory=memory,
        )
        excess = excess_of(good[rows][situation.chosen[rows]])
        out.append(Requirement.after(excess, learned, np.array(columns)))
    return tuple(out)


def reference(
    situation: JointSituation, needed: Sequence[Requirement], best: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Start and fallback: a joint point of the unit cube that is as likely to succeed as any.

    The incumbent, unless it is too likely to fail; then the likeliest evaluated point with an outcome; without one, a
    random point.
    """
    if least_margin(needed, best[None])[0] >= 0.0:
        return best
    history = situation.history
    known = np.isfinite(history.totals) | np.isfinite(history.factors).any(axis=1)
    tried = np.concatenate([best[None], situation.domain.to_unit(history.X[known])])
    if not known.any():
        rng = stream(situation.seed, "success", "search", evaluations=len(history))
        tried = np.concatenate([tried, rng.random((_SEARCHED, len(best)))])
    return tried[int(least_margin(needed, tried).argmax())].copy()


def least_margin(needed: Sequence[Requirement], U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
    """Smallest margin of joint points over the requirements."""
    return np.min([requirement.margin(U) for requirement in needed], axis=0)
