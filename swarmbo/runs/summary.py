"""The record of a complete run: made at its end, and read from its folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

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
    GroundTruth,
    Labels,
    RoundRecord,
)
from swarmbo.runs.folder import RunFolder, Timing
from swarmbo.runs.references import References
from swarmbo.runs.report import Summary
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.scopes_in_use import ScopeInUse


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


def read_report(path: Path) -> Summary:
    """The summary of a complete run.

    Raises:
        RunFolderError: If there is none, or the run is not complete.
    """
    summary = read_summary(RunFolder.open(path))
    if summary is None:
        raise RunFolderError(f"{path}: this run is not complete; `swarmbo resume {path}` goes on with it")
    return summary
