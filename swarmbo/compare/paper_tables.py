"""A comparison as tables of a paper: LaTeX with booktabs, and Markdown."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from swarmbo.boundary.files import replacing
from swarmbo.compare.comparison import Comparison, ComparisonRow
from swarmbo.compare.statistics import holm, mean_interval, paired_p
from swarmbo.metrics import METRIC_TEXT, MORE_IS_BETTER

_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "²": r"\textsuperscript{2}",
    "µ": r"\textmu{}",
    "[": "{[}",  # after a line end it would begin an option
    "<": "$<$",
}
_MARKDOWN = {character: f"\\{character}" for character in "\\`*_[]<>|"}


_NUMBER = re.compile(r"([-+]?)([0-9.]+)(?:e([-+]\d+))?")
_BOLD = (0, 2)  # columns of the method and its mean


class _Group(NamedTuple):
    """One problem by its primary metric: the caption, and texts of each method, of which the best are ``bold``."""

    caption: str
    heads: tuple[str, ...]
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
        more, reference = metric in MORE_IS_BETTER, next((r.values for r in rows if r.method == r.reference), {})
        best = (max if more else min)(row.mean for row in rows)
        tests = {row.method: paired_p(row.values, reference) for row in rows if row.difference is not None}
        known = {method: p for method, p in tests.items() if p is not None}
        adjusted = dict(zip(known, holm(list(known.values())), strict=True))
        unit = f" ({rows[0].unit})" if rows[0].unit else ""
        told = (
            f"{problem}: {METRIC_TEXT[metric]}{unit}, {'larger' if more else 'smaller'} is better. Means over seeds, "
            f"paired differences from {comparison.reference}, with {comparison.level:.0%} bootstrap intervals (BCa); "
            "p: Wilcoxon's signed-rank test with Holm's correction."
        )
        numbers = [_numbers(row, adjusted.get(row.method), comparison.level) for row in rows]
        texts = [(row.method, str(row.n_seeds), *cells) for row, cells in zip(rows, numbers, strict=True)]
        yield _Group(told, ("method", "seeds", "mean", "difference", "p"), texts, [row.mean == best for row in rows])


def _numbers(row: ComparisonRow, p: float | None, level: float) -> tuple[str, str, str]:
    mean = f"{row.mean:.4g}{_between(mean_interval(list(row.values.values()), level), '')}"
    if row.difference is None:
        return mean, "reference" if row.method == row.reference else "", ""
    change = f"{row.difference.mean:+.3g}{_between((row.difference.low, row.difference.high), '+')}"
    return mean, change, "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _between(ends: tuple[float | None, float | None], sign: str) -> str:
    return "" if None in ends else f" [{', '.join(f'{end:{sign}.3g}' for end in ends)}]"


def _escaped(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(character, character) for character in text)


def _latex(group: _Group) -> str:
    def cells(texts: Sequence[str], best: bool = False) -> str:
        shown = [_escaped(text, _LATEX) for text in texts[:2]]
        shown += [_NUMBER.sub(_in_latex, _escaped(text, _LATEX)) for text in texts[2:]]
        return (
            " & ".join(rf"\textbf{{{text}}}" if best and i in _BOLD else text for i, text in enumerate(shown)) + r" \\"
        )

    lines = [cells(row, best) for row, best in zip(group.rows, group.bold, strict=True)]
    above = [r"\begin{table}", r"\centering", rf"\caption{{{_escaped(group.caption, _LATEX)}}}"]
    head = [r"\begin{tabular}{lrrrr}", r"\toprule", cells(group.heads), r"\midrule"]
    return "\n".join([*above, *head, *lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _in_latex(number: re.Match[str]) -> str:
    sign, digits, exponent = number.groups()  # digits in text, which can be bold
    power = "" if exponent is None else rf"$\times 10^{{{int(exponent)}}}$"
    return ("$-$" if sign == "-" else sign) + digits + power


def _markdown(group: _Group) -> str:
    def cells(texts: Sequence[str], best: bool) -> list[str]:
        shown = (_escaped(text, _MARKDOWN) for text in texts)
        return [f"**{cell}**" if best and i in _BOLD else cell for i, cell in enumerate(shown)]

    rows = [cells(row, best) for row, best in zip(group.rows, group.bold, strict=True)]
    return "\n".join([_escaped(group.caption, _MARKDOWN), "", *markdown(group.heads, rows, 1), ""])


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], n_texts: int) -> list[str]:
    """Lines of a table, of which the first ``n_texts`` columns are aligned at the left."""
    rule = "|" + "---|" * n_texts + "--:|" * (len(heads) - n_texts)
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (heads, *rows))
    return [head, rule, *lines]
