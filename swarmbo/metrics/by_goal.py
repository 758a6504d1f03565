"""What methods are compared by: what the goal of their world is scored by."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

from swarmbo.metrics import mean_regret
from swarmbo.records import Goal, RoundRecord

Metric = Literal[
    "simple_regret",
    "simple_regret_over_rounds",
    "mean_regret",
    "level_f1",
    "level_f1_over_rounds",
    "map_rmse",
    "map_rmse_over_rounds",
]
METRICS: tuple[Metric, ...] = get_args(Metric)
METRIC_TEXT: dict[Metric, str] = {
    "simple_regret": "simple regret at the end",
    "simple_regret_over_rounds": "simple regret, mean over rounds",
    "mean_regret": "mean regret per measurement (cumulative regret / measurements)",
    "level_f1": "F1 of where the level is exceeded at the end",
    "level_f1_over_rounds": "F1 of where the level is exceeded, mean over rounds",
    "map_rmse": "map RMSE at the end",
    "map_rmse_over_rounds": "map RMSE, mean over rounds",
}
MORE_IS_BETTER: frozenset[Metric] = frozenset({"level_f1", "level_f1_over_rounds"})  # these have no unit either

Scored = Literal["simple_regret", "level_f1", "map_rmse"]
_SCORED_BY: dict[Goal, tuple[Scored, ...]] = {
    "peak": ("simple_regret", "map_rmse"),
    "map": ("map_rmse",),
    "level": ("level_f1", "map_rmse"),
}
_OVER_ROUNDS: dict[Scored, Metric] = {
    "simple_regret": "simple_regret_over_rounds",
    "level_f1": "level_f1_over_rounds",
    "map_rmse": "map_rmse_over_rounds",
}
SCORE_TEXT: dict[Scored, str] = {
    "simple_regret": "simple regret",
    "level_f1": "F1 of the level",
    "map_rmse": "map RMSE",
}
SHORT_TEXT: dict[Metric, str] = {
    **SCORE_TEXT,
    "mean_regret": "mean regret",
    **{metric: f"{SCORE_TEXT[scored]}, mean over rounds" for scored, metric in _OVER_ROUNDS.items()},
}  # for axes


def first_metric(goal: Goal, moves: bool) -> Metric:
    """What a goal is scored by in the first place.

    Args:
        goal: What the field is watched for.
        moves: Whether the field changes; then every round counts, else the end does.
    """
    scored = first_score(goal)
    return _OVER_ROUNDS[scored] if moves else scored


def first_score(goal: Goal) -> Scored:
    """The score of a round that counts most for a goal."""
    return _SCORED_BY[goal][0]


def metrics_of(records: Sequence[RoundRecord], goal: Goal, moves: bool) -> dict[Metric, float]:
    """What a run came to.

    Args:
        records: All its rounds.
        goal: What the field is watched for. Regret is told of those who look for the peak only.
        moves: Whether the field changes: scores are then means over the rounds that the team chose, not those of the
            last round.

    Returns:
        Only what is known; without any score nothing.
    """
    found: dict[Metric, float] = {}
    for scored in _SCORED_BY[goal]:
        known = [value for value in scores_of(records[1:] if moves else records[-1:], scored) if not math.isnan(value)]
        if known:
            found[_OVER_ROUNDS[scored] if moves else scored] = math.fsum(known) / len(known)
    if goal == "peak" and found and not math.isnan(mean := mean_regret(records)):
        found["mean_regret"] = mean
    return found


def scores_of(records: Sequence[RoundRecord], scored: Scored) -> list[float]:
    """One score round by round; NaN where it is unknown."""
    values = (None if record.score is None else getattr(record.score, scored) for record in records)
    return [math.nan if value is None else float(value) for value in values]
