"""A comparison as tables for the terminal and for files, and as a figure."""

import itertools
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path

import numpy as np
from rich.table import Table

from swarmbo import plotting
from swarmbo.boundary.files import write_rows
from swarmbo.compare.comparison import Comparison, ComparisonRow, ScoreTrace
from swarmbo.compare.paper_tables import write_paper_table
from swarmbo.compare.statistics import FEWEST_PAIRS
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.metrics import METRIC_TEXT, METRICS, MORE_IS_BETTER, SCORE_TEXT, SHORT_TEXT


def comparison_tables(comparison: Comparison) -> list[Table]:
    """One table per primary metric of some task: a row per problem and method, with the paired difference."""
    tables: list[Table] = []
    with_reference = {row.problem for row in comparison.rows if row.method == row.reference}
    for metric in METRICS:
        rows = [row for row in comparison.rows if row.metric == metric]
        if not rows:
            continue
        sign = "negative" if metric in MORE_IS_BETTER else "positive"
        table = Table(
            title=f"{METRIC_TEXT[metric]}; difference from {comparison.reference!r} ({sign}: it is better)",
            title_justify="left",
        )
        for name in ("problem", "method"):
            table.add_column(name, overflow="fold")  # truncated names would be useless
        for name in ("seeds", "mean", "difference", "interval", "better"):
            table.add_column(name, justify="right")
        for before, row in zip([None, *rows], rows, strict=False):
            is_new = before is None or before.problem != row.problem
            if is_new and before is not None:
                table.add_section()
            cells = _cells(row, "no common seed" if row.problem in with_reference else "reference not run here")
            table.add_row(row.problem if is_new else "", row.method, str(row.n_seeds), *cells)
        tables.append(table)
    if any(row.busy is not None for row in comparison.times):
        tables.append(_time_table(comparison))
    return tables


def _time_table(comparison: Comparison) -> Table:
    table = Table(title="time", title_justify="left")
    for name in ("problem", "method"):
        table.add_column(name, overflow="fold")
    for name in ("wall time", "evaluations a second", "workers busy"):
        table.add_column(name, justify="right")
    for row in comparison.times:
        busy = "" if row.busy is None else f"{row.busy:.0%}"
        table.add_row(row.problem, row.method, f"{row.seconds:.4g} s", f"{row.per_second:.3g}", busy)
    return table


def table_writer(path: Path) -> Callable[[Comparison, Path], Path]:
    """Function that writes a comparison in the format that the ending of a name stands for."""
    known = {".csv": _write_csv, ".tex": write_paper_table, ".md": write_paper_table}
    if path.suffix not in known:
        raise ConfigError(f"got {str(path)!r}; wanted a name that ends in .csv, .tex or .md", at="--table")

    def write(comparison: Comparison, path: Path) -> Path:
        try:
            known[path.suffix](comparison, path)
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be written: {error.strerror}") from error
        return path

    return write


def _write_csv(comparison: Comparison, path: Path) -> None:
    """Write one line per problem, metric and method."""
    names = ["problem", "method", "metric", "unit", "n_seeds", "mean", "reference"]
    more = ["difference", "low", "high", "n_pairs", "unpaired"]

    def cells(row: ComparisonRow) -> list[object]:
        pairs, plain = row.difference, [getattr(row, name) for name in names]
        if pairs is None:
            return [*plain, *[""] * len(more)]
        return [*plain, pairs.mean, pairs.low, pairs.high, pairs.n_pairs, " ".join(map(str, pairs.unpaired))]

    write_rows(path, [[*names, *more], *map(cells, comparison.rows)])


def _cells(row: ComparisonRow, why_none: str) -> list[str]:
    mean = f"{row.mean:.4g} {row.unit}".rstrip()
    if (pairs := row.difference) is None:
        return [mean, "reference" if row.method == row.reference else why_none, "", ""]
    interval = "one pair" if pairs.low is None or pairs.high is None else f"[{pairs.low:+.4g}, {pairs.high:+.4g}]"
    verdict = "unclear" if pairs.n_pairs >= FEWEST_PAIRS else f"needs {FEWEST_PAIRS} pairs"
    if pairs.is_clear:
        verdict = row.reference if (pairs.mean > 0) != (row.metric in MORE_IS_BETTER) else row.method
    return [mean, f"{pairs.mean:+.4g}", interval, verdict]


def draw_comparison(comparison: Comparison, path: Path, dpi: int = 150) -> Path:
    """Draw a comparison: the primary score of all methods, round by round, and the paired differences."""
    by_curve = itertools.groupby(comparison.traces, attrgetter("problem", "method"))
    curves = [_curves(problem, method, list(traces)) for (problem, method), traces in by_curve]
    differences = _differences(row for row in comparison.rows if row.decides)
    cumulated = _differences(row for row in comparison.rows if row.metric == "mean_regret")
    try:
        figure = plotting.comparison_figure(curves, differences, comparison.reference, cumulated)
        return plotting.save(figure, path, dpi)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written: {error.strerror}") from error
    except ValueError as error:
        if "is not supported" not in str(error):
            raise
        raise RunFolderError(f"{path}: {error}") from error


def _differences(rows: Iterable[ComparisonRow]) -> list[plotting.Difference]:
    return [
        plotting.Difference(
            row.problem,
            row.method,
            row.difference.mean,
            row.difference.low,
            row.difference.high,
            row.unit,
            SHORT_TEXT[row.metric],
            row.metric in MORE_IS_BETTER,
        )
        for row in rows
        if row.difference is not None
    ]


def _curves(problem: str, method: str, traces: list[ScoreTrace]) -> plotting.RegretCurves:
    n_rounds = min(len(trace.values) for trace in traces)  # a world may end an episode early
    return plotting.RegretCurves(
        problem=problem,
        method=method,
        # abstaining agents make fewer measurements
        measurements=np.mean([trace.measurements[:n_rounds] for trace in traces], axis=0),
        regrets=np.array([trace.values[:n_rounds] for trace in traces]),
        unit=traces[0].unit,
        quantity=SCORE_TEXT[traces[0].scored],
        more_is_better=traces[0].scored in MORE_IS_BETTER,
    )
