"""Regret: how far what was measured falls short of the best that could have been."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.metrics.field_error import level_f1, map_rmse
from swarmbo.records import Evaluation, GroundTruth, Recommendation, RoundRecord, Sample, Score


def score_round(
    truth: GroundTruth,
    previous: RoundRecord | None,
    samples: Sequence[Evaluation] | Sequence[Sample],
    recommendation: Recommendation | None,
    mean: Float[np.ndarray, " m"] | None,
    means: Mapping[str, Float[np.ndarray, " m"]] | None = None,
    on_the_way: Sequence[Evaluation] = (),
) -> Score | None:
    """The score of one round. Measurements that failed count for nothing.

    Source: Daxberger & Low (2017), section 2: batch regret is a term of their R_T, total regret one of their R'_T.

    Args:
        truth: The world's, of this round.
        previous: The round before; None for the one at reset.
        samples: What this round asked for; where agents set variables of one function, the one evaluation of it.
        recommendation: The belief's maximum after this round.
        mean: The belief's mean at the truth's evaluation points (m,); None without belief.
        means: That of each agent, where each has a belief of its own.
        on_the_way: What agents measured besides: simple regret counts it, those of the batch do not.

    Returns:
        The score; None while every measurement so far has failed.
    """
    found = _places([*samples, *on_the_way])
    places = _places(samples)
    before = None if previous is None or previous.score is None else previous.score.simple_regret
    if not len(found) and before is None:
        return None
    regrets = truth.maximum - truth.value(places) if len(places) else np.empty(0)
    batch = float(regrets.min()) if len(places) else None
    recommended = None
    if recommendation is not None:
        recommended = float(truth.maximum - truth.value(np.array([recommendation.location]))[0])
    known = float((truth.maximum - truth.value(found)).min()) if len(found) else None
    if truth.at_round is not None:
        known = recommended if known is None else known  # who did not look has what the belief says
        before = before if known is None else None  # the maximum of an earlier round is not this one's
    so_far = [regret for regret in (before, known) if regret is not None]
    return Score(
        simple_regret=min(so_far),
        batch_regret=batch,
        total_regret=float(regrets.sum()),
        recommendation_regret=recommended,
        map_rmse=None if mean is None else map_rmse(mean, truth.values),
        level_f1=None if mean is None or truth.level is None else level_f1(mean, truth.values, truth.level),
        view_rmse=None if means is None else {agent: map_rmse(own, truth.values) for agent, own in means.items()},
        recommended_so_far=0.0 if previous is None else _recommended_until(previous) + (recommended or 0.0),
    )


def _places(samples: Sequence[Evaluation | Sample]) -> Float[np.ndarray, "n d"]:
    return np.array([sample.location for sample in samples if sample.measurement is not None])


def _recommended_until(record: RoundRecord) -> float:
    return 0.0 if record.score is None else record.score.recommended_so_far


def simple_regret(records: Sequence[RoundRecord]) -> Float[np.ndarray, " rounds"]:
    """Maximum less the best true value measured so far, for each round; NaN where it is unknown."""
    return np.array([np.nan if record.score is None else record.score.simple_regret for record in records])


def cumulative_regret(records: Sequence[RoundRecord]) -> Float[np.ndarray, " rounds"]:
    """Sum over all measurements so far of maximum less true value, for each round.

    The measurements at reset and on the way, which no method chose, do not count, nor do those that failed. NaN from
    the first round on that has measurements but no score.
    """
    return np.cumsum([_total_regret(record) for record in records])


def mean_regret(records: Sequence[RoundRecord]) -> float:
    """Cumulative regret at the end, divided by the number of measurements it sums over; NaN if there is none."""
    count = sum(sample.measurement is not None for record in records[1:] for sample in record.asked)
    return float(cumulative_regret(records)[-1]) / count if count else float("nan")


def _total_regret(record: RoundRecord) -> float:
    if record.round == 0 or all(sample.measurement is None for sample in record.asked):
        return 0.0  # also before the first success, when there is no score yet
    return float("nan") if record.score is None else record.score.total_regret
