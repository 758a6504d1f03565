"""Trace of a joint choice: the best so far and its bound, against rounds and against what was sent."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from swarmbo.coordination.plan import TraceRow
from swarmbo.plotting import style
from swarmbo.plotting.formats import Formats


def plot_solve_trace(
    ax: Axes, rows: Sequence[TraceRow], told: Callable[[float], float] = float, *, by_bytes: bool = False
) -> Axes:
    """Draw the best value so far, and its bound, as steps against rounds or bytes; ``told`` names costs."""
    places = np.array([row.traffic.bytes if by_bytes else row.round for row in rows], dtype=float)

    def line(numbers: Sequence[float | None]) -> np.ndarray:
        finite = [number is not None and math.isfinite(number) for number in numbers]
        return np.array(
            [
                told(number) if is_there and number is not None else np.nan
                for number, is_there in zip(numbers, finite, strict=True)
            ]
        )

    values, bounds = line([row.value for row in rows]), line([row.bound for row in rows])
    marks: dict[str, Any] = {"marker": "o", "markersize": 4.0} if len(rows) <= 30 else {}
    ax.step(places, values, where="post", color=style.BLUE, label="best choice so far", **marks)
    if not np.isnan(bounds).all():
        ax.step(places, bounds, where="post", color=style.VERMILLION, label="no choice is beyond", **marks)
        ax.fill_between(places, values, bounds, step="post", color=style.VERMILLION, alpha=0.12, linewidth=0.0)
    if np.isnan(values).all():
        return style.say(ax, "every choice so far is forbidden")
    ax.set_xlabel("bytes sent" if by_bytes else "round")
    if by_bytes:
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.xaxis.set_major_locator(MaxNLocator(6))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    return ax


def solve_trace_figure(rows: Sequence[TraceRow], title: str, label: str, told: Callable[[float], float]) -> Figure:
    """The trace against rounds and against bytes."""
    with style.applied():
        figure = style.new_figure(8.8, 3.7)
        left, right = figure.subplots(1, 2, sharey=True)
        plot_solve_trace(left, rows, told)
        plot_solve_trace(right, rows, told, by_bytes=True)
        left.set_ylabel(label)
        left.set_title(title)
        handles, labels = left.get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def draw_solve_trace(
    rows: Sequence[TraceRow],
    path: Path,
    title: str,
    label: str,
    told: Callable[[float], float] = float,
    formats: Formats | None = None,
) -> Path:
    """Write the figure of a trace; a path without an ending takes that of the format."""
    drawn_as = formats or Formats()
    path = path if path.suffix else path.with_suffix(f".{drawn_as.figures}")
    with style.applied():
        return style.save(solve_trace_figure(rows, title, label, told), path, drawn_as.dpi)
