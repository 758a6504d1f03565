"""Maps of the team's belief, next to the truth if it is known, with the robots' paths and measurements."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from swarmbo.belief import ExactGPSettings, PlaceBelief
from swarmbo.boundary.values import counted
from swarmbo.plotting import maps, style
from swarmbo.plotting.history import Records, World, agents_of, belief_after, failures, measurements

_NO_TRUTH = "the truth is not known"


def plot_truth(ax: Axes, world: World, limits: maps.Limits | None = None) -> Axes:
    """Draw the true field of a world, and its maximum if that is sought."""
    ax.set_title("Truth")
    if world.points is None or world.values is None:
        return style.write_message(ax, _NO_TRUTH)
    label = style.with_unit("true value", world.unit)
    maps.plot_field(ax, world.points, world.values, bool(world.no_go), limits=limits, label=label)
    return _mark_maximum(_framed(ax, world), world) if world.goal == "peak" else _framed(ax, world)


def plot_mean(
    ax: Axes, belief: PlaceBelief | None, world: World, lattice: maps.Lattice, limits: maps.Limits | None = None
) -> Axes:
    """Draw the mean of a belief on a lattice over the world, or a note if there is no belief."""
    ax.set_title("Belief: mean")
    if belief is None:
        return _without_belief(ax, world)
    mean, _ = belief.posterior(lattice.points)
    maps.plot_lattice(ax, lattice, mean, limits=limits, label=style.with_unit("posterior mean", world.unit))
    return _framed(ax, world)


def plot_std(ax: Axes, belief: PlaceBelief | None, world: World, lattice: maps.Lattice) -> Axes:
    """Draw the standard deviation of a belief; arguments and result are those of ``plot_mean``."""
    ax.set_title("Belief: standard deviation")
    if belief is None:
        return _without_belief(ax, world)
    _, var = belief.posterior(lattice.points)
    std = np.sqrt(np.maximum(var, 0.0))
    label = style.with_unit("posterior standard deviation", world.unit)
    maps.plot_lattice(ax, lattice, std, style.STD_COLOURS, maps.from_zero(std), label, n_contours=0)
    return _framed(ax, world)


def plot_error(ax: Axes, belief: PlaceBelief | None, world: World) -> Axes:
    """Draw the absolute error of a belief's mean; arguments are those of ``plot_std``, without lattice."""
    ax.set_title("Error: |mean - truth|")
    if world.points is None or world.values is None:
        return style.write_message(ax, _NO_TRUTH)
    if belief is None:
        return _without_belief(ax, world)
    mean, _ = belief.posterior(world.points)
    error = np.abs(mean - world.values)
    look: dict[str, Any] = {"colours": style.ERROR_COLOURS, "n_contours": 0, "limits": maps.from_zero(error)}
    label = style.with_unit("absolute error", world.unit)
    maps.plot_field(ax, world.points, error, bool(world.no_go), label=label, **look)
    return _framed(ax, world)


def plot_level(ax: Axes, world: World, level: float, belief: PlaceBelief | None = None) -> Axes:
    """Draw the line at which a field, or the mean of a belief about it, equals a level."""
    lattice, values = maps.lattice_over(world), None
    if belief is not None:
        values = belief.posterior(lattice.points)[0]
    elif (found := maps.world_lattice(world)) is not None:
        lattice, values = found
    picture = np.ma.masked_all(lattice.shown.shape) if values is None else lattice.image(values)
    if picture.count() and picture.min() < level < picture.max():
        look = style.LEVEL if belief is not None else style.TRUE_LEVEL
        ax.contour(lattice.x, lattice.y, picture, levels=[level], **look)
    return ax


def belief_map_figure(records: Records, world: World, settings: ExactGPSettings) -> Figure:
    """Mean and standard deviation of the belief, with paths and findings; truth and error if the truth is known."""
    world.require_plane()
    world = world.at(records[-1].round)
    belief = belief_after(records, settings, world.domain)
    lattice = maps.lattice_over(world)
    has_truth = world.has_truth
    with style.applied():
        figure, panels = _panels(world, 4 if has_truth else 2)
        # one colour scale for truth and mean, so that equal colours mean equal values
        means = [] if belief is None else [belief.posterior(lattice.points)[0][lattice.shown.ravel()]]
        limits = maps.limits_of(means if world.values is None else [world.values, *means])
        if has_truth:
            plot_truth(panels[0], world, limits)
            plot_error(panels[3], belief, world)
        mean, std = panels[1:3] if has_truth else panels
        plot_mean(mean, belief, world, lattice, limits)
        plot_std(std, belief, world, lattice)
        for ax in (mean, std):
            if world.standpoints:
                maps.plot_sensors(ax, records, world.standpoints)
            else:
                maps.plot_paths(ax, records, world)
            if world.goal == "peak":
                maps.plot_findings(ax, records, with_best=world.frames is None)
        if world.level is not None:
            plot_level(mean, world, world.level, belief)
            for ax in (panels[0], mean, panels[3]) if has_truth else ():
                plot_level(ax, world, world.level)
        if has_truth and world.goal == "peak":
            _mark_maximum(mean, world)
        for ax in panels:
            maps.clip_strays(ax)
            ax.label_outer(remove_inner_ticks=True)
        figure.suptitle(_headline(records, world), x=0.01, ha="left", fontsize=12.5)
        handles = _legend_handles(records, world)
        columns = style.legend_columns(figure.get_figwidth(), handles, 1.45)
        figure.set_figheight(figure.get_figheight() + 0.18 * (-(-len(handles) // columns) - 1))  # rows of the legend
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=1.6, columnspacing=1.4)
    return figure


def _mark_maximum(ax: Axes, world: World) -> Axes:
    if world.argmax is not None:
        ax.plot(*world.argmax, **style.MAXIMUM)
    return ax


def _without_belief(ax: Axes, world: World) -> Axes:
    note = "no belief: no measurement has succeeded"
    ax.text(0.5, 0.985, note, transform=ax.transAxes, ha="center", va="top", color=style.MUTED)
    return _framed(ax, world)


def _framed(ax: Axes, world: World) -> Axes:
    for rings in world.no_go:
        style.draw_no_go(ax, rings)
    maps.draw_bases(ax, world)
    return maps.frame_map(ax, world)


def _panels(world: World, n_panels: int) -> tuple[Figure, list[Axes]]:
    """Panels in the shape of the world: side by side, or one above the other where the world is wide."""
    aspect = maps.drawn_aspect(world)
    side_by_side = aspect > 0.6 if n_panels < 4 else aspect > 0.9
    panel_width = 3.9 / np.sqrt(aspect) if side_by_side else 8.0
    panel_height = panel_width * aspect
    rows, columns = (1, n_panels) if side_by_side else (n_panels // 2, 2) if n_panels == 4 else (n_panels, 1)
    figure = style.new_figure(columns * (panel_width + 1.25), rows * (panel_height + 0.6) + 1.1, "compressed")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def _headline(records: Records, world: World) -> str:
    _, y = measurements(records)
    n_failed, agents = len(failures(records)), agents_of(records, world)
    parts = [part for part in (world.name, world.method) if part]
    team = counted(len(agents), style.role_of(agents))
    parts += [f"round {records[-1].round}", team, counted(len(y), "measurement")]
    return " · ".join([*parts, f"{n_failed} failed"] if n_failed else parts)


def _legend_handles(records: Records, world: World) -> list[Line2D]:
    findings = ["best", "recommendation", "maximum"]
    if world.standpoints:
        marks = maps.sensor_legend(len(failures(records)) > 0)
        return [*marks, *maps.legend_of(records, world, ["level", "true level", *findings])]
    robots: list[Line2D] = []
    for index, agent in enumerate(agents_of(records, world)):
        style_of_agent: dict[str, Any] = {"linestyle": style.agent_dashes(index), "marker": style.agent_marker(index)}
        robots.append(Line2D([], [], color=style.agent_colour(index), linewidth=2.4, label=agent, **style_of_agent))
    start = Line2D([], [], marker="s", markersize=6, label="start", color=style.MUTED, linestyle="none")
    shown = ["failed", "level", "true level", "no-go", "base", *findings]
    return [*robots, start, *maps.legend_of(records, world, shown)]
