"""What came out of a run, as one record."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from swarmbo.boundary.html import html_table
from swarmbo.errors import RunFolderError
from swarmbo.metrics import (
    agreement_traffic,
    declined,
    distance_travelled,
    links_over_rounds,
    mean_regret,
    sharing_links_of,
    sharing_traffic,
    total_cost,
)
from swarmbo.metrics.by_goal import metrics_of
from swarmbo.records import (
    TRUE_MAXIMUM,
    Goal,
    GroundTruth,
    Labels,
    LinkReport,
    Recommendation,
    RoundRecord,
    Score,
    Traffic,
)
from swarmbo.runs.folder import RunFolder, Timing
from swarmbo.runs.references import References
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.scopes_in_use import ScopeInUse


class Summary(msgspec.Struct, frozen=True):
    """The end of a run. Written last: a folder that has it is complete.

    Args:
        name: Of the scenario.
        seed: Of the scenario.
        rounds: Rounds that were run after the one at reset; fewer than the scenario's if the world ended before.
        measurements: Measurements that succeeded, those at reset included; of joint points one each.
        failures: Measurements that failed.
        best: The largest measurement of all rounds, and where.
        recommendation: The belief's maximum.
        score: The last round's, where the truth is known.
        mean_regret: Mean over all chosen measurements of maximum less true value.
        maximum: The field's true maximum, where it is known; in the last round, of a field that changes.
        distance: Distance travelled by each agent.
        agreement: Traffic of agreeing on where to measure.
        sharing: Traffic of sharing measurements.
        seconds: Spent in rounds, by the wall clock.
        unit: Unit of the outcome.
        axis_unit: Unit of the locations.
        is_joint: Whether agents set variables of one function, instead of each measuring a place of its own.
        source: What was measured and what by, where the world says: what all rounds have in common.
        references: Best true value that simple ways find within as many rounds, by name, where the world can tell.
        declined: How often an agent declined to measure.
        cost: Of all measurements and ways to them, in the unit of the outcome.
        late_mean: Mean measurement of joint points over the last ``late_rounds`` rounds: what counts where the function
            changes. None for agents that each measure a place, and where all of them failed.
        late_rounds: The last quarter of the rounds.
        scopes: Those that the team had learned or drawn after the last round; none where it went by its own graph.
        goal: What the field is watched for.
        moves: Whether it changes.
        metrics: What the goal is scored by; see ``swarmbo.metrics.by_goal``.
        failed_rounds: Rounds in which the world gave no outcomes at all: its step raised, or took too long.
        maximum_is: What to call ``maximum``.
        best_round: Round of the largest measurement.
        worst_off: What those get who get least, where the world can tell: of this run's best measurement, and of where
            simple ways end, by name and by what it is.
        links: How links fared in all agreements; left out where none has faults and nobody has a deadline.
        blocked: Rounds in which agents that wait for one another waited for one that is gone.
        sharing_links: How links fared while agents told one another what they measured; left out as of rounds.
        acquisition: What a place was worth by, and why, where the scenario leaves that to ``auto``; else left out.
    """

    name: str
    seed: int
    rounds: int
    measurements: int
    failures: int
    best: Recommendation | None
    recommendation: Recommendation | None
    score: Score | None
    mean_regret: float | None
    maximum: float | None
    distance: dict[str, float]
    agreement: Traffic
    sharing: Traffic
    seconds: float
    unit: str
    axis_unit: str
    is_joint: bool = False
    references: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    source: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    declined: int = 0
    cost: float = 0.0
    late_mean: float | None = None
    late_rounds: int = 0
    scopes: list[ScopeInUse] = []
    goal: Goal = "peak"
    moves: bool = False
    metrics: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    failed_rounds: int = 0
    maximum_is: str = TRUE_MAXIMUM
    best_round: int | None = None
    worst_off: dict[str, dict[str, float]] = msgspec.field(default_factory=dict[str, dict[str, float]])
    links: LinkReport | UnsetType = UNSET
    blocked: int | UnsetType = UNSET
    sharing_links: LinkReport | UnsetType = UNSET
    acquisition: str | UnsetType = UNSET

    def _repr_html_(self) -> str:
        """The closing table, for notebooks."""
        from swarmbo.runs.report import report_rows  # late: it tells of summaries

        return html_table(f"{self.name}, seed {self.seed}", report_rows(self))


def summarise(
    scenario: Scenario,
    records: Sequence[RoundRecord],
    timings: Sequence[Timing],
    truth: GroundTruth | None,
    references: References,
    scopes: Sequence[ScopeInUse],
    labels: Labels,
    acquisition: str | UnsetType,
) -> Summary:
    """The summary of a run from its records."""
    evaluations = [evaluation for record in records for evaluation in record.evaluations]
    succeeded = sum(evaluation.measurement is not None for evaluation in evaluations)
    last = records[-1]
    late_rounds = -(-last.round // 4)
    late = [record.joint.measurement for record in records[1:][-late_rounds:] if record.joint is not None]
    told = [value for value in late if value is not None]
    goal, moves = ("peak", False) if truth is None else (truth.goal, truth.at_round is not None)
    links, sharing_links = links_over_rounds(records), links_over_rounds(records, sharing_links_of)
    blocked = sum(record.report is not None and record.report.status == "blocked" for record in records)
    return Summary(
        name=scenario.name,
        seed=scenario.seed,
        rounds=last.round,
        measurements=succeeded,
        failures=len(evaluations) - succeeded,
        best=last.best,
        recommendation=last.recommendation,
        score=last.score,
        mean_regret=None if last.score is None else mean_regret(records),
        maximum=None if truth is None else float(truth.at(last.round).maximum),
        distance=distance_travelled(records),
        agreement=agreement_traffic(records),
        sharing=sharing_traffic(records),
        seconds=sum(timing.total for timing in timings),
        unit=labels.unit,
        axis_unit=labels.axis_unit,
        is_joint=any(record.joint is not None for record in records),
        references=references.values,
        worst_off=references.worst_off,
        source=_common([record.source for record in records if record.source is not None]),
        declined=declined(records),
        cost=total_cost(records),
        late_mean=float(np.mean(told)) if told else None,
        late_rounds=late_rounds,
        scopes=list(scopes),
        goal=goal,
        moves=moves,
        maximum_is=TRUE_MAXIMUM if truth is None else truth.maximum_is,
        best_round=next(
            (record.round for record in records if last.best is not None and record.best == last.best), None
        ),
        failed_rounds=sum(record.failure is not None for record in records),
        links=UNSET if links is None else links,
        blocked=UNSET if links is None else blocked,
        sharing_links=UNSET if sharing_links is None else sharing_links,
        acquisition=acquisition,
        metrics={str(metric): value for metric, value in metrics_of(records, goal, moves).items()},
    )


def _common(sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = sources[0] if sources else {}
    return {key: value for key, value in first.items() if all(source.get(key) == value for source in sources)}


def read_summary(folder: RunFolder) -> Summary | None:
    """The summary of a complete run; None while rounds of it are missing from the log.

    Raises:
        RunFolderError: If it is damaged, or cannot be read.
    """
    path = folder.path / "summary.json"
    if not path.is_file():
        return None
    try:
        summary = msgspec.json.decode(folder.read_sealed(path.name), type=Summary)
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{path}: is damaged ({error}); delete it and resume the run") from error
    return summary if len(folder.lines()) == summary.rounds + 1 else None
