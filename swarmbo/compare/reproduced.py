"""Scores of a reproduction next to the printed numbers: a table for the terminal and for pages, and the figure."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from rich.table import Table

from swarmbo.compare.paper_tables import markdown
from swarmbo.compare.reproduction import SHOWN_TEXT, Reproduction, Scores
from swarmbo.compare.statistics import FEWEST_PAIRS, paired_difference
from swarmbo.plotting import RegretCurves, style
from swarmbo.plotting.comparison import plot_regret_curves

_HEAD = ("problem", "method", "seeds", "mean", "95 % interval", "median", "printed", "to printed", "to auto", "s/round")
_REFERENCE = "auto"


def rows_of(given: Reproduction, scores: Sequence[Scores]) -> list[tuple[str, ...]]:
    """Cells of the table, a row for each method on each problem; printed methods that were not run have no number.

    ``to printed`` and ``to auto`` are ``better`` or ``worse`` if the bootstrap interval of the difference is on one
    side of zero, with at least six seeds; else ``unclear``.
    """
    shown, rows = given.scores[0], list[tuple[str, ...]]()
    for problem, group in groupby(scores, lambda one: one.problem):
        of_problem = {one.method: one for one in group}
        printed, reference = given.problems[problem].printed, of_problem.get(_REFERENCE)
        for method, one in of_problem.items():
            own = one.last(shown)
            alone = paired_difference(own, dict.fromkeys(own, 0.0))
            interval = "" if alone.low is None or alone.high is None else f"[{alone.low:.3g}, {alone.high:.3g}]"
            to_printed = _verdict(own, dict.fromkeys(own, printed[method]), shown) if method in printed else ""
            to_auto = "" if reference in (None, one) else _verdict(own, reference.last(shown), shown)
            median = f"{np.median(list(own.values())):.3g}"
            number = f"{printed[method]:g}" if method in printed else ""
            cells = (problem, method, str(len(own)), f"{alone.mean:.3g}", interval, median, number)
            rows.append((*cells, to_printed, to_auto, f"{one.seconds:.2g}"))
        others = {method: value for method, value in printed.items() if method not in of_problem}
        rows += [
            (problem, f"{method} (printed only)", *[""] * 4, f"{others[method]:g}", "", "", "") for method in others
        ]
    return rows


def _verdict(own: Mapping[int, float], other: Mapping[int, float], shown: str) -> str:
    difference = paired_difference(own, other)
    if difference.n_pairs < FEWEST_PAIRS or not difference.is_clear:
        return "unclear"
    return "better" if (difference.mean > 0) == (shown == "best") else "worse"


def reproduction_table(given: Reproduction, rows: Sequence[tuple[str, ...]]) -> Table:
    """The rows as a table for the terminal."""
    table = Table(title=f"{given.paper}: {SHOWN_TEXT[given.scores[0]]}", title_justify="left")
    for name in _HEAD:
        table.add_column(name, justify="left" if name in _HEAD[:2] else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def write_markdown(
    given: Reproduction, rows: Sequence[tuple[str, ...]], notes: Sequence[str], command: str, path: Path
) -> Path:
    """Write the command, the rows as a table of Markdown, and a line for each deviation and note."""
    lines = [f"{given.paper}: {SHOWN_TEXT[given.scores[0]]}.", "", f"`{command}`", ""]
    lines += [*markdown(_HEAD, rows, 2), "", *(f"- {text}" for text in (*given.deviations, *notes))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def draw_reproduction(given: Reproduction, scores: Sequence[Scores], path: Path, dpi: int = 150) -> Path:
    """Draw a column per problem and a row per score, on the paper's axes; crosses at the right are printed numbers."""
    problems = list(dict.fromkeys(one.problem for one in scores))
    methods = list(dict.fromkeys(one.method for one in scores))
    with style.applied():
        width = max(6.6, 3.1 * len(problems))
        figure = style.new_figure(width, 3.2 * len(given.scores) + 0.6)
        panels = figure.subplots(len(given.scores), len(problems), squeeze=False)
        for row, shown in enumerate(given.scores):
            for ax, problem in zip(panels[row], problems, strict=True):
                here = [one for one in scores if one.problem == problem]
                curves = [
                    RegretCurves(
                        problem, one.method, np.array(one.at), one.curves[shown], "", SHOWN_TEXT[shown], shown == "best"
                    )
                    for one in here
                ]
                plot_regret_curves(ax, curves, methods)
                ax.set_xlabel(given.axis)
                printed = given.problems[problem].printed if row == 0 else {}
                for one in (one for one in here if one.method in printed):
                    colour = style.METHOD_COLOURS[methods.index(one.method) % len(style.METHOD_COLOURS)]
                    ax.plot(one.at[-1], printed[one.method], "x", color=colour, markersize=8, markeredgewidth=2)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), int(width / 1.6)))
        return style.save(figure, path, dpi)
