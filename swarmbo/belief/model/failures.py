"""What failures so far require of the next joint point, and where it may start from.

A failure as a whole may be the fault of any factor; a failure of one factor speaks about its own scope only.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.success import Requirement, SuccessGP, excess_of
from swarmbo.boundary.rng import stream

_SEARCHED = 256  # random points looked at where nothing ever succeeded


def requirements(situation: JointSituation, times: Sequence[TimeCorrelation] = ()) -> tuple[Requirement, ...]:
    """What follows from the failures so far: one requirement for evaluations as a whole if any failed as such, and one
    for each factor that failed by itself.

    Args:
        situation: What is known.
        times: How outcomes of factors fade, if they do.
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
    """Where to start from, and to go back to: a joint point of the unit cube that will succeed if any will.

    The incumbent, unless that is too likely to fail; then the evaluated point of which something came that is least so;
    where nothing came of any, a random one.

    Args:
        situation: What is known.
        needed: What the point must meet.
        best: The incumbent.
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
    """By how much joint points exceed the requirement that they are nearest to missing."""
    return np.min([requirement.margin(U) for requirement in needed], axis=0)
