"""Maps of single agents: from their own measurements, of their fused beliefs, and from all data pooled."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure, SubFigure

from swarmbo.belief import ExactGP, ExactGPSettings, Views, means_by_agent
from swarmbo.boundary.values import counted
from swarmbo.metrics import map_rmse
from swarmbo.plotting import maps, style
from swarmbo.plotting.belief_map import plot_level
from swarmbo.plotting.history import Records, World, agents_of, belief_after, measurements
from swarmbo.records import RoundRecord

MOST_AGENTS = 4
_WIDTH = 7.4  # inches of a text column: a wider figure would be scaled down there, with its text
_HIGHEST = 3.2  # inches of a map
_BESIDE_WIDTH = 1.45  # inches: of the colour bar and of labels
_FONT_SIZE = 8.0  # points
_LONGEST = 14  # characters in a line of a name
_RESOLUTION = 72  # points along a map an inch or two wide
_READING: dict[str, Any] = {"s": 9, "color": "white", "edgecolors": style.INK, "linewidths": 0.6, "zorder": 4}
_LEVEL: dict[str, Any] = {**style.LEVEL, "linewidths": 1.1}
_OWN, _FUSED, _POOLED = style.ORANGE, style.BLUE, style.INK
NO_VIEWS = " · no maps of what each agent believes: the run folder has no checkpoint to rebuild it from"


def records_of(records: Records, agent: str) -> list[RoundRecord]:
    """Rounds with the measurements of this agent alone."""
    return [msgspec.structs.replace(r, samples=[one for one in r.samples if one.agent == agent]) for r in records]


def error_of(belief: ExactGP | None, world: World) -> float | None:
    """Root mean squared error of a belief at the world's evaluation points; None without a belief or the truth."""
    if belief is None or world.points is None or world.values is None or not world.has_truth:
        return None
    return map_rmse(belief.posterior_mean(world.points), world.values)


def plot_view_errors(
    ax: Axes, own: Mapping[str, float | None], fused: Mapping[str, float | None], pooled: float | None, unit: str = ""
) -> Axes:
    """Draw map errors: of each agent from its own data (None: no data) and after fusion, and from all data pooled."""
    places, role = np.arange(len(own)), style.role_of(list(own))
    for errors, colour, marker, label in ((own, _OWN, "o", "own data alone"), (fused, _FUSED, "D", "fused")):
        if errors:
            heights = np.array([errors.get(agent) for agent in own], dtype=float)
            ax.plot(places, heights, marker, color=colour, markersize=5.5, label=label)
    if pooled is not None:
        ax.axhline(pooled, color=_POOLED, linewidth=1.2, linestyle=(0, (4, 3)), label="all data pooled", zorder=1.5)
    names = [fill(agent.removeprefix(f"{role}_"), _LONGEST) for agent in own]
    is_crowded = len(own) > 24 or len(own) * max(map(len, names), default=0) > 84  # characters in the width of the axis
    ax.set_xticks(places, names, rotation=90 if is_crowded else 0)
    ax.set_xlim(-0.6, len(own) - 0.4)
    top = ax.dataLim.y1
    ax.set_ylim(0.0, 1.08 * top if 0.0 < top < np.inf else 1.0)
    ax.grid(visible=False, axis="x")
    ax.set_xlabel(role)
    ax.set_ylabel(style.with_unit("map RMSE", unit))
    ax.set_title(f"Map error of every {role}")
    ax.legend(loc="lower right", bbox_to_anchor=(1.01, 0.99), ncols=3, borderaxespad=0.2, columnspacing=1.2)
    return ax


def agent_maps_figure(records: Records, world: World, settings: ExactGPSettings, views: Views | None) -> Figure:
    """Posterior means on one scale: of up to 4 agents from their own data and after fusion, and from all data.

    Beliefs from own data and from all data are exact GPs with the last round's hyper-parameters. If the truth is known,
    the errors of all agents are drawn below.
    """
    world.require_plane()
    panel = _AgentMaps(records, world.at(records[-1].round), settings, views)
    aspect, n_rows = maps.drawn_aspect(world), 1 if views is None else 2
    side = min((_WIDTH - _BESIDE_WIDTH) / (len(panel.chosen) + 3 - n_rows), 2.2, _HIGHEST / aspect)
    has_truth = panel.pooled_error is not None
    headline = fill(_headline(records[-1].round, panel), 92)
    longest_name = max(map(len, panel.own_errors), default=0)
    maps_height = n_rows * (side * aspect + 0.75 + 0.15 * (longest_name // _LONGEST))
    errors_height = 2.4 if longest_name <= _LONGEST else 3.5
    with style.applied():
        heights = [0.12 + 0.18 * (headline.count("\n") + 1), maps_height, *([errors_height] if has_truth else [])]
        figure = style.new_figure(_WIDTH, sum(heights))
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        parts[0].text(0.01, 0.5, headline, fontsize=9.5, va="center")
        panel.draw(parts[1])
        if has_truth:
            plot_view_errors(parts[2].subplots(), panel.own_errors, panel.fused_errors, panel.pooled_error, world.unit)
    return figure


class _AgentMaps:
    """Beliefs and errors of the figure: ``own`` from each agent's own data, ``fused`` after fusion, None if unknown."""

    def __init__(self, records: Records, world: World, settings: ExactGPSettings, views: Views | None) -> None:
        agents, lattice = agents_of(records, world), maps.lattice_over(world, _RESOLUTION)
        picked = np.linspace(0, len(agents) - 1, min(MOST_AGENTS, len(agents))).round().astype(int)
        own_beliefs = {agent: belief_after(records_of(records, agent), settings, world.domain) for agent in agents}
        pooled = belief_after(records, settings, world.domain)
        self.records, self.world, self.lattice = records, world, lattice
        self.chosen = [agents[i] for i in picked]
        self.own = {agent: _mean(own_beliefs[agent], lattice) for agent in self.chosen}
        self.fused = None if views is None else means_by_agent(views, lattice.points)
        self.pooled, self.pooled_error = _mean(pooled, lattice), error_of(pooled, world)
        self.own_errors = {agent: error_of(belief, world) for agent, belief in own_beliefs.items()}
        score = records[-1].score
        self.fused_errors: dict[str, float | None] = {} if score is None else {**(score.view_rmse or {})}
        if views is not None and world.points is not None and world.values is not None and world.has_truth:
            means = means_by_agent(views, world.points)
            self.fused_errors = {agent: map_rmse(mean, world.values) for agent, mean in means.items()}

    @property
    def limits(self) -> maps.Limits:
        """One colour scale for all maps, so that equal colours mean equal values."""
        means = [self.pooled, *self.own.values(), *(self.fused[agent] for agent in self.chosen if self.fused)]
        values = [mean[self.lattice.shown.ravel()] for mean in means if mean is not None]
        return maps.limits_of([*values, *([] if self.world.values is None else [self.world.values])]) or (0.0, 0.0)

    def draw(self, figure: SubFigure) -> None:
        n, limits, n_rows = len(self.chosen), self.limits, 1 if self.fused is None else 2
        grid = figure.add_gridspec(n_rows, n + 3 - n_rows)
        panels: list[Axes] = []
        for column, agent in enumerate(self.chosen):
            ax = figure.add_subplot(grid[0, column])
            self._map(ax, self.own[agent], f"{agent}\nown data", self.own_errors[agent], limits)
            ax.scatter(*measurements(records_of(self.records, agent))[0].T, **_READING)
            panels.append(ax)
            if self.fused is not None:
                below = figure.add_subplot(grid[1, column])
                self._map(below, self.fused[agent], f"{agent}\nfused", self.fused_errors.get(agent), limits)
                panels.append(below)
        pooled, truth = figure.add_subplot(grid[0, n]), figure.add_subplot(grid[-1, -1])
        self._map(pooled, self.pooled, "all data\npooled", self.pooled_error, limits)
        self._truth(truth, limits)
        for ax in [*panels, pooled, truth]:
            ax.label_outer(remove_inner_ticks=True)
        bar = ScalarMappable(maps.normalise(np.array(limits), limits), style.MEAN_COLOURS)
        maps.add_colour_bar([*panels, pooled, truth], bar, style.with_unit("mean", self.world.unit))

    def _map(
        self, ax: Axes, mean: Float[np.ndarray, " m"] | None, title: str, error: float | None, limits: maps.Limits
    ) -> None:
        title = "\n".join(fill(line, _LONGEST) for line in title.splitlines())
        ax.set_title(title if error is None else f"{title}\nRMSE {error:.3g}", fontsize=_FONT_SIZE, pad=4)
        if mean is None:
            ax.text(0.5, 0.5, "no measurement", transform=ax.transAxes, ha="center", va="center", color=style.MUTED)
        else:
            maps.plot_lattice(ax, self.lattice, mean, limits=limits, n_contours=0)
            level = self.world.level
            if level is not None and mean.min() < level < mean.max():
                ax.contour(self.lattice.x, self.lattice.y, self.lattice.image(mean), levels=[level], **_LEVEL)
        self._frame(ax)

    def _frame(self, ax: Axes) -> None:
        for rings in self.world.no_go:
            style.draw_no_go(ax, rings)
        maps.frame_map(ax, self.world, x_ticks=2)
        ax.tick_params(labelsize=_FONT_SIZE - 1)
        for label in (ax.xaxis.label, ax.yaxis.label):
            label.set_fontsize(_FONT_SIZE)

    def _truth(self, ax: Axes, limits: maps.Limits) -> None:
        if self.world.points is None or self.world.values is None:
            style.write_message(ax, "the truth\nis not known")
            return
        ax.set_title("truth", fontsize=_FONT_SIZE, pad=4)
        maps.plot_field(ax, self.world.points, self.world.values, bool(self.world.no_go), limits=limits, n_contours=0)
        if self.world.level is not None:
            plot_level(ax, self.world, self.world.level)
        self._frame(ax)


def _mean(belief: ExactGP | None, lattice: maps.Lattice) -> Float[np.ndarray, " m"] | None:
    return None if belief is None else belief.posterior_mean(lattice.points)


def _headline(last: int, shown: _AgentMaps) -> str:
    n = len(shown.own_errors)
    team = counted(n, style.role_of(list(shown.own_errors)))
    selection = "" if n == len(shown.chosen) else f" · maps of {len(shown.chosen)} of {team}, evenly picked"
    level = "" if shown.world.level is None else f" · line: level {shown.world.level:g} {shown.world.unit}".rstrip()
    return f"round {last}{selection} · dots: measurements{level}{NO_VIEWS if shown.fused is None else ''}"
