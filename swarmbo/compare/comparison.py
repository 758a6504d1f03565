"""Methods side by side: runs grouped by problem and by method, compared seed by seed."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from swarmbo.compare.names import ProblemKey, method_labels, problem_names
from swarmbo.compare.statistics import PairedDifference, paired_difference
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.metrics.by_goal import (
    METRICS,
    MORE_IS_BETTER,
    Metric,
    Scored,
    first_metric,
    first_score,
    metrics_of,
    scores_of,
)
from swarmbo.records import Goal
from swarmbo.registry import SLOTS
from swarmbo.registry.own_code import is_own
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.reading import find_runs
from swarmbo.runs.summary import read_summary
from swarmbo.runs.world_record import read_truth, read_world

_MOST_NAMED = 6  # problems in one note


class ComparisonRow(msgspec.Struct, frozen=True):
    """One method on one problem by one metric; less is better in all but F1 scores.

    Args:
        problem: Its name.
        method: Its name; the settings in which methods differ.
        metric: Which.
        unit: Unit of its values; empty of F1 scores.
        mean: Mean over all seeds of this method.
        n_seeds: How many.
        reference: The method that it is compared to.
        difference: This method less the reference, seed by seed. None for the reference itself, and where the two have
            no seed in common or the reference was not run.
        decides: Whether it is what the goal of the problem's world is scored by in the first place.
    """

    problem: str
    method: str
    metric: Metric
    unit: str
    mean: float
    n_seeds: int
    reference: str
    difference: PairedDifference | None = None
    decides: bool = False


@dataclass(frozen=True)
class ScoreTrace:
    """One run, round by round, by what the goal of its world is scored by: simple regret, map error or F1.

    Args:
        problem: Its name.
        method: Its name.
        seed: Of the run.
        scored: By what.
        unit: Its unit.
        measurements: Attempted by the whole team up to each round, those at reset included (k,).
        values: After them (k,).
    """

    problem: str
    method: str
    seed: int
    scored: Scored
    unit: str
    measurements: list[int]
    values: list[float]


@dataclass(frozen=True)
class Comparison:
    """A table of comparisons, and what was left out of it.

    Args:
        rows: By problem, metric and method.
        traces: Of all runs in it.
        reference: The method that all others are compared to.
        notes: Runs and seeds that are not in it, and why.
    """

    rows: list[ComparisonRow]
    traces: list[ScoreTrace]
    reference: str
    notes: list[str]


@dataclass(frozen=True)
class _Run:
    path: Path
    problem: ProblemKey
    method: dict[str, dict[str, Any]]
    seed: int
    world: str
    goal: Goal
    moves: bool
    unit: str
    metrics: dict[Metric, float]
    measurements: list[int]
    values: list[float]
    code: dict[str, str]


def compare(
    paths: Iterable[Path], reference: str | None = None, against: Sequence[str] = (), level: float = 0.95
) -> Comparison:
    """Compare methods over problems.

    A problem is an environment table with a number of rounds; a method is everything else but the seed. So methods on
    one problem had the same number of rounds.

    Args:
        paths: Folders of runs, searched through.
        reference: The method that others are compared to; by default that of the first run found.
        against: Which others; by default all.
        level: Of the bootstrap intervals.

    Raises:
        RunFolderError: If there are no complete runs.
        ConfigError: If a method that is named was not run, or the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ConfigError(f"got {level}; wanted a number between 0 and 1", at="--level")
    runs, notes = _read(find_runs(list(paths)))
    if not runs:
        raise RunFolderError("no run is complete and knows the truth; nothing to compare")
    labels = method_labels([run.method for run in runs], [run.problem for run in runs])
    names = problem_names([(run.problem, run.world) for run in runs])
    values: dict[tuple[ProblemKey, str], dict[int, _Run]] = {}
    for run, label in zip(runs, labels, strict=True):
        cell = values.setdefault((run.problem, label), {})
        if run.seed in cell:
            notes.append(f"{run.path}: same problem, method and seed as {cell[run.seed].path}; left out")
        else:
            cell[run.seed] = run
    notes += _unlike(names, values)
    methods = list(dict.fromkeys(labels))
    reference = methods[0] if reference is None else reference
    for name in (reference, *against):
        if name not in methods:
            raise ConfigError(
                f"got {name!r}; wanted one of {', '.join(map(repr, methods))}", at="--reference/--against"
            )
    shown = [name for name in methods if name == reference or not against or name in against]
    rows: list[ComparisonRow] = []
    for problem, name in names.items():
        for metric in METRICS:
            base = values.get((problem, reference), {})
            for method in shown:
                cell = values.get((problem, method), {})
                row = _row(name, method, metric, cell, reference, base, level)
                if row is not None:
                    rows.append(row)
                    if row.decides and row.difference is not None and row.difference.unpaired:
                        seeds = ", ".join(map(str, row.difference.unpaired))
                        notes.append(
                            f"{name}: {method} and {reference} do not both have seeds {seeds}; not in the difference"
                        )
    traces = [
        _trace(name, method, seed, run)
        for problem, name in names.items()
        for method in shown
        for seed, run in sorted(values.get((problem, method), {}).items())
    ]
    return Comparison(rows, traces, reference, notes)


def _unlike(names: Mapping[ProblemKey, str], cells: Iterable[tuple[ProblemKey, str]]) -> list[str]:
    """A note where runs of several problems stand side by side, some of them with nothing to compare to."""
    methods_on = Counter(problem for problem, _ in cells)
    if len(names) == 1 or min(methods_on.values()) > 1:
        return []
    shown = ", ".join(itertools.islice(names.values(), _MOST_NAMED)) + (", …" if len(names) > _MOST_NAMED else "")
    return [
        f"these are runs of {len(names)} unlike problems ({shown}); methods are compared within each, and their scores "
        "mean nothing across"
    ]


def _row(
    problem: str,
    method: str,
    metric: Metric,
    cell: Mapping[int, _Run],
    reference: str,
    base: Mapping[int, _Run],
    level: float,
) -> ComparisonRow | None:
    own = {seed: run.metrics[metric] for seed, run in cell.items() if metric in run.metrics}
    other = {seed: run.metrics[metric] for seed, run in base.items() if metric in run.metrics}
    if not own:
        return None
    difference = None
    if method != reference and own.keys() & other.keys():
        difference = paired_difference(own, other, level)
    run = next(iter(cell.values()))
    unit, decides = "" if metric in MORE_IS_BETTER else run.unit, metric == first_metric(run.goal, run.moves)
    mean = sum(own.values()) / len(own)
    return ComparisonRow(problem, method, metric, unit, mean, len(own), reference, difference, decides)


def _trace(problem: str, method: str, seed: int, run: _Run) -> ScoreTrace:
    scored = first_score(run.goal)
    unit = "" if scored in MORE_IS_BETTER else run.unit
    return ScoreTrace(problem, method, seed, scored, unit, run.measurements, run.values)


def _read(paths: Sequence[Path]) -> tuple[list[_Run], list[str]]:
    runs: list[_Run] = []
    notes: list[str] = []
    for path in paths:
        folder = RunFolder.open(path)
        summary = read_summary(folder)
        if summary is None:
            notes.append(f"{path}: not complete; left out")
            continue
        if summary.score is None:
            notes.append(f"{path}: its world does not tell the truth, so it has no regret; left out")
            continue
        scenario = folder.scenario()
        key = msgspec.json.encode([scenario.environment, scenario.rounds], order="sorted").decode()
        method = {table: msgspec.to_builtins(getattr(scenario, table)) for table in SLOTS}
        world, moves, records = read_world(folder), "frames" in read_truth(folder), folder.records()
        runs.append(
            _Run(
                path=path,
                problem=(key, scenario.name),
                method=method,
                seed=scenario.seed,
                world=world.name,
                goal=world.goal,
                moves=moves,
                unit=summary.unit,
                metrics=metrics_of(records, world.goal, moves),
                measurements=list(itertools.accumulate(len(record.evaluations) for record in records)),
                values=scores_of(records, first_score(world.goal)),
                code={name: digest for name, digest in folder.versions().items() if is_own(name)},
            )
        )
    return runs, notes + _code_that_differs(runs)


def _code_that_differs(runs: Sequence[_Run]) -> list[str]:
    """Code of a user's own that was changed between runs: then they are not of one method, or not in one world."""
    notes: list[str] = []
    for name in sorted({name for run in runs for name in run.code}):
        made: dict[str, list[_Run]] = {}
        for run in runs:
            if name in run.code:
                made.setdefault(run.code[name], []).append(run)
        if len(made) > 1:
            groups = "; ".join(f"{len(same)} as {same[0].path}" for same in made.values())
            notes.append(f"{name}: its code was not the same in all runs, so they may not be of one kind: {groups}")
    return notes
