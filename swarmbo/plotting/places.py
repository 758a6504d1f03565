"""Marks of places on every map: ways, measurements, sensors, regions that are no-go, bases, and what was found."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from swarmbo.plotting import style
from swarmbo.plotting.history import Records, World, agents_of, driven_by, failures, stops_of
from swarmbo.records import RoundRecord

_SENSORS: dict[str, Any] = {"marker": "s", "linewidths": 0.9, "edgecolors": style.INK, "clip_on": False, "zorder": 5}
_SPOTS: dict[str, Any] = {**_SENSORS, "marker": "o", "edgecolors": "white", "color": style.VERMILLION, "zorder": 6}
_EARLIER: dict[str, Any] = {"color": style.VERMILLION, "alpha": 0.35, "s": 7, "linewidths": 0, "zorder": 3.5}
_AWAKE, _ASLEEP = "white", "#9aa3ad"


def draw_ways(ax: Axes, ways: Sequence[Float[np.ndarray, "k d"]], width: float, **look: Any) -> list[Line2D]:
    """Draw the path of each agent, in its colour and dashes; ``width`` in points."""
    drawn: list[Line2D] = []
    for index, way in enumerate(ways):
        own: dict[str, Any] = {"color": style.agent_colour(index), "linestyle": style.agent_dashes(index)}
        drawn += ax.plot(*way.T[:2], linewidth=width, **own, **look)
    return drawn


def draw_stops(ax: Axes, stops: Sequence[Float[np.ndarray, "k d"]], size: float, **look: Any) -> list[Line2D]:
    """Draw the agent's own mark where each agent measured; the arguments are those of ``draw_ways``."""
    look = {"linestyle": "none", "markersize": size, "markeredgewidth": 0.5, "markeredgecolor": "white", **look}
    drawn: list[Line2D] = []
    for index, own in enumerate(stops):
        one: dict[str, Any] = {"color": style.agent_colour(index), "marker": style.agent_marker(index), **look}
        drawn += ax.plot(*own.T[:2], **one)
    return drawn


def draw_failed(
    ax: Axes, places: Float[np.ndarray, "k d"], size: float, width: float = 1.8, casing: float = 0.0, zorder: float = 6
) -> list[Line2D]:
    """Draw a cross where each measurement failed; nothing where none did."""
    if not len(places):
        return []
    look: dict[str, Any] = {**style.FAILED, "markersize": size, "markeredgewidth": width, "zorder": zorder}
    return ax.plot(*places.T[:2], path_effects=style.cased(casing) if casing else [], clip_on=False, **look)


def draw_bases(ax: Axes, world: World, size: float = style.BASE["markersize"]) -> list[Artist]:
    """Draw where agents load their batteries, each in the colour of its agent."""
    look: dict[str, Any] = {**style.BASE, "markersize": size}
    bases = enumerate(world.bases.values())
    return [line for index, base in bases for line in ax.plot(*base[:2], color=style.agent_colour(index), **look)]


def draw_terrain(ax: Axes, world: World) -> list[Artist]:
    """Draw no-go regions and bases."""
    return [*(style.draw_no_go(ax, rings) for rings in world.no_go), *draw_bases(ax, world)]


def plot_paths(ax: Axes, records: Records) -> Axes:
    """Draw where each robot measured, joined by what it drove: a square at the start, dots, crosses where it failed."""
    agents = agents_of(records)
    width, ways = 1.7 if len(agents) <= 8 else 1.2, [driven_by(records, agent) for agent in agents]
    look: dict[str, Any] = {"clip_on": False, "zorder": 4}  # robots may stand on the very edge
    lines = draw_ways(ax, ways, width, path_effects=style.cased(width + 1.5), **look)
    for agent, line in zip(agents, lines, strict=True):
        line.set_label(agent)
    draw_stops(ax, [stops_of(records, agent) for agent in agents], 3.2 * width, zorder=4.2)
    start: dict[str, Any] = {"marker": "s", "markeredgecolor": "white", "markeredgewidth": 1.2, "zorder": 4.4}
    draw_stops(ax, [way[:1] for way in ways], 7, clip_on=False, **start)
    draw_failed(ax, failures(records), 7, casing=3.6)
    return ax


def plot_findings(ax: Axes, records: Records, with_best: bool = True) -> Axes:
    """Mark the best measurement (not where the field changes) and the recommendation after the last of these rounds."""
    best, recommendation = records[-1].best, records[-1].recommendation
    if recommendation is not None:
        ax.plot(*recommendation.location[:2], **style.RECOMMENDATION)
    if best is not None and with_best:
        ax.plot(*best.location[:2], **style.BEST)
    return ax


def plot_sensors(ax: Axes, records: Records, standpoints: Mapping[str, Float[np.ndarray, " 2"]]) -> Axes:
    """Draw sensors and what they looked at in the last of these rounds, over faint marks of all earlier looks."""
    earlier = [sample.location for record in records for sample in record.samples if not sample.declined]
    if earlier:
        ax.scatter(*np.array(earlier).T, **_EARLIER)
    draw_sensors(ax, records[-1], standpoints, sizes=(24, 34, 7), width=1.8)
    return ax


def draw_sensors(
    ax: Axes,
    record: RoundRecord,
    standpoints: Mapping[str, Float[np.ndarray, " 2"]],
    sizes: tuple[float, float, float],
    width: float,
) -> list[Artist]:
    """Draw sensors, and beams to the locations sampled; ``sizes`` of sensors, samples (points²), crosses (points)."""
    looked = [sample for sample in record.samples if not sample.declined]  # others sleep
    segments = [np.stack([standpoints[sample.agent], sample.location]) for sample in looked]
    beams = LineCollection(segments, colors=style.INK, linewidths=1.0, zorder=4.5)
    ax.add_collection(beams)
    awake = {sample.agent for sample in looked}
    colours = [_AWAKE if agent in awake else _ASLEEP for agent in standpoints]
    drawn: list[Artist] = [beams]
    drawn.append(ax.scatter(*np.array(list(standpoints.values())).T, s=sizes[0], color=colours, **_SENSORS))
    if good := [sample.location for sample in looked if sample.measurement is not None]:
        drawn.append(ax.scatter(*np.array(good).T, s=sizes[1], **_SPOTS))
    failed = np.array([sample.location for sample in looked if sample.measurement is None]).reshape(-1, 2)
    return [*drawn, *draw_failed(ax, failed, sizes[2], width)]


def sensor_legend(has_failed: bool) -> list[Line2D]:
    """Legend of the marks of sensors."""
    stands: dict[str, Any] = {"marker": "s", "markeredgecolor": style.INK, "linestyle": "none", "markersize": 6}
    marks = [
        Line2D([], [], markerfacecolor=_AWAKE, label="sensor", **stands),
        Line2D([], [], markerfacecolor=_ASLEEP, label="saved its energy", **stands),
        Line2D([], [], marker="o", color=style.VERMILLION, linestyle="none", markersize=6.5, label="looked at"),
        Line2D([], [], marker="o", color=style.VERMILLION, alpha=0.35, linestyle="none", markersize=3, label="earlier"),
    ]
    return [*marks, Line2D([], [], **style.FAILED)] if has_failed else marks


def legend_of(records: Records, world: World, names: Sequence[str]) -> list[Line2D]:
    """Legend of the marks among ``names`` that are on the maps of a run, in that order."""
    has_truth, is_peak = world.values is not None and world.values.size > 0, world.goal == "peak"
    told = (isinstance(sample.battery, float) for record in records for sample in record.samples)
    there: dict[str, tuple[bool, dict[str, Any]]] = {
        "no-go": (bool(world.no_go), style.LEGEND_NO_GO),
        "base": (bool(world.bases), style.LEGEND_BASE),
        "failed": (len(failures(records)) > 0, style.FAILED),
        "battery": (any(told), style.LEGEND_BATTERY),
    }
    found = {"best": (is_peak, style.BEST), "recommendation": (is_peak, style.RECOMMENDATION)}
    found["maximum"] = is_peak and has_truth, style.MAXIMUM
    marks = {name: Line2D([], [], **look) for name, (is_there, look) in there.items() if is_there}
    marks |= {name: style.legend_mark(look) for name, (is_there, look) in found.items() if is_there}
    if world.level is not None:
        label = f"level {world.level:g} {world.unit}".rstrip()
        marks["level"] = Line2D([], [], color=style.INK, linewidth=1.8, label=label)
        if has_truth:
            dashes = style.TRUE_LEVEL["linestyles"][0]
            marks["true level"] = Line2D([], [], color=style.INK, linewidth=1.3, linestyle=dashes, label="true level")
    return [marks[name] for name in names if name in marks]
