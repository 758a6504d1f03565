"""Traffic over the links in each round, and faults: lost messages, the age of messages on arrival, and failures."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from swarmbo.boundary.values import counted
from swarmbo.metrics import agreement_traffic, links_of, sharing_links_of, sharing_traffic
from swarmbo.plotting import style
from swarmbo.plotting.history import Records
from swarmbo.records import EdgeTraffic, LinkReport, NetworkRecord, RoundRecord, Traffic

Count = Literal["messages", "transmissions", "bytes"]


def plot_traffic(ax: Axes, records: Records, count: Count = "messages") -> Axes:
    """Draw one count of traffic against rounds, stacked: coordination below, sharing of measurements above.

    A relayed message counts as one transmission per link; its bytes count once.
    """
    coordination = [getattr(r.report.traffic if r.report else Traffic(), count) for r in records]
    sharing = [getattr(r.sharing, count) for r in records]
    counts = {"agreeing where to measure": (style.BLUE, coordination), "sharing measurements": (style.ORANGE, sharing)}
    _stacked(ax, [record.round for record in records], counts, room=1.08, ticks=MaxNLocator(7, integer=True))
    ax.set_title(f"{count.capitalize()}: {sum(coordination) + sum(sharing):,.0f} in all")
    ax.set_ylabel(f"{count} per round")
    return ax


def traffic_figure(records: Records) -> Figure:
    """Messages, transmissions if any message was relayed, and bytes against rounds."""
    total = agreement_traffic(records) + sharing_traffic(records)
    relayed = total.transmissions != total.messages
    counts: tuple[Count, ...] = ("messages", "transmissions", "bytes") if relayed else ("messages", "bytes")
    with style.applied():
        figure = style.new_figure(4.4 * len(counts), 3.7)
        panels = figure.subplots(1, len(counts))
        for ax, count in zip(panels, counts, strict=True):
            plot_traffic(ax, records, count)
        style.legend_below(figure, panels[0], 2)
    return figure


Purpose = Literal["agree", "share"]
_LINKS: Mapping[Purpose, Callable[[RoundRecord], LinkReport | None]] = {"agree": links_of, "share": sharing_links_of}
Counts = Mapping[str, tuple[str, Sequence[float]]]  # by label: a colour, and a number for each round


def plot_fates(ax: Axes, records: Records, purpose: Purpose = "agree") -> Axes:
    """Draw the fates of messages to agree, or to share, over links with faults, against rounds."""
    edges = [EdgeTraffic() if (links := _LINKS[purpose](record)) is None else links.total for record in records]
    total = sum(edges, EdgeTraffic())
    arrived, lost = [edge.arrived for edge in edges], [edge.lost for edge in edges]
    counts = {"arrived": (style.BLUE, arrived), "lost": (style.VERMILLION, lost)}
    _stacked(ax, [record.round for record in records], counts)
    return _labelled(ax, f"Messages to {purpose}: {total.lost / max(1, total.messages):.0%} lost", "messages per round")


def plot_age(ax: Axes, records: Records, purpose: Purpose = "agree") -> Axes:
    """Draw the age of messages on arrival: the mean, and the means on the fastest and the slowest link."""
    known = [(r.round, links) for r in records if (links := _LINKS[purpose](r)) is not None and links.total.arrived]
    rounds, mean = [number for number, _ in known], [links.total.age for _, links in known]
    ages = [[edge.age for edge in links.edges.values() if edge.arrived] for _, links in known]
    spread = [min(on_links) for on_links in ages], [max(on_links) for on_links in ages]
    ax.fill_between(rounds, *spread, color=style.SKY, alpha=0.35, linewidth=0.0, label="quickest to slowest edge")
    ax.plot(rounds, mean, color=style.BLUE, marker="o", markersize=3.0, label="mean")
    _scale_axes(ax, [record.round for record in records], 1.4 * max([*spread[1], 1.0]))
    noun = "news" if purpose == "agree" else "measurements"
    return _labelled(ax, f"Age of {noun} on arrival", "steps of the links' clock")


def plot_failures(ax: Axes, records: Records) -> Axes:
    """Draw failures against rounds: failed measurements or evaluations, silent agents, and so on."""
    counts = _failures(records)
    _stacked(ax, [record.round for record in records], counts)
    total = sum(sum(numbers) for _, numbers in counts.values())
    return _labelled(ax, f"Failures: {total:,.0f} in all", "failures per round")


def plot_network(ax: Axes, network: Sequence[NetworkRecord]) -> Axes:
    """Draw a fleet's repeated messages, refused messages, restarts, and rounds without some agents (shaded)."""
    rounds = [record.round for record in network]
    repeated, refused = [record.repeated for record in network], [record.refused for record in network]
    _stacked(ax, rounds, {"repeated": (style.ORANGE, repeated), "refused": (style.VERMILLION, refused)})
    # of several marks only the first is in the legend
    for n, at in enumerate(record.round for record in network if record.restarts):
        label = None if n else "a process started again"
        ax.axvline(at, color=style.INK, linewidth=1.0, linestyle=(0, (4, 2)), label=label)
    for n, at in enumerate(record.round for record in network if record.absent):
        label = None if n else "an agent absent"
        ax.axvspan(at - 0.5, at + 0.5, color=style.SKY, alpha=0.35, linewidth=0.0, zorder=0.0, label=label)
    count = sum(sum(record.restarts.values()) for record in network)
    return _labelled(ax, f"The fleet's network: {counted(count, 'restart')}", "messages per round")


def faults_figure(records: Records, network: Sequence[NetworkRecord] = ()) -> Figure | None:
    """Figure of faults over time, with a panel for each kind that occurred; None if nothing went wrong."""
    panels: list[Callable[[Axes], Axes]] = []
    for purpose, links_of_record in _LINKS.items():
        totals = [links.total for record in records if (links := links_of_record(record)) is not None]
        if any(total.messages for total in totals):
            panels.append(partial(plot_fates, records=records, purpose=purpose))
        if any(total.arrived for total in totals):
            panels.append(partial(plot_age, records=records, purpose=purpose))
    if _failures(records):
        panels.append(partial(plot_failures, records=records))
    if network:
        panels.append(partial(plot_network, network=network))
    if not panels:
        return None
    with style.applied():
        figure, axes = style.panel_grid(len(panels), [3.7], 4.4, 4.8)
        for (ax,), plot in zip(axes, panels, strict=True):
            plot(ax)
    return figure


def _failures(records: Records) -> dict[str, tuple[str, list[float]]]:
    """Counts of failures in each round; kinds that never failed are left out."""
    reports = [links_of(record) for record in records]
    unit = "measurements" if all(record.joint is None for record in records) else "evaluations"
    counts: dict[str, tuple[str, list[float]]] = {
        unit: (style.VERMILLION, [sum(e.measurement is None for e in record.evaluations) for record in records]),
        "silent agents": (style.PURPLE, [0 if links is None else len(links.silent) for links in reports]),
        "agents without a choice": (style.ORANGE, [0 if links is None else len(links.without) for links in reports]),
        "clashes": (style.INK, [0 if links is None else links.clashes for links in reports]),
    }
    return {label: (colour, numbers) for label, (colour, numbers) in counts.items() if any(numbers)}


def _stacked(
    ax: Axes, rounds: Sequence[int], counts: Counts, room: float = 1.4, ticks: MaxNLocator | None = None
) -> None:
    bottom, width = np.zeros(len(rounds)), 0.82 if len(rounds) <= 80 else 1.0
    for label, (colour, numbers) in counts.items():
        heights = np.array(numbers, dtype=float)
        ax.bar(rounds, heights, width, bottom=bottom, color=colour, label=label)
        bottom += heights
    _scale_axes(ax, rounds, room * float(bottom.max(initial=0.0)), ticks)


def _labelled(ax: Axes, title: str, label: str) -> Axes:
    ax.legend(loc="upper left", ncols=2, frameon=True, framealpha=1.0, edgecolor="white")  # over lines and shades
    ax.set_title(title)
    ax.set_ylabel(label)
    return ax


def _scale_axes(ax: Axes, rounds: Sequence[int], top: float, ticks: MaxNLocator | None = None) -> None:
    style.rounds_axis(ax)
    ax.set_xlim(rounds[0] - 0.6, rounds[-1] + 0.6)
    ax.set_ylim(0.0, top or 1.0)
    ax.yaxis.set_major_locator(ticks or MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.grid(visible=False, axis="x")
