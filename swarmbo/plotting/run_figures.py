"""All figures of one run, and the figure of map error against traffic."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from swarmbo.belief import ExactGPSettings, Views
from swarmbo.boundary.values import counted
from swarmbo.coordination.plan import TraceRow
from swarmbo.errors import DataWarning
from swarmbo.graph import FactorGraph
from swarmbo.metrics import agreement_traffic, sharing_traffic
from swarmbo.plotting import style
from swarmbo.plotting.agent_maps import agent_maps_figure, error_of, records_of
from swarmbo.plotting.animation import write_animation
from swarmbo.plotting.belief_map import belief_map_figure
from swarmbo.plotting.history import Records, World, agents_of, belief_after
from swarmbo.plotting.regret import regret_figure
from swarmbo.plotting.style import Formats
from swarmbo.plotting.traffic import faults_figure, traffic_figure
from swarmbo.plotting.variables import factor_graph_figure, variables_figure
from swarmbo.records import NetworkRecord, Score

_NARROWEST_BAND = 0.005  # share of the axis: the line in a narrower band hides it
MOST_REBUILT = 60  # rounds for which the pooled belief and every agent's are rebuilt


@dataclass(frozen=True, eq=False)
class ErrorTraces:
    """Map errors after each round; NaN where unknown.

    ``fused`` has the lowest, mean and largest error of local beliefs, as logged; ``pooled`` the error of an exact GP on
    all measurements; ``alone`` the mean error of exact GPs on one agent's data; ``shared_kb`` the kB sent so far.
    """

    rounds: Float[np.ndarray, " n"]
    shared_kb: Float[np.ndarray, " n"]
    fused: Float[np.ndarray, "3 n"]
    pooled: Float[np.ndarray, " n"]
    alone: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, records: Records, world: World, settings: ExactGPSettings) -> "ErrorTraces":
        """Read logged errors and rebuild the others, in runs of more than 60 rounds for 60 evenly picked rounds."""
        agents = agents_of(records)
        pooled, alone = np.full(len(records), np.nan), np.full(len(records), np.nan)
        records_by_agent = {agent: records_of(records, agent) for agent in agents}
        for n in np.linspace(0, len(records) - 1, min(len(records), MOST_REBUILT)).round().astype(int):
            present = world.at(records[n].round)
            if (error := error_of(belief_after(records[: n + 1], settings, world.domain), present)) is not None:
                pooled[n] = error
            beliefs = [belief_after(log[: n + 1], settings, world.domain) for log in records_by_agent.values()]
            errors = [error for belief in beliefs if (error := error_of(belief, present)) is not None]
            if errors:
                alone[n] = np.mean(errors)
        rounds = np.array([record.round for record in records], dtype=float)
        shared_kb = np.cumsum([record.sharing.bytes for record in records]) / 1e3
        return cls(rounds, shared_kb, np.array([_spread(record.score) for record in records]).T, pooled, alone)


def _spread(score: Score | None) -> tuple[float, float, float]:
    error, by_view = (None, None) if score is None else (score.map_rmse, score.view_rmse)
    errors = list(by_view.values()) if by_view else [np.nan if error is None else error]  # of an older log
    return min(errors), float(np.mean(errors)), max(errors)


def plot_errors(ax: Axes, traces: ErrorTraces, at: Float[np.ndarray, " n"], unit: str = "") -> Axes:
    """Draw map errors: of fused beliefs with their range, from all data pooled, and from agents' own data."""
    low, mean, high = traces.fused
    is_alone, is_pooled = np.isfinite(traces.alone), np.isfinite(traces.pooled)
    label = "own data alone, mean over agents"
    ax.plot(at[is_alone], traces.alone[is_alone], "o-", color=style.ORANGE, markersize=2.6, label=label)
    is_spread = bool(np.nanmax(high - low, initial=0.0) > _NARROWEST_BAND * np.nanmax(high, initial=0.0))
    if is_spread:
        band: dict[str, Any] = {"facecolor": style.SKY, "alpha": 0.5, "edgecolor": style.BLUE, "linewidth": 0.8}
        ax.fill_between(at, low, high, label="fused, best to worst agent", **band)
    label = "fused, mean over agents" if is_spread else "fused, all agents alike"
    ax.plot(at, mean, "o-", color=style.BLUE, markersize=3.2, label=label)
    dashed: dict[str, Any] = {"color": style.INK, "linewidth": 1.3, "linestyle": (0, (4, 2.4))}
    ax.plot(at[is_pooled], traces.pooled[is_pooled], label="all data pooled", **dashed)
    ax.set_ylabel(style.with_unit("map RMSE", unit))
    ax.set_ylim(bottom=0.0)
    return ax


def error_traffic_figure(records: Records, world: World, settings: ExactGPSettings) -> Figure:
    """Map errors of ``ErrorTraces``, against rounds and against the bytes sent to share measurements."""
    traces = ErrorTraces.of(records, world, settings)
    with style.applied():
        figure = style.new_figure(10.6, 4.2)
        by_round, by_bytes = figure.subplots(1, 2, sharey=True)
        style.rounds_axis(plot_errors(by_round, traces, traces.rounds, world.unit))
        plot_errors(by_bytes, traces, traces.shared_kb, "").set_xlabel("kB sent so far to share measurements")
        by_bytes.set_ylabel("")
        by_bytes.set_xlim(left=0.0)
        style.legend_below(figure, by_round)
        name = f"{world.name} · " if world.name else ""
        figure.suptitle(f"{name}error of the map, agent by agent", x=0.01, ha="left", fontsize=12.5)
    return figure


def plot_solve_trace(
    ax: Axes, rows: Sequence[TraceRow], to_cost: Callable[[float], float] = float, *, by_bytes: bool = False
) -> Axes:
    """Draw the best value so far and its bound, converted by ``to_cost``, as steps against rounds or bytes."""
    places = np.array([row.traffic.bytes if by_bytes else row.round for row in rows], dtype=float)

    def line(numbers: Sequence[float | None]) -> np.ndarray:
        return np.array([np.nan if x is None or not math.isfinite(x) else to_cost(x) for x in numbers])

    values, bounds = line([row.value for row in rows]), line([row.bound for row in rows])
    marks: dict[str, Any] = {"marker": "o", "markersize": 4.0} if len(rows) <= 30 else {}
    ax.step(places, values, where="post", color=style.BLUE, label="best choice so far", zorder=3, **marks)
    if not np.isnan(bounds).all():
        marks |= {"linewidth": 3.6, "markersize": 7.0}  # wider and below: both are seen where they are equal
        ax.step(places, bounds, where="post", color=style.VERMILLION, label="no choice is beyond", **marks)
        ax.fill_between(places, values, bounds, step="post", color=style.VERMILLION, alpha=0.12, linewidth=0.0)
    if np.isnan(values).all():
        return style.write_message(ax, "every choice so far is forbidden")
    style.rounds_axis(ax)
    if by_bytes:
        ax.set_xlabel("bytes sent")
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        ax.xaxis.set_major_locator(MaxNLocator(6))
    return ax


def solve_trace_figure(rows: Sequence[TraceRow], title: str, label: str, to_cost: Callable[[float], float]) -> Figure:
    """Figure of a solve's trace against rounds and against bytes."""
    with style.applied():
        figure = style.new_figure(8.8, 3.7)
        left, right = figure.subplots(1, 2, sharey=True)
        plot_solve_trace(left, rows, to_cost)
        plot_solve_trace(right, rows, to_cost, by_bytes=True)
        left.set_ylabel(label)
        left.set_title(title)
        style.legend_below(figure, left, 2)
    return figure


def write_figures(
    records: Records,
    world: World,
    settings: ExactGPSettings | None,
    folder: Path,
    fused: bool = False,
    views: Views | None = None,
    formats: Formats | None = None,
    network: Sequence[NetworkRecord] = (),
) -> list[Path]:
    """Write the figures that suit a (possibly incomplete) run, with the ``settings`` of its belief.

    If each agent had a local belief (``fused``), maps show the exact belief of all measurements pooled, and say so.
    """
    if not records:
        return []
    formats, written = formats or Formats(), list[Path]()

    def write(name: str, figure: Figure) -> None:
        style.name_figure(figure, world.name, world.method)
        written.append(style.save(figure, folder / f"{name}.{formats.figures}", formats.dpi))

    belief = settings if world.has_map else None
    named_world = replace(world, name=f"{world.name} · belief by all data pooled".lstrip(" ·")) if fused else world
    if belief is not None:
        write("belief", belief_map_figure(records, named_world, belief))
    elif not world.variables:
        lacks = f"locations have {counted(world.domain.n_dims, 'coordinate')}, and maps need 2"
        why = "the belief cannot be rebuilt without code of yours" if world.has_map else lacks
        warnings.warn(f"no map and no film: {why}", DataWarning, stacklevel=2)
    write("regret", regret_figure(records, world))
    if (agreement_traffic(records) + sharing_traffic(records)).messages:
        write("traffic", traffic_figure(records))
    if (faults := faults_figure(records, network)) is not None:
        write("faults", faults)
    if world.variables:
        write("variables", variables_figure(records, world))
    if graphs := _graphs(world, records[-1].round):
        write("factor_graph", factor_graph_figure(graphs))
    if fused and belief is not None:
        write("agents", agent_maps_figure(records, world, belief, views))
    is_scored = any(record.score is not None and record.score.map_rmse is not None for record in records)
    if fused and settings is not None and is_scored:
        write("error_traffic", error_traffic_figure(records, world, settings))
    if belief is not None and any(record.samples for record in records):
        written.append(write_animation(records, named_world, belief, folder / f"run.{formats.animation}"))
    return written


def _graphs(world: World, last_round: int) -> dict[str, FactorGraph]:
    """The factor graph stated to the agents and the one in use at the end, by title."""
    stated, used = world.graph, world.graph_in_use
    if used is None:
        return {} if stated is None else {"": stated}
    after = f"in use after round {last_round}"
    if stated is None:
        return {f"Scopes {after}": used}
    if {frozenset(scope) for scope in stated.scopes} == {frozenset(scope) for scope in used.scopes}:
        return {f"Scopes as told, and {after}": stated}
    return {"Scopes as told": stated, f"Scopes {after}": used}
