"""Comparison of methods: runs grouped by problem and by method, compared seed by seed."""

import itertools
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from swarmbo import metrics as scores
from swarmbo.boundary.values import flat
from swarmbo.compare.statistics import PairedDifference, paired_difference
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.graph.factor_graph import grouped
from swarmbo.records import Goal
from swarmbo.registry import SLOTS, is_user_code
from swarmbo.runs.policies import policy_table
from swarmbo.runs.reading import Run, find_runs, read_each
from swarmbo.runs.states import read_truth

ProblemKey = tuple[str, str]  # environment table, rounds and limits as JSON, name of the scenario
_Tables = Mapping[str, Mapping[str, Any]]
_Cells = dict[tuple[ProblemKey, str], "dict[int, ScoredRun]"]  # runs of a method on a problem, by seed
_MISSING = object()
_MOST_NAMED = 6  # problems in one note
_METHOD_KEYS = ("initial", "start", "step_limit", "safe", "step_timeout_s", "when_step_fails")  # outside tables


class ComparisonRow(msgspec.Struct, frozen=True):
    """One method on one problem in one metric. Less is better, except for F1 scores, which have no unit.

    ``difference`` is this method minus the reference, seed by seed; None for the reference itself, and without common
    seeds. ``decides`` is True for the primary metric of the problem's task. ``values`` has the method's scores by seed.
    """

    problem: str
    method: str
    metric: scores.Metric
    unit: str
    mean: float
    n_seeds: int
    reference: str
    difference: PairedDifference | None = None
    decides: bool = False
    values: dict[int, float] = {}


@dataclass(frozen=True)
class ScoredRun:
    """A complete run in a comparison.

    Args:
        path: Its folder.
        problem: Its environment table, rounds, no-go regions and constraints as JSON, and the name of its scenario.
        method: Settings that make its method, by table; keys outside tables are under an empty name.
        seed: Seed of the run.
        world: Name of the environment.
        goal: Task of the field; ``peak`` for a function.
        moves: True if the field changes over time.
        unit: Unit of an outcome.
        metrics: Final scores, by metric.
        measurements: Number of measurements attempted until each round.
        values: Score of its task after each round.
        code: Digests of the user code that it ran, by name.
        seconds: Wall time, s.
        busy: Share of the workers' time in evaluations, 0 to 1; None without workers.
    """

    path: Path
    problem: ProblemKey
    method: dict[str, dict[str, Any]]
    seed: int
    world: str
    goal: Goal
    moves: bool
    unit: str
    metrics: dict[scores.Metric, float]
    measurements: list[int]
    values: list[float]
    code: dict[str, str]
    seconds: float
    busy: float | None


@dataclass(frozen=True)
class Comparison:
    """A table of methods compared with the ``reference``; its bootstrap intervals have the confidence ``level``.

    ``runs`` are the compared runs by problem and method, sorted by seed. ``notes`` name the runs left out, and why.
    """

    rows: list[ComparisonRow]
    runs: dict[tuple[str, str], list[ScoredRun]]
    reference: str
    notes: list[str]
    level: float = 0.95


def compare(
    paths: Iterable[Path], reference: str | None = None, against: Sequence[str] = (), level: float = 0.95
) -> Comparison:
    """Compare methods over problems.

    A problem is an environment table, rounds, no-go regions and constraints; a method all other keys but the seed.

    Args:
        paths: Folders of runs, searched recursively.
        reference: The method that others are compared to; by default the method of the first run found.
        against: Methods that are compared to ``reference``; by default all others.
        level: Confidence level of the bootstrap intervals.

    Raises:
        RunFolderError: If there are no complete runs.
        ConfigError: If a named method was not run, or the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ConfigError(f"got {level}; wanted a number between 0 and 1", at="--level")
    runs, unreadable = read_each(find_runs(list(paths)), _scored_run)
    notes = [*(f"{why}; left out" for why in unreadable), *_notes_on_changed_code(runs)]
    if not runs:
        raise RunFolderError(f"no run is left, so there is nothing to compare: {'; '.join(notes[:_MOST_NAMED])}")
    labels = method_labels([run.method for run in runs], [run.problem for run in runs])
    names = problem_names([(run.problem, run.world) for run in runs])
    cells = _Cells()
    for run, label in zip(runs, labels, strict=True):
        cell = cells.setdefault((run.problem, label), {})
        if run.seed in cell:
            notes.append(f"{run.path}: same problem, method and seed as {cell[run.seed].path}; left out")
        else:
            cell[run.seed] = run
    notes += _note_on_problems(names, cells)
    methods = list(dict.fromkeys(labels))
    reference = methods[0] if reference is None else reference
    if unknown := [name for name in (reference, *against) if name not in methods]:
        wanted = f"wanted one of {', '.join(map(repr, methods))}"
        raise ConfigError(f"got {unknown[0]!r}; {wanted}", at="--reference/--against")
    methods = [name for name in methods if name == reference or not against or name in against]
    rows = _rows(cells, names, methods, reference, level)
    for row in rows:
        if row.decides and row.difference is not None and row.difference.unpaired:
            seeds = ", ".join(map(str, row.difference.unpaired))
            both = f"{row.method} and {reference} do not both have seeds {seeds}"
            notes.append(f"{row.problem}: {both}; not in the difference")
    compared = dict[tuple[str, str], list[ScoredRun]]()
    for (problem, name), method in itertools.product(names.items(), methods):
        if cell := cells.get((problem, method)):
            compared[name, method] = [cell[seed] for seed in sorted(cell)]
    return Comparison(rows, compared, reference, notes, level)


def _rows(
    cells: _Cells, names: Mapping[ProblemKey, str], methods: Sequence[str], reference: str, level: float
) -> list[ComparisonRow]:
    """Rows of all problems, by metric and method; a method without a value has no row."""
    rows: list[ComparisonRow] = []
    for problem, name in names.items():
        reference_runs = cells.get((problem, reference), {})
        for metric, method in itertools.product(scores.METRICS, methods):
            cell = cells.get((problem, method), {})
            own = {seed: run.metrics[metric] for seed, run in cell.items() if metric in run.metrics}
            other = {seed: run.metrics[metric] for seed, run in reference_runs.items() if metric in run.metrics}
            if not own:
                continue
            has_pairs = method != reference and own.keys() & other.keys()
            difference = paired_difference(own, other, level) if has_pairs else None
            run = next(iter(cell.values()))
            unit = "" if metric in scores.MORE_IS_BETTER else run.unit
            decides = metric == scores.first_metric(run.goal, run.moves)
            mean = sum(own.values()) / len(own)
            rows.append(ComparisonRow(name, method, metric, unit, mean, len(own), reference, difference, decides, own))
    return rows


def _note_on_problems(names: Mapping[ProblemKey, str], cells: Iterable[tuple[ProblemKey, str]]) -> list[str]:
    """Note if runs of several problems are compared, some of them with only one method."""
    methods_on = Counter(problem for problem, _ in cells)
    if len(names) == 1 or min(methods_on.values()) > 1:
        return []
    shown = ", ".join(itertools.islice(names.values(), _MOST_NAMED)) + (", …" if len(names) > _MOST_NAMED else "")
    return [
        f"these are runs of {len(names)} different problems ({shown}); methods are compared within each, and scores of "
        "different problems are not comparable"
    ]


def _scored_run(run: Run) -> ScoredRun:
    """Scores of a complete run; a RunFolderError if it has none."""
    scenario, summary = run.scenario, run.summary
    if summary is None or summary.score is None:
        why = "all evaluations failed" if summary and summary.best is None else "no ground truth, so no score"
        raise RunFolderError(f"{run.path}: {why if summary else 'not complete'}")
    settings = msgspec.to_builtins(scenario)
    limits = {name: settings[name] for name in ("no_go", "constraints") if settings.get(name)}
    encoded = msgspec.json.encode([scenario.environment, scenario.rounds, limits])
    key = json.dumps(json.loads(encoded, parse_float=_whole_number), sort_keys=True)
    method = {table: msgspec.to_builtins(getattr(scenario, table)) for table in SLOTS}
    workers = scenario.workers
    method["workers"] = {"kind": "one by one" if workers is None else f"{workers.count} workers, {workers.mode}"}
    method["policy"] = {"kind": "team"} if scenario.policy is None else policy_table(scenario.policy)
    method[""] = {name: settings[name] for name in _METHOD_KEYS if settings.get(name) is not None}
    world, records, moves = run.world, run.records, "frames" in read_truth(run.folder)
    return ScoredRun(
        path=run.path,
        problem=(key, scenario.name),
        method=method,
        seed=scenario.seed,
        world=world.name,
        goal=world.goal,
        moves=moves,
        unit=summary.unit,
        metrics=scores.metrics_of(records, world.goal, moves),
        measurements=list(itertools.accumulate(len(record.evaluations) for record in records)),
        values=scores.scores_of(records, scores.first_score(world.goal)).tolist(),
        seconds=summary.seconds,
        busy=summary.workers.busy if summary.workers else None,
        code={name: digest for name, digest in run.folder.versions().items() if is_user_code(name)},
    )


def _whole_number(number: str) -> float:
    """Number from JSON text; 1.0 becomes the integer 1, because both are the same setting."""
    value = float(number)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _notes_on_changed_code(runs: Sequence[ScoredRun]) -> list[str]:
    """Notes on user code that was changed between runs, so that their methods or worlds may differ."""
    notes: list[str] = []
    for name in sorted({name for run in runs for name in run.code}):
        by_digest = grouped((run.code[name], run) for run in runs if name in run.code)
        if len(by_digest) > 1:
            groups = "; ".join(f"{len(same)} as {same[0].path}" for same in by_digest.values())
            notes.append(f"{name}: its code differs between runs, so they may not be comparable: {groups}")
    return notes


def method_labels(methods: Sequence[_Tables], problems: Sequence[Hashable] | None = None) -> list[str]:
    """Short distinct names of methods: the kinds in which they differ, and differing settings of one kind.

    Equal methods are named by their coordination method. Settings that differ between ``problems`` only are left out.
    """
    flat_methods = [{table: flat(settings) for table, settings in method.items()} for method in methods]
    by_problem = list(grouped(zip(problems or [None] * len(methods), flat_methods, strict=True)).values())
    labels: list[str] = []
    for method in flat_methods:
        label = ", ".join(filter(None, (_table_label(method, by_problem, table) for table in method)))
        labels.append(label or str(method.get("coordination", {}).get("kind", "all")))
    return labels


def problem_names(problems: Sequence[tuple[ProblemKey, str]]) -> dict[ProblemKey, str]:
    """Name for each problem: its scenario's name, if necessary with its world's name or the settings that differ."""
    worlds = dict(problems)
    names: dict[ProblemKey, str] = {}
    for problem, world in worlds.items():
        scenario = problem[1]
        twins = [other for other in worlds if other[1] == scenario]
        if len(twins) == 1:
            names[problem] = scenario
        elif len({worlds[twin] for twin in twins}) == len(twins):
            names[problem] = f"{scenario}: {world}"
        else:
            settings, others = _problem_settings(problem), [_problem_settings(twin) for twin in twins]
            names[problem] = f"{scenario} ({_differing(settings, others)})"
    return names


def _problem_settings(problem: ProblemKey) -> dict[str, Any]:
    environment, rounds, limits = msgspec.json.decode(problem[0])
    return {**flat(environment), "rounds": rounds, **limits}


def _differing(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """Settings in ``own`` that differ from those of any of ``others``, as text."""
    keys = dict.fromkeys([*own, *(key for other in others for key in other)])
    differing = [key for key in keys if any(other.get(key, _MISSING) != own.get(key, _MISSING) for other in others)]
    return ", ".join(f"{key}={own[key]}" if key in own else f"{key} by default" for key in differing)


def _table_label(method: _Tables, by_problem: Sequence[Sequence[_Tables]], table: str) -> str:
    own, kind = method[table], method[table].get("kind")
    kinds_differ = any(len({other[table].get("kind") for other in others}) > 1 for others in by_problem)
    same_kind = [[other[table] for other in others if other[table].get("kind") == kind] for others in by_problem]
    pairs = [(settings, others[0]) for others in same_kind for settings in others]
    settings = ", ".join(
        f"{key}={own[key]}"
        for key in own
        if key != "kind" and any(some.get(key, _MISSING) != first.get(key, _MISSING) for some, first in pairs)
    )
    if kinds_differ:
        return f"{kind} ({settings})" if settings else str(kind)
    return f"{table} {settings}".strip() if settings else ""
