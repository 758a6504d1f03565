"""Methods side by side: mean scores against measurements, and paired differences with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from swarmbo.boundary.rng import stream
from swarmbo.errors import ShapeError
from swarmbo.plotting import style


@dataclass(frozen=True, eq=False)
class RegretCurves:
    """Scores of one method on one problem for each seed, against the team's measurements (mean over seeds)."""

    problem: str
    method: str
    measurements: Float[np.ndarray, " k"] | Int[np.ndarray, " k"]
    regrets: Float[np.ndarray, "seeds k"]
    unit: str = ""
    quantity: str = "simple regret"
    more_is_better: bool = False

    def __post_init__(self) -> None:
        if not len(self.regrets) or self.regrets.shape != (len(self.regrets), len(self.measurements)):
            got = f"{self.method} on {self.problem}: got regrets of shape {self.regrets.shape}"
            raise ShapeError(f"{got}; wanted (seeds >= 1, {len(self.measurements)})")


@dataclass(frozen=True)
class Difference:
    """Mean paired difference of a method from the reference on a problem, with its interval if there is one."""

    problem: str
    method: str
    mean: float
    low: float | None
    high: float | None
    unit: str = ""
    quantity: str = "simple regret"


_LONGEST_LABEL = 32  # characters in a line of a method's name
Curves = Sequence[RegretCurves]
Differences = Sequence[Difference]


def bootstrap_band(
    regrets: Float[np.ndarray, "seeds k"], resamples: int = 2000, level: float = 0.95
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Pointwise percentile interval (k,) of the mean over seeds (Efron and Tibshirani 1993, ch. 13)."""
    n_seeds = len(regrets)
    picked = stream(0, "bootstrap", "band").multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=resamples)
    low, high = np.quantile(picked @ regrets / n_seeds, [0.5 - level / 2, 0.5 + level / 2], axis=0)
    return low, high


def plot_regret_curves(ax: Axes, curves: Curves, methods: Sequence[str], level: float = 0.95) -> Axes:
    """Draw mean scores on one problem against measurements, with bootstrap bands; limits include what is there."""
    lowest, highest = np.inf, -np.inf
    for curve in curves:
        index = methods.index(curve.method)
        look = _method_look(index)
        mean, (low, high) = curve.regrets.mean(axis=0), bootstrap_band(curve.regrets, level=level)
        ax.fill_between(curve.measurements, low, high, color=look["color"], alpha=0.15, linewidth=0)
        every, (width, zorder) = max(1, len(mean) // 6), (2.4, 4) if index == 0 else (1.6, 3)
        look |= {"markersize": 5, "markevery": (index % every, every), "linewidth": width, "zorder": zorder}
        ax.plot(curve.measurements, mean, label=curve.method, **look)
        # without NaN: round 0 has no score in runs on a function
        lowest, highest = min(lowest, float(np.fmin.reduce(low))), max(highest, float(np.fmax.reduce(mean)))
    if curves:
        if not curves[0].more_is_better and 0 < 10 * lowest < highest:
            style.set_log(ax)
        elif not curves[0].more_is_better and lowest >= 0:
            ax.set_ylim(bottom=0.0)
        ax.set_title(fill(curves[0].problem, 28))
        ax.set_ylabel(fill(style.with_unit(f"mean {curves[0].quantity}", curves[0].unit), _LONGEST_LABEL))
    style.rounds_axis(ax, "measurements of the team")
    return ax


def plot_differences(ax: Axes, differences: Sequence[Difference], methods: Sequence[str]) -> Axes:
    """Draw paired differences on one problem as a forest plot, with a row for each method but the first (reference)."""
    ax.axvline(0.0, color=style.INK, linewidth=1.0, zorder=1)
    for difference in differences:
        index = methods.index(difference.method)
        row, look = index - 1, _method_look(index)
        if difference.low is not None and difference.high is not None:
            ax.plot([difference.low, difference.high], [row, row], color=look["color"], linewidth=2.2, zorder=2)
        ax.plot(difference.mean, row, linestyle="none", markersize=8, zorder=3, **look)
    ax.set_yticks(range(len(methods) - 1), [fill(method, _LONGEST_LABEL) for method in methods[1:]])
    ax.set_ylim(len(methods) - 1.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.margins(x=0.12)
    if differences:
        ax.set_xlabel(style.with_unit(f"difference of {differences[0].quantity}", differences[0].unit))
    return ax


def comparison_figure(
    curves: Curves, differences: Differences, reference: str, cumulated: Differences = (), level: float = 0.95
) -> Figure:
    """Figure with regret curves of each problem, up to four in a row, and paired differences from the reference below.

    ``cumulated``: paired differences of the mean regret of all measurements, if known, in a row below. ``level``:
    confidence level of all intervals, also of those in the differences.
    """
    if not curves:
        raise ShapeError("got no regret curves; wanted at least one method on one problem")
    problems = list(dict.fromkeys(curve.problem for curve in curves))
    rows = [row for row in (differences, cumulated) if row]
    methods = list(dict.fromkeys([reference, *(part.method for parts in (curves, *rows) for part in parts)]))
    short_reference = reference if len(reference) <= 18 else "the reference"
    labels = [fill(method, _LONGEST_LABEL) for method in methods]
    lines = "\n".join(labels).splitlines()
    label_width = 0.075 * max(map(len, lines))  # inches
    height_below = 0.7 + max(0.3 * len(methods), 0.16 * len(lines))
    with style.applied():
        heights, margins = [3.3, *[height_below] * len(rows)], (max(1.4, label_width), 0.9)
        figure, panels = style.panel_grid(len(problems), heights, 3.1, 6.6, margins)
        for problem, (ax, *bottoms) in zip(problems, panels, strict=True):
            own_curves = [curve for curve in curves if curve.problem == problem]
            plot_regret_curves(ax, own_curves, methods, level)
            for bottom, row in zip(bottoms, rows, strict=True):
                here = [difference for difference in row if difference.problem == problem]
                bottom.set_visible(bool(here) or row is not cumulated)  # only a peak has regret to cumulate
                plot_differences(bottom, here, methods)
                verdict = "better" if own_curves[0].more_is_better else "worse"
                title = f"{f'right of zero: {verdict} than' if here else 'nothing to compare with'} {short_reference}"
                bottom.set_title(title, fontsize=8.5, loc="center", weight="normal", pad=4)
            spec = ax.get_subplotspec()
            if spec is not None and not spec.is_first_col():
                # the first panel of its row names the methods, and the quantity if all curves have the same
                has_one_quantity = len({curve.quantity for curve in curves}) == 1
                quantity, unit = own_curves[0].quantity, own_curves[0].unit
                ax.set_ylabel(unit if has_one_quantity else style.with_unit(quantity, unit))
                for bottom in bottoms:
                    bottom.set_yticklabels([])
        width = figure.get_figwidth()
        seeds = sorted({len(curve.regrets) for curve in curves})
        count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        quantities = " / ".join(dict.fromkeys(curve.quantity for curve in curves))
        over = f"mean over {count} seeds, {100 * level:.10g} % bootstrap intervals" if count != "1" else "one seed"
        text = f"{quantities[0].upper()}{quantities[1:]}: {over}."
        if differences:
            more = ", mean regret: of all measurements" if cumulated else ""
            text += f" Below: paired differences to {reference}{more}."
        figure.suptitle(fill(text, int(11.5 * width)), x=0.01, ha="left", fontsize=10.5)
        if (layout := figure.get_layout_engine()) is not None:
            layout.set(hspace=0.06)  # pyright: ignore[reportCallIssue]
        marks: dict[str, Any] = {"markersize": 6, "linewidth": 2}
        handles = [Line2D([], [], label=label, **marks, **_method_look(i)) for i, label in enumerate(labels)]
        columns = min(len(handles), int(width / max(1.6, label_width + 0.8)))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    return figure


def _method_look(index: int) -> dict[str, Any]:
    marker = style.METHOD_MARKERS[(index + index // 8) % 8]
    return {"color": style.METHOD_COLOURS[index % 8], "marker": marker, "markeredgecolor": "white"}
