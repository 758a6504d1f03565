"""A comparison as tables for the terminal, files and papers (LaTeX with booktabs, Markdown), and as a figure."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from rich.table import Table

from swarmbo import metrics, plotting
from swarmbo.boundary.files import naming, replacing, write_rows
from swarmbo.compare import statistics
from swarmbo.compare.comparison import Comparison, ComparisonRow, ScoredRun
from swarmbo.errors import ConfigError, RunFolderError

_LATEX = str.maketrans({character: f"\\{character}" for character in "&%$#_{}"})
_LATEX |= str.maketrans({"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$"})
_LATEX |= str.maketrans({"±": r"$\pm$", "²": r"\textsuperscript{2}", "µ": r"\textmu{}"})
_LATEX[ord("[")] = "{[}"  # after a line end it would begin an option
MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"})

_NUMBER = re.compile(r"([-+]?)([0-9.]+)(?:e([-+]\d+))?")
_HEADS = ("method", "seeds", "mean", "difference", "p")
_BOLD = (0, 2)  # columns of the method and its mean


def comparison_tables(comparison: Comparison) -> list[Table]:
    """One table per metric: a row per problem and method, with the paired difference."""
    tables: list[Table] = []
    reference_values = {(row.problem, row.metric): row.values for row in comparison.rows if row.method == row.reference}
    for metric in metrics.METRICS:
        rows = [row for row in comparison.rows if row.metric == metric]
        if not rows:
            continue
        sign = "positive" if metric in metrics.MORE_IS_BETTER else "negative"
        title = f"{metrics.METRIC_TEXT[metric]}; difference from {comparison.reference!r} ({sign} is better)"
        table = empty_table(title, "problem", "method", "seeds", "mean", "difference", "interval", "better")
        for before, row in zip([None, *rows], rows, strict=False):
            is_new = before is None or before.problem != row.problem
            if is_new and before is not None:
                table.add_section()
            cells = _cells(row, reference_values.get((row.problem, row.metric), {}), comparison.level)
            table.add_row(row.problem if is_new else "", row.method, str(row.n_seeds), *cells)
        tables.append(table)
    if any(run.busy is not None for runs in comparison.runs.values() for run in runs):
        table = empty_table("time", "problem", "method", "wall time", "evaluations a second", "workers busy")
        for (problem, method), runs in comparison.runs.items():
            seconds, busy = sum(run.seconds for run in runs), [run.busy for run in runs if run.busy is not None]
            rate = sum(run.measurements[-1] for run in runs) / seconds if seconds else 0.0
            share = f"{sum(busy) / len(busy):.0%}" if busy else ""
            table.add_row(problem, method, f"{seconds / len(runs):.4g} s", f"{rate:.3g}", share)
        tables.append(table)
    return tables


def empty_table(title: str, *head: str) -> Table:
    """Table for the terminal without rows; its first two columns are names, the others numbers."""
    table = Table(title=title, title_justify="left")
    for column, name in enumerate(head):  # folded, as truncated names would be useless
        table.add_column(name, justify="left" if column < 2 else "right", overflow="fold")
    return table


def table_writer(path: Path) -> Callable[[Comparison, Path], Path]:
    """Function that writes a comparison in the format of a path's ending."""
    writers = {".csv": _write_csv, ".tex": write_paper_table, ".md": write_paper_table}
    if path.suffix not in writers:
        raise ConfigError(f"got {str(path)!r}; wanted a name that ends in .csv, .tex or .md", at="--table")

    def write(comparison: Comparison, path: Path) -> Path:
        with naming(path, "cannot be written"):
            writers[path.suffix](comparison, path)
        return path

    return write


def _write_csv(comparison: Comparison, path: Path) -> None:
    names = ["problem", "method", "metric", "unit", "n_seeds", "mean", "reference"]
    more = ["difference", "low", "high", "n_pairs", "unpaired"]

    def cells(row: ComparisonRow) -> list[object]:
        pairs, fields = row.difference, [getattr(row, name) for name in names]
        if pairs is None:
            return [*fields, *[""] * len(more)]
        return [*fields, pairs.mean, pairs.low, pairs.high, pairs.n_pairs, " ".join(map(str, pairs.unpaired))]

    write_rows(path, [[*names, *more], *map(cells, comparison.rows)])


def _cells(row: ComparisonRow, other: statistics.BySeed, level: float) -> list[str]:
    mean = f"{row.mean:.4g} {row.unit}".rstrip()
    if (pairs := row.difference) is None:
        reason = "no common seed" if other else "reference not run here"
        return [mean, "reference" if row.method == row.reference else reason, "", ""]
    interval = "one pair" if pairs.low is None or pairs.high is None else f"[{pairs.low:+.4g}, {pairs.high:+.4g}]"
    verdict = "unclear" if pairs.n_pairs >= statistics.FEWEST_PAIRS else f"needs {statistics.FEWEST_PAIRS} pairs"
    if statistics.differ(row.values, other, pairs, level):
        verdict = row.reference if (pairs.mean > 0) != (row.metric in metrics.MORE_IS_BETTER) else row.method
    return [mean, f"{pairs.mean:+.4g}", interval, verdict]


def draw_comparison(comparison: Comparison, path: Path, dpi: int = 150) -> Path:
    """Draw a comparison: the primary score of all methods, round by round, and the paired differences."""
    curves = [_curves(problem, method, runs) for (problem, method), runs in comparison.runs.items()]
    differences = _differences(row for row in comparison.rows if row.decides)
    cumulated = _differences(row for row in comparison.rows if row.metric == "mean_regret")
    figure = plotting.comparison_figure(curves, differences, comparison.reference, cumulated, comparison.level)
    try:
        with naming(path, "cannot be written"):
            return plotting.save(figure, path, dpi)
    except ValueError as error:
        if "is not supported" not in str(error):
            raise
        raise RunFolderError(f"{path}: {error}") from error


def _differences(rows: Iterable[ComparisonRow]) -> list[plotting.Difference]:
    return [
        plotting.Difference(
            *(row.problem, row.method, found.mean, found.low, found.high, row.unit, metrics.SHORT_TEXT[row.metric])
        )
        for row in rows
        if (found := row.difference) is not None
    ]


def rows_of_equal_length(lines: Sequence[Sequence[float] | np.ndarray]) -> Float[np.ndarray, "runs k"]:
    """Values of runs; a run whose world ended an episode early stays at its last value, as in the tables."""
    longest = max(map(len, lines))
    return np.array([np.pad(line, (0, longest - len(line)), mode="edge") for line in lines], dtype=float)


def _curves(problem: str, method: str, runs: list[ScoredRun]) -> plotting.RegretCurves:
    score = metrics.first_score(runs[0].goal)
    return plotting.RegretCurves(
        problem=problem,
        method=method,
        measurements=rows_of_equal_length([run.measurements for run in runs]).mean(axis=0),  # fewer if agents abstain
        regrets=rows_of_equal_length([run.values for run in runs]),
        unit="" if score in metrics.MORE_IS_BETTER else runs[0].unit,
        quantity=metrics.SHORT_TEXT[score],
        more_is_better=score in metrics.MORE_IS_BETTER,
    )


class _Group(NamedTuple):
    """Table of one problem in its primary metric: caption, texts of each method, and True in ``bold`` for the best."""

    problem: str
    caption: str
    rows: list[tuple[str, ...]]
    bold: list[bool]


def write_paper_table(comparison: Comparison, path: Path) -> None:
    """Write a table for each problem by its primary metric: LaTeX (booktabs) for a name in ``.tex``, else Markdown.

    A row has a method, its number of seeds, mean with interval, and the paired difference from the reference with its
    interval and p-value (Wilcoxon's signed-rank test, adjusted by Holm's method over the rows of the table). The best
    mean is bold.
    """
    form = _latex if path.suffix == ".tex" else _markdown
    with replacing(path) as file:
        file.write("\n".join(form(group) for group in _groups(comparison)).encode())


def _groups(comparison: Comparison) -> Iterable[_Group]:
    deciding = [row for row in comparison.rows if row.decides]
    for (problem, metric), found in groupby(deciding, attrgetter("problem", "metric")):
        rows = list(found)
        more_is_better = metric in metrics.MORE_IS_BETTER
        reference = next((r.values for r in rows if r.method == r.reference), {})
        best_mean = (max if more_is_better else min)(row.mean for row in rows)
        tests = {row.method: statistics.paired_p(row.values, reference) for row in rows if row.difference is not None}
        known_p = {method: p for method, p in tests.items() if p is not None}
        adjusted = dict(zip(known_p, statistics.holm(list(known_p.values())), strict=True))
        unit = f" ({rows[0].unit})" if rows[0].unit else ""
        caption = (
            f"{problem}: {metrics.METRIC_TEXT[metric]}{unit}, {'larger' if more_is_better else 'smaller'} is better. "
            f"Means over seeds, paired differences from {comparison.reference}, with {100 * comparison.level:.10g} % "
            "bootstrap intervals (BCa); p: Wilcoxon's signed-rank test with Holm's correction."
        )
        numbers = [_numbers(row, adjusted.get(row.method), comparison.level) for row in rows]
        texts = [(row.method, str(row.n_seeds), *cells) for row, cells in zip(rows, numbers, strict=True)]
        yield _Group(problem, caption, texts, [row.mean == best_mean for row in rows])


def _numbers(row: ComparisonRow, p: float | None, level: float) -> tuple[str, str, str]:
    mean = f"{row.mean:.4g}{_between(statistics.mean_interval(list(row.values.values()), level), '')}"
    if row.difference is None:
        return mean, "reference" if row.method == row.reference else "", ""
    difference = f"{row.difference.mean:+.3g}{_between((row.difference.low, row.difference.high), '+')}"
    return mean, difference, "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _between(ends: tuple[float | None, float | None], sign: str) -> str:
    return "" if None in ends else f" [{', '.join(f'{end:{sign}.3g}' for end in ends)}]"


def _latex(group: _Group) -> str:
    def cells(texts: Sequence[str], best: bool = False) -> str:
        escaped = [text.translate(_LATEX) for text in texts[:2]]
        escaped += [_NUMBER.sub(_in_latex, text.translate(_LATEX)) for text in texts[2:]]
        cells = (rf"\textbf{{{text}}}" if best and i in _BOLD else text for i, text in enumerate(escaped))
        return " & ".join(cells) + r" \\"

    lines = [cells(row, best) for row, best in zip(group.rows, group.bold, strict=True)]
    label = re.sub(r"[^A-Za-z0-9]+", "-", group.problem)
    preamble = [r"\begin{table}% \usepackage{booktabs}; table* for both of two columns", r"\centering"]
    preamble += [rf"\caption{{{group.caption.translate(_LATEX)}}}", rf"\label{{tab:{label}}}", r"\smallskip"]
    head = [r"\begin{tabular}{lrrrr}", r"\toprule", cells(_HEADS), r"\midrule"]
    return "\n".join([*preamble, *head, *lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _in_latex(number: re.Match[str]) -> str:
    sign, digits, exponent = number.groups()  # digits in text mode can be bold
    power = "" if exponent is None else rf"$\times 10^{{{int(exponent)}}}$"
    return ("$-$" if sign == "-" else sign) + digits + power


def _markdown(group: _Group) -> str:
    def cells(texts: Sequence[str], best: bool) -> list[str]:
        escaped = (text.translate(MARKDOWN) for text in texts)
        return [f"**{cell}**" if best and i in _BOLD else cell for i, cell in enumerate(escaped)]

    rows = [cells(row, best) for row, best in zip(group.rows, group.bold, strict=True)]
    return "\n".join([group.caption.translate(MARKDOWN), "", *markdown(_HEADS, rows, 1), ""])


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], n_texts: int) -> list[str]:
    """Lines of a Markdown table, whose first ``n_texts`` columns are aligned at the left."""
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (heads, *rows))
    return [head, "|" + "---|" * n_texts + "--:|" * (len(heads) - n_texts), *lines]
