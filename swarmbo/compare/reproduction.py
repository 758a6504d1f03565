"""Reproductions of papers' experiments: definitions in TOML, their trials, and scores next to the printed numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float
from rich.table import Table

from swarmbo import metrics
from swarmbo.compare.output import MARKDOWN, empty_table, markdown, rows_of_equal_length
from swarmbo.compare.statistics import differ, paired_difference
from swarmbo.errors import ConfigError
from swarmbo.plotting import style
from swarmbo.plotting.comparison import RegretCurves, plot_regret_curves
from swarmbo.records import RoundRecord
from swarmbo.runs import reading, scenario_files
from swarmbo.runs.scenario import require_shallow, scenario_of
from swarmbo.runs.sweep import Outcome, Trial, folder_name
from swarmbo.settings import Count, Settings, convert, require

ScoreName = Literal["simple_regret", "average_regret", "recommended_regret", "best"]
SCORE_NAME_TEXT: dict[ScoreName, str] = {
    "simple_regret": "simple regret",
    "average_regret": "average regret",
    "recommended_regret": "cumulative regret of the recommendation",
    "best": "best so far",
}
_HEAD = ("problem", "method", "seeds", "mean", "95 % interval", "median", "printed", "to printed", "to auto", "s/round")


class Method(Settings, frozen=True):
    """Settings of a method, as in a scenario; its environment settings are added to the problem's.

    ``problems``: the only problems that it is run on (empty: all). ``needs``: packages of extras that it needs.
    """

    environment: dict[str, Any] = msgspec.field(default_factory=dict)
    belief: dict[str, Any] = msgspec.field(default_factory=dict)
    acquisition: dict[str, Any] = msgspec.field(default_factory=dict)
    coordination: dict[str, Any] = msgspec.field(default_factory=dict)
    problems: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


class Problem(Settings, frozen=True):
    """A problem of a paper.

    Args:
        environment: As in a scenario.
        rounds: Rounds of a run.
        maximum: Value from which regret is measured, if the world does not know its maximum.
        seeded: Key of the environment that is set to the run's seed; empty: none.
        printed: Score printed in the paper, by method; also for methods that are not run.
        needs: Packages of extras; without them the problem is left out.
    """

    environment: dict[str, Any]
    rounds: Count
    maximum: float | None = None
    seeded: str = ""
    printed: dict[str, float] = msgspec.field(default_factory=dict)
    needs: tuple[str, ...] = ()


class Quick(Settings, frozen=True):
    """Number of seeds, largest number of rounds, and problems (empty: all) of a short check."""

    rounds: Count
    seeds: Count = 2
    problems: tuple[str, ...] = ()


class Reproduction(Settings, frozen=True):
    """A table or figure of a paper.

    Args:
        paper: Paper, and table or figure.
        scores: Scores that the figure shows; the table has the first one.
        axis: Horizontal axis of the figure.
        seeds: Runs of a method on a problem, if the user states no other number.
        quick: Settings of a short check.
        methods: By name; a method with ``problems`` is run on these only.
        problems: By name.
        deviations: A sentence about each difference from the paper.
    """

    paper: str
    scores: tuple[ScoreName, ...]
    quick: Quick
    methods: dict[str, Method]
    problems: dict[str, Problem]
    axis: Literal["evaluations", "rounds"] = "evaluations"
    seeds: Count = 10
    deviations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "scores", bool, "one or more scores")
        for names in (self.quick.problems, *(method.problems for method in self.methods.values())):
            if unknown := [problem for problem in names if problem not in self.problems]:
                raise ConfigError(f"got {unknown[0]!r}; wanted some of {', '.join(self.problems)}", at="$.problems")


@dataclass(frozen=True)
class Cell:
    """Trials of one method on one problem, one per seed."""

    problem: str
    method: str
    trials: list[Trial]


@dataclass(frozen=True)
class Scores:
    """Scores of a cell's complete runs: ``curves`` after mean counts ``at`` (k,), and seconds per round."""

    problem: str
    method: str
    seeds: list[int]
    at: Float[np.ndarray, " k"]
    curves: Mapping[ScoreName, Float[np.ndarray, "seeds k"]]
    seconds: float

    def last(self, score: ScoreName) -> dict[int, float]:
        """Final score by seed."""
        return dict(zip(self.seeds, self.curves[score][:, -1].tolist(), strict=True))


def read_reproduction(name: str) -> Reproduction:
    """Definition of a reproduction, by name or from a TOML file."""
    known = scenario_files.reproductions()
    path = Path(name) if name.endswith(".toml") else known.get(name)
    if path is None:
        raise ConfigError(f"no reproduction of this name; wanted a TOML file or one of: {', '.join(known)}", at=name)
    tables = scenario_files.read_toml(path)
    require_shallow(tables, at=str(path))
    return convert(scenario_files.with_absolute_paths(tables, path.parent), Reproduction)


def plan(
    given: Reproduction, out: Path, seeds: int | None = None, only: Sequence[str] = (), *, quick: bool = False
) -> tuple[list[Cell], list[str]]:
    """Trials of a reproduction in ``out/PROBLEM/METHOD/seed-000``, and notes on a short check and on missing packages.

    ``seeds`` is the number of seeds 0, 1, …, and ``only`` the names of problems. Their defaults are those of the
    definition, with ``quick`` those of its short check.
    """
    if unknown := [name for name in only if name not in given.problems]:
        raise ConfigError(f"got {unknown[0]!r}; wanted one of {', '.join(given.problems)}", at="--problem")
    count = seeds or (given.quick.seeds if quick else given.seeds)
    chosen = dict.fromkeys(only) or (quick and given.quick.problems) or tuple(given.problems)
    cells: list[Cell] = []
    notes: dict[str, None] = {"A short check: printed numbers are of longer runs.": None} if quick else {}
    for problem in chosen:
        entry = given.problems[problem]
        rounds = min(entry.rounds, given.quick.rounds) if quick else entry.rounds
        for method, settings in given.methods.items():
            if settings.problems and problem not in settings.problems:
                continue
            if missing := [name for name in (*entry.needs, *settings.needs) if find_spec(name) is None]:
                left_out = problem if missing[0] in entry.needs else method
                notes[f"{left_out}: left out, as the package {missing[0]!r} is not installed"] = None
                continue
            tables = {slot: getattr(settings, slot) for slot in ("belief", "acquisition", "coordination")}
            common = {"name": folder_name(problem), "rounds": rounds, **{k: v for k, v in tables.items() if v}}
            trials: list[Trial] = []
            for seed in range(count):
                world = entry.environment | settings.environment | ({entry.seeded: seed} if entry.seeded else {})
                folder = out / folder_name(problem) / folder_name(method) / f"seed-{seed:03d}"
                trials.append(Trial(scenario_of({**common, "seed": seed, "environment": world}), folder))
            cells.append(Cell(problem, method, trials))
    return cells, list(notes)


def read_scores(given: Reproduction, cells: list[Cell], outcomes: list[Outcome]) -> tuple[list[Scores], list[str]]:
    """Scores of all cells with a complete run, and notes on incomplete runs; ``outcomes`` are those of ``sweep``."""
    failed = {outcome.trial.out for outcome in outcomes if outcome.status == "failed"}
    scores, notes = list[Scores](), list[str]()
    for cell in cells:
        maximum, runs = given.problems[cell.problem].maximum, list[reading.Run]()
        for run in (reading.load_run(trial.out) for trial in cell.trials if trial.out not in failed):
            if np.isnan(_curve(run.records, given.scores[0], maximum)[-1]):
                notes.append(f"{run.path}: left out: no score, as all evaluations failed or the maximum is unknown")
            else:
                runs.append(run)
        if not runs:
            continue
        curves: dict[ScoreName, Float[np.ndarray, "seeds k"]] = {
            score: rows_of_equal_length([_curve(run.records, score, maximum) for run in runs]) for score in given.scores
        }
        seconds = np.mean([run.summary.seconds / run.summary.rounds for run in runs if run.summary is not None])
        seeds = [run.scenario.seed for run in runs]
        counts = rows_of_equal_length([np.cumsum([len(one.evaluations) for one in run.records[1:]]) for run in runs])
        at = counts.mean(axis=0) if given.axis == "evaluations" else np.arange(1.0, counts.shape[1] + 1)
        scores.append(Scores(cell.problem, cell.method, seeds, at, curves, float(seconds)))
    return scores, notes


def _curve(records: Sequence[RoundRecord], score: ScoreName, maximum: float | None) -> Sequence[float]:
    best = [np.nan if record.best is None else record.best.mean for record in records[1:]]
    if score == "best":
        return best
    if score == "simple_regret" and maximum is not None:
        return [maximum - value for value in best]
    if score == "average_regret":
        return metrics.mean_regrets(records)[1:].tolist()
    name = "simple_regret" if score == "simple_regret" else "recommended_so_far"
    return metrics.scores_of(records[1:], name).tolist()


def rows_of(given: Reproduction, scores: Sequence[Scores]) -> list[tuple[str, ...]]:
    """Cells of the table, a row for each method on each problem; methods that were not run have only a printed number.

    ``to printed`` and ``to auto`` are ``better`` or ``worse`` if, with at least six seeds, the bootstrap interval of
    the difference is on one side of zero, and Wilcoxon's test agrees, as in ``swarmbo compare``; else ``unclear``.
    """
    score, rows = given.scores[0], list[tuple[str, ...]]()
    for problem, group in groupby(scores, lambda cell: cell.problem):
        by_method = {cell.method: cell for cell in group}
        printed, auto = given.problems[problem].printed, by_method.get("auto")
        for method, cell in by_method.items():
            by_seed = cell.last(score)
            values = paired_difference(by_seed, dict.fromkeys(by_seed, 0.0))
            interval = "" if values.low is None or values.high is None else f"[{values.low:.3g}, {values.high:.3g}]"
            to_printed = _verdict(by_seed, dict.fromkeys(by_seed, printed[method]), score) if method in printed else ""
            auto_values = {} if auto in (None, cell) else auto.last(score)
            to_auto = _verdict(by_seed, auto_values, score) if by_seed.keys() & auto_values.keys() else ""
            median = f"{np.median(list(by_seed.values())):.3g}"
            number = f"{printed[method]:g}" if method in printed else ""
            cells = (problem, method, str(len(by_seed)), f"{values.mean:.3g}", interval, median, number)
            rows.append((*cells, to_printed, to_auto, f"{cell.seconds:.2g}"))
        for method in (method for method in printed if method not in by_method):
            rows.append((problem, f"{method} (printed only)", *[""] * 4, f"{printed[method]:g}", *[""] * 3))
    return rows


def _verdict(own: Mapping[int, float], other: Mapping[int, float], score: str) -> str:
    difference = paired_difference(own, other)
    if not differ(own, other, difference):
        return "unclear"
    return "better" if (difference.mean > 0) == (score == "best") else "worse"


def reproduction_table(given: Reproduction, rows: Sequence[tuple[str, ...]]) -> Table:
    """The rows as a table for the terminal."""
    table = empty_table(f"{given.paper}: {SCORE_NAME_TEXT[given.scores[0]]}", *_HEAD)
    for row in rows:
        table.add_row(*row)
    return table


def write_markdown(
    given: Reproduction, rows: Sequence[tuple[str, ...]], notes: Sequence[str], command: str, path: Path
) -> Path:
    """Write the command, the rows as a table of Markdown, and a line for each deviation and note."""
    lines = [f"{given.paper}: {SCORE_NAME_TEXT[given.scores[0]]}.", "", f"`{command}`", ""]
    escaped = [(*(name.translate(MARKDOWN) for name in row[:2]), *row[2:]) for row in rows]
    lines += [*markdown(_HEAD, escaped, 2), "", *(f"- {text}" for text in (*given.deviations, *notes))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def draw_reproduction(given: Reproduction, scores: Sequence[Scores], path: Path, dpi: int = 150) -> Path:
    """Draw each score of each problem, on the paper's axes; crosses at the right are printed numbers."""
    problems = list(dict.fromkeys(cell.problem for cell in scores))
    methods = list(dict.fromkeys(cell.method for cell in scores))
    with style.applied():
        figure, panels = style.panel_grid(len(problems), [3.2] * len(given.scores), 3.1, 6.6, (0.0, 0.6))
        for problem, axes in zip(problems, panels, strict=True):
            cells = [cell for cell in scores if cell.problem == problem]
            for row, (ax, score) in enumerate(zip(axes, given.scores, strict=True)):
                printed = given.problems[problem].printed if row == 0 else {}
                for cell in (cell for cell in cells if cell.method in printed):
                    colour = style.METHOD_COLOURS[methods.index(cell.method) % len(style.METHOD_COLOURS)]
                    ax.plot(cell.at[-1], printed[cell.method], "x", color=colour, markersize=8, markeredgewidth=2)
                    ax.plot([], [], "x", color=style.INK, label="printed")
                labels = ("", SCORE_NAME_TEXT[score], score == "best")
                curves = [RegretCurves(problem, cell.method, cell.at, cell.curves[score], *labels) for cell in cells]
                plot_regret_curves(ax, curves, methods)
                ax.set_xlabel(given.axis)
        lines = {label: line for ax, *_ in panels for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        columns = min(len(lines), int(figure.get_figwidth() / 1.6))
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns)
        return style.save(figure, path, dpi)
