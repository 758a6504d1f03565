"""Scores against the ground truth, metrics for comparisons, and totals of traffic, costs, travel and abstentions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast, get_args

import numpy as np
from jaxtyping import Bool, Float
from msgspec import UNSET

from swarmbo.errors import ShapeError
from swarmbo.problem import Problem
from swarmbo.records import Evaluation, Goal, GroundTruth, LinkReport, Recommendation, RoundRecord, Score, Traffic

_SEARCHERS, _GENERATIONS = 64, 200


def map_rmse(mean: Float[np.ndarray, " m"], values: Float[np.ndarray, " m"]) -> float:
    """Root mean squared error of a belief's mean, against the noise-free field at the same points, in its unit. Points
    of unknown truth (NaN) do not count; NaN if there are no others.
    """
    known = _known(mean, values)
    return float(np.sqrt(np.mean((mean - values)[known] ** 2))) if known.any() else math.nan


def level_f1(mean: Float[np.ndarray, " m"], values: Float[np.ndarray, " m"], level: float) -> float:
    """F1 score of the places where a map exceeds a level, from 0 to 1; 1 if neither map nor field exceeds it anywhere.
    Points of unknown truth (NaN) do not count; NaN if there are no others.

    Source: Gotovos, Casati, Hitz & Krause 2013, Active learning for level set estimation, section 5.
    """
    known = _known(mean, values)
    predicted, actual = (mean > level) & known, values > level
    total = int(predicted.sum() + actual.sum())
    return 2.0 * int((predicted & actual).sum()) / total if total else 1.0 if known.any() else math.nan


def _known(mean: Float[np.ndarray, " m"], values: Float[np.ndarray, " m"]) -> Bool[np.ndarray, " m"]:
    """Mask of points of known truth, of two checked vectors."""
    if mean.ndim != 1 or mean.shape != values.shape or not mean.size:
        raise ShapeError(f"got shapes {mean.shape} and {values.shape}; wanted two vectors of equal length > 0")
    return np.isfinite(values)


def within_rules(truth: GroundTruth, problem: Problem, variables: Sequence[str] = ()) -> GroundTruth:
    """Truth with a maximum that no-go regions and constraints allow: its own, or the best of the truth's points or, for
    a function, of differential evolution (which also starts just beyond borders) and a local search. ``variables`` of a
    function are the coordinates of its truth; those in no factor, which the problem does not have, do not change.
    """
    domain, rng, argmax = problem.box, np.random.default_rng(0), np.array(truth.argmax, dtype=float)
    columns = [variables.index(name) for name in problem.graph.variables] if variables else slice(None)
    if not problem.regions or problem.is_allowed((peak := domain.to_unit(argmax[columns]))[None])[0]:
        return truth

    def evaluated(U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U, X = domain.snapped(np.clip(U, 0.0, 1.0)), np.tile(argmax, (len(U), 1))
        X[:, columns] = domain.from_unit(U)
        return U, np.fmax(np.where(problem.is_allowed(U), truth.value(X), -np.inf), -np.inf)  # NaN: not known

    near = [] if problem.is_field else [problem.allowed, problem.exits(peak), problem.nearest_allowed(peak)[None]]
    U, values = evaluated(np.concatenate([domain.to_unit(truth.points[:, columns]), *near]))
    best = np.argsort(-values)[:_SEARCHERS]
    U, values = U[best], values[best]
    if not problem.is_field:
        for _ in range(_GENERATIONS):
            first, second = (U[rng.integers(len(U), size=len(U))] for _ in range(2))
            moved, found = evaluated(U + rng.random((len(U), 1)) * (U[values.argmax()] - U + first - second))
            improved = found > values
            U[improved], values[improved] = moved[improved], found[improved]
    point, value = U[values.argmax()], values.max()
    if not problem.is_field:
        point, value = _climb(evaluated, point, value)
    argmax[columns] = domain.from_unit(point)
    return replace(truth, maximum=float(value), argmax=argmax, maximum_is="reference optimum")


def _climb(
    evaluated: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], point: np.ndarray, value: float
) -> tuple[np.ndarray, float]:
    """Highest point of a local search along single axes, and along all better ones together, with shrinking steps."""
    step, directions = 0.25, np.concatenate([np.eye(len(point)), -np.eye(len(point))])
    for _ in range(_SEARCHERS * _GENERATIONS // len(directions)):
        moved, found = evaluated(point + step * directions)
        combined, its_value = evaluated((point + step * directions[found > value].sum(axis=0))[None])
        moved, found = np.concatenate([moved, combined]), np.concatenate([found, its_value])
        if found.max() > value:
            point, value = moved[found.argmax()], found.max()
        else:
            step *= 0.5
    return point, value


def score_round(
    truth: GroundTruth,
    previous: RoundRecord | None,
    asked: Sequence[Evaluation],
    recommendation: Recommendation | None,
    mean: Float[np.ndarray, " m"] | None,
    means: Mapping[str, Float[np.ndarray, " m"]] | None = None,
    on_the_way: Sequence[Evaluation] = (),
) -> Score | None:
    """Score of one round. Failed measurements and locations of unknown truth do not count; None until any does.

    ``means`` are the means of agents with separate beliefs. Only simple regret includes measurements ``on_the_way``.

    Source: Daxberger & Low (2017), section 2: batch regret is a term of their R_T, total regret one of their R'_T.
    """
    places = [evaluation.location for evaluation in asked if evaluation.measurement is not None]
    stops = [stop.location for stop in on_the_way if stop.measurement is not None]
    chosen, found = _regrets(truth, places), _regrets(truth, [*places, *stops])
    earlier = None if previous is None else previous.score
    if not len(found) and earlier is None:
        return None
    believed = [] if recommendation is None else [recommendation.location]
    recommended = min(_regrets(truth, believed).tolist(), default=None)
    recommended_before = 0.0 if earlier is None else earlier.recommended_so_far
    before, least = None if earlier is None else earlier.simple_regret, min(found.tolist(), default=None)
    # if the field changes, the maximum of an earlier round does not apply to this one: what is known of this one counts
    simple_regrets = (before, least) if truth.at_round is None else (least, recommended, before)
    known = [regret for regret in simple_regrets if regret is not None]
    mean, values = mean if np.isfinite(truth.values).any() else None, truth.values
    views = None if mean is None or means is None else {agent: map_rmse(own, values) for agent, own in means.items()}
    return Score(
        simple_regret=min(known) if truth.at_round is None else known[0],
        batch_regret=min(chosen.tolist(), default=None),
        total_regret=float(chosen.sum()),
        recommendation_regret=recommended,
        map_rmse=None if mean is None else map_rmse(mean, values),
        level_f1=None if mean is None or truth.level is None else level_f1(mean, values, truth.level),
        view_rmse=views,
        recommended_so_far=0.0 if previous is None else recommended_before + (recommended or 0.0),
        unknown=len(places) - len(chosen) or UNSET,
    )


def _regrets(truth: GroundTruth, places: Sequence[Sequence[float]]) -> Float[np.ndarray, " k"]:
    regrets = truth.maximum - truth.value(np.array(places)) if places else np.empty(0)
    return regrets[np.isfinite(regrets)]


def mean_regrets(records: Sequence[RoundRecord]) -> Float[np.ndarray, " rounds"]:
    """Mean over all measurements so far of maximum minus true value, for each round; NaN before the first score.

    Measurements at reset and en route, which no method chose, do not count, nor do failed ones, nor those whose true
    value is not known.
    """
    totals = scores_of(records, "total_regret")
    sums = np.cumsum(np.where([record.round > 0 for record in records], np.nan_to_num(totals), 0.0))
    scores = [record.score if record.round else None for record in records]
    asked = [sum(evaluation.measurement is not None for evaluation in record.asked) for record in records]
    counts = np.cumsum([0 if s is None else n - (s.unknown or 0) for n, s in zip(asked, scores, strict=True)])
    is_scored = np.logical_or.accumulate(np.isfinite(totals)) & (counts > 0)
    return np.divide(sums, counts, out=np.full(len(records), np.nan), where=is_scored)


def mean_regret(records: Sequence[RoundRecord]) -> float:
    """Final cumulative regret, divided by the number of measurements in it; NaN if there is none."""
    return float(mean_regrets(records)[-1]) if records else float("nan")


Scored = Literal["simple_regret", "level_f1", "map_rmse"]
Metric = Literal[Scored, "simple_regret_over_rounds", "level_f1_over_rounds", "map_rmse_over_rounds", "mean_regret"]
METRIC_TEXT: dict[Metric, str] = {
    "simple_regret": "simple regret at the end",
    "simple_regret_over_rounds": "simple regret, mean over rounds",
    "mean_regret": "mean regret per measurement (cumulative regret / measurements)",
    "level_f1": "F1 of the area above the level at the end",
    "level_f1_over_rounds": "F1 of the area above the level, mean over rounds",
    "map_rmse": "map RMSE at the end",
    "map_rmse_over_rounds": "map RMSE, mean over rounds",
}
METRICS: tuple[Metric, ...] = tuple(METRIC_TEXT)
MORE_IS_BETTER: frozenset[Metric] = frozenset({"level_f1", "level_f1_over_rounds"})  # these have no unit either
_SCORED_BY: dict[Goal, tuple[Scored, ...]] = {
    "peak": ("simple_regret", "map_rmse"),
    "map": ("map_rmse",),
    "level": ("level_f1", "map_rmse"),
}
_OVER_ROUNDS: dict[Scored, Metric] = {of: cast(Metric, f"{of}_over_rounds") for of in get_args(Scored)}
SHORT_TEXT: dict[Metric, str] = {  # for axes
    "simple_regret": "simple regret",
    "level_f1": "F1 of the level",
    "map_rmse": "map RMSE",
    "mean_regret": "mean regret",
}
SHORT_TEXT |= {metric: f"{SHORT_TEXT[scored]}, mean over rounds" for scored, metric in _OVER_ROUNDS.items()}


def first_metric(goal: Goal, moves: bool) -> Metric:
    """Primary metric of a task; if the field changes (``moves``), over all rounds instead of the last."""
    return _OVER_ROUNDS[first_score(goal)] if moves else first_score(goal)


def first_score(goal: Goal) -> Scored:
    """Primary score of a round for a task."""
    return _SCORED_BY[goal][0]


def metrics_of(records: Sequence[RoundRecord], goal: Goal, moves: bool) -> dict[Metric, float]:
    """Known metrics of a run, mean regret for the goal ``peak`` only; if the field ``moves``, means over rounds > 0."""
    known_metrics: dict[Metric, float] = {}
    for scored in _SCORED_BY[goal]:
        values = [value for value in scores_of(records[1:] if moves else records[-1:], scored) if not math.isnan(value)]
        if values:
            known_metrics[_OVER_ROUNDS[scored] if moves else scored] = math.fsum(values) / len(values)
    if goal == "peak" and known_metrics and not math.isnan(mean := mean_regret(records)):
        known_metrics["mean_regret"] = mean
    return known_metrics


def scores_of(records: Sequence[RoundRecord], name: str) -> Float[np.ndarray, " rounds"]:
    """One score round by round, by its name in ``Score``; NaN if unknown."""
    return np.array([getattr(record.score, name, None) for record in records], dtype=float)


def agreement_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """Traffic of agreements, over all rounds."""
    return sum((record.report.traffic for record in records if record.report is not None), Traffic())


def sharing_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """Traffic of sending measurements to other agents, over all rounds."""
    return sum((record.sharing for record in records), Traffic())


def links_of(record: RoundRecord) -> LinkReport | None:
    """Report on links in a round's agreement; None without faults and deadlines."""
    return None if record.report is None else record.report.links or None


def sharing_links_of(record: RoundRecord) -> LinkReport | None:
    """Report on links while agents shared measurements in a round; None without faults."""
    return record.sharing_links if isinstance(record.sharing_links, LinkReport) else None


def links_over_rounds(
    records: Sequence[RoundRecord], links_of_record: Callable[[RoundRecord], LinkReport | None] = links_of
) -> LinkReport | None:
    """Report on links over all rounds: counts are added, and agents are named if affected in any round."""
    reports = [report for record in records if (report := links_of_record(record)) is not None]
    return sum(reports, LinkReport(ticks=0)) if reports else None


def total_cost(records: Sequence[RoundRecord]) -> float:
    """Costs of all agents over all rounds, in the unit of the outcome."""
    return math.fsum(sample.cost for record in records for sample in record.samples)


def declined(records: Sequence[RoundRecord]) -> int:
    """Number of abstentions."""
    return sum(sample.declined for record in records for sample in record.samples)


def distance_travelled(records: Sequence[RoundRecord]) -> dict[str, float]:
    """Distance of each agent over all rounds, in the unit of the locations, by the world's reports."""
    distance: dict[str, float] = {}
    for record in records:
        for sample in record.samples:
            distance[sample.agent] = distance.get(sample.agent, 0.0) + sample.distance
    return distance
