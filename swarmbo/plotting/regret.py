"""Regret and map error against rounds: how close the team is to the maximum, and its map to the truth."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from swarmbo.metrics import scores_of
from swarmbo.plotting import style
from swarmbo.plotting.history import Records, World

_FEWEST_TO_CUT = 8  # measurements
_CUT = 4.0  # the worst third is cut if the whole range is this many times that of the rest
_FAINT = "#aab4be"
_MEASUREMENTS = "measurements"
_STEPS: dict[str, Any] = {"linestyle": "-", "drawstyle": "steps-post"}
_NEAR_ZERO = 100.0  # the scale is logarithmic if the best value shrinks by more than this factor


def plot_regret(ax: Axes, records: Records, unit: str = "", moves: bool = False) -> Axes:
    """Draw simple, recommendation and, if rounds have several measurements, batch regret against rounds.

    A logarithmic scale is linear around zero, so that a regret of zero is visible.
    """
    rounds = _rounds(records)
    simple, batch, recommended = (scores_of(records, f"{of}_regret") for of in ("simple", "batch", "recommendation"))
    label = "simple: best of this round" if moves else "simple: best so far"
    ax.plot(rounds, simple, color=style.BLUE, linewidth=2.2, label=label, zorder=3, **_STEPS)
    ax.plot(rounds, recommended, color=style.VERMILLION, linewidth=1.2, label="recommendation", zorder=3.5, **_STEPS)
    curves = [simple, recommended]
    if not moves and all(record.joint is None for record in records):
        ax.plot(rounds, batch, "o", color=style.SKY, markersize=3.8, label="batch: best of this round", zorder=2)
        curves.append(batch)
    for values, colour, size in ((simple, style.BLUE, 6.0), (recommended, style.VERMILLION, 3.5)):
        ax.plot(rounds[-1:], values[-1:], "o", color=colour, markersize=size, zorder=4)
    scale_regret(ax, np.concatenate(curves))
    return _finished(ax, rounds, "Regret", style.with_unit("regret", unit))


def plot_map_error(ax: Axes, records: Records, unit: str = "") -> Axes:
    """Draw the root mean squared error of the belief's mean against rounds."""
    rounds, error = _rounds(records), scores_of(records, "map_rmse")
    ax.plot(rounds, error, "-o", color=style.GREEN, markersize=3.2, label="posterior mean against the truth")
    if np.isfinite(error).any():
        ax.set_ylim(0.0, 1.06 * float(np.nanmax(error)) or 1.0)
    return _finished(ax, rounds, "Map error", style.with_unit("root mean squared error", unit))


def plot_level_score(ax: Axes, records: Records) -> Axes:
    """Draw the F1 score of the region in which the belief's mean exceeds the level."""
    rounds, score = _rounds(records), scores_of(records, "level_f1")
    ax.plot(rounds, score, "-o", color=style.PURPLE, markersize=3.2, label="F1 of the area above the level")
    ax.set_ylim(0.0, 1.02)
    return _finished(ax, rounds, "Level", "F1 score")


def plot_declined(ax: Axes, records: Records) -> Axes:
    """Draw the numbers of agents that measured, and that abstained or were absent, in each round."""
    rounds = _rounds(records)
    measured = np.array([sum(not sample.declined for sample in record.samples) for record in records])
    without = np.array([sum(sample.declined for sample in record.samples) for record in records])
    ax.bar(rounds, measured, width=0.8, color=style.SKY, label="measured")
    ax.bar(rounds, without, bottom=measured, width=0.8, color="#d5dae0", label="not measured")
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    return _finished(ax, rounds, "Participation", "agents")


def plot_best(ax: Axes, records: Records, world: World) -> Axes:
    """Draw all measurements, the best so far, and the recommendation with two standard deviations, against rounds.

    The scale is logarithmic on both sides of zero if the best so far ends much nearer to zero than before. Otherwise,
    if the worst third of the measurements would need most of the axis, triangles on its lower edge mark it.
    """
    rounds, maxima = _rounds(records), world.maxima
    maximum = world.maximum if maxima is None else float(np.max(maxima))
    measured = [(r.round, s.measurement) for r in records for s in r.evaluations if s.measurement is not None]
    best = best_so_far(records)
    mean, std = (np.array([getattr(r.recommendation, name, None) for r in records], float) for name in ("mean", "std"))
    if measured:
        ax.plot(*np.array(measured).T, "o", color=_FAINT, markersize=2.8, label=_MEASUREMENTS, zorder=1.5)
    band: dict[str, Any] = {"step": "post", "color": style.VERMILLION, "alpha": 0.16, "linewidth": 0}
    ax.fill_between(rounds, mean - 2 * std, mean + 2 * std, **band)
    # drawn over the best, where both agree
    ax.plot(rounds, mean, label="recommendation ± 2 std", color=style.VERMILLION, linewidth=1.2, zorder=3.5, **_STEPS)
    if maxima is None:
        ax.plot(rounds, best, color=style.BLUE, linewidth=2.2, label="best so far", zorder=3, **_STEPS)
        ax.plot(rounds[-1:], best[-1:], "o", color=style.BLUE, markersize=6, zorder=4)
    end: dict[str, Any] = {"fmt": "o", "color": style.VERMILLION, "markersize": 3.5, "elinewidth": 1.2, "zorder": 4}
    ax.errorbar(rounds[-1:], mean[-1:], 2 * std[-1:], **end)
    truth: dict[str, Any] = {"color": style.INK, "linewidth": 1.1, "linestyle": (0, (4, 3)), "zorder": 1.6}
    if maxima is not None:
        ax.plot(rounds, maxima[rounds], label=world.maximum_is, drawstyle="steps-post", **truth)
    elif maximum is not None:
        ax.axhline(maximum, label=world.maximum_is, **truth)
    if not _scale_towards_zero(ax, best):
        if measured:
            _leave_out_the_worst_third(ax, np.array(measured), maximum)
        bottom, top = ax.get_ylim()
        if maximum is not None and top < maximum + 0.02 * (top - bottom):
            ax.set_ylim(bottom, maximum + 0.05 * (maximum - bottom))
    tried = [
        (after.round, after.joint.measurement)
        for before, after in itertools.pairwise(records)
        if before.recommendation
        and after.joint
        and after.joint.measurement is not None
        and after.joint.location == before.recommendation.location
    ]
    if maxima is None and tried:
        star: dict[str, Any] = {"color": style.VERMILLION, "markersize": 9, "markeredgecolor": "white", "zorder": 5}
        ax.plot(*np.array(tried).T, "*", label="recommendation evaluated", **star)
    return _finished(ax, rounds, "Found", style.with_unit("value", world.unit))


def regret_figure(records: Records, world: World) -> Figure:
    """Figure of measurements, abstentions and, if the truth is known, the scores that suit the aim, against rounds."""
    panels: list[Callable[[Axes], Axes]] = []
    if world.goal == "peak":
        panels.append(lambda ax: plot_best(ax, records, world))
    if any(record.score is not None for record in records):
        if world.goal == "peak":
            panels.append(lambda ax: plot_regret(ax, records, world.unit, world.frames is not None))
        if not world.variables:
            panels.append(lambda ax: plot_map_error(ax, records, world.unit))
        if world.goal == "level":
            panels.append(lambda ax: plot_level_score(ax, records))
    if any(sample.declined for record in records for sample in record.samples):
        panels.append(lambda ax: plot_declined(ax, records))
    panels = panels or [lambda ax: plot_best(ax, records, replace(world, maxima=None))]
    with style.applied():
        figure = style.new_figure(*((6.4, 4.1), (9.6, 4.1), (13.2, 4.1), (9.6, 8.0))[len(panels) - 1])
        rows = 1 if len(panels) < 4 else 2
        axes = figure.subplots(rows, len(panels) // rows, squeeze=False).ravel()
        for ax, draw in zip(axes, panels, strict=True):
            draw(ax)
        if all(len(ax.get_legend_handles_labels()[0]) <= 2 for ax in axes):  # legends of one row
            for ax in axes:
                ax.set_title(ax.get_title(loc="left"), pad=26)
    return figure


def scale_regret(ax: Axes, values: Float[np.ndarray, " n"]) -> Axes:
    """Choose the scale of a regret axis: logarithmic over more than a decade, with zero kept in sight."""
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    if not len(positive):
        ax.set_ylim(1.08 * finite.min(initial=0.0) - 0.05, 1.0)
    elif finite.min() > 0 and positive.max() > 10 * positive.min():
        style.set_log(ax)
    elif positive.max() > 10 * positive.min() or finite.min() <= 0:
        threshold = 10.0 ** np.floor(np.log10(max(positive.min(), positive.max() * 1e-4)))
        style.set_log(ax, "symlog", linthresh=threshold, linscale=0.5)
        ax.set_ylim(min(-0.12 * threshold, float(finite.min())), 1.6 * positive.max())
    else:
        ax.set_ylim(0.0, 1.08 * positive.max())
    return ax


def _scale_towards_zero(ax: Axes, best: Float[np.ndarray, " n"]) -> bool:
    """Make the scale logarithmic if values approach zero over orders of magnitude; return True if they do."""
    sizes = np.abs(best[np.isfinite(best)])
    if not len(sizes) or not sizes.max() > _NEAR_ZERO * sizes[-1]:
        return False
    threshold = 10.0 ** np.floor(np.log10(max(sizes[sizes > 0].min(), 1e-6 * sizes.max())))
    style.set_log(ax, "symlog", linthresh=threshold, linscale=0.8)
    shown = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.get_lines()])
    bottom, top = np.nanmin(shown), np.nanmax(shown)  # bands may be wider by orders of magnitude
    ax.set_ylim(1.6 * bottom if bottom < 0 else -threshold, 1.6 * top if top > threshold else 1.5 * threshold)
    return True


def _leave_out_the_worst_third(ax: Axes, measured: Float[np.ndarray, "n 2"], maximum: float | None) -> None:
    values = measured[:, 1]
    highest = max(float(values.max()), -np.inf if maximum is None else maximum)
    lowest = float(np.quantile(values, 1.0 / 3.0))
    if len(values) < _FEWEST_TO_CUT or not 0.0 < _CUT * (highest - lowest) < highest - values.min():
        return
    floor = lowest - 0.1 * (highest - lowest)
    ax.set_ylim(floor, highest + 0.06 * (highest - floor))
    below = measured[values < floor, 0]
    marks: dict[str, Any] = {"color": _FAINT, "markersize": 4.0, "zorder": 1.5, "transform": ax.get_xaxis_transform()}
    ax.plot(below, np.full(len(below), 0.012), "v", label="_below", **marks)
    (dots,) = [line for line in ax.get_lines() if line.get_label() == _MEASUREMENTS]
    dots.set_label(f"{_MEASUREMENTS} (▾ lower)")


def _rounds(records: Records) -> np.ndarray:
    return np.array([record.round for record in records])


def best_so_far(records: Records) -> np.ndarray:
    """Largest measurement up to each round; NaN before the first."""
    return np.array([getattr(record.best, "mean", None) for record in records], dtype=float)


def _finished(ax: Axes, rounds: np.ndarray, title: str, label: str) -> Axes:
    """Label the axes; the legend is above them, where it hides no data."""
    columns = 2 if len(ax.get_legend_handles_labels()[0]) <= 4 else 3
    spaces = {"borderaxespad": 0.2, "columnspacing": 1.0, "handlelength": 1.4}
    ax.legend(loc="lower left", bbox_to_anchor=(-0.025, 0.995), ncols=columns, **spaces)
    ax.set_title(title, pad=39)  # above a legend of two rows
    ax.yaxis.get_offset_text().set(x=-0.03, ha="right")  # above the ticks, where no legend is
    ax.set_ylabel(label)
    style.rounds_axis(ax)
    margin = max(0.5, 0.02 * float(rounds[-1] - rounds[0]))
    ax.set_xlim(float(rounds[0]) - margin, float(rounds[-1]) + margin)
    return ax
