"""Traffic over the links in each round, and faults: messages that were lost, how old news were, what failed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from swarmbo.metrics import agreement_traffic, links_of, sharing_links_of, sharing_traffic
from swarmbo.plotting import style
from swarmbo.records import EdgeTraffic, LinkReport, NetworkRecord, RoundRecord, Traffic

Count = Literal["messages", "transmissions", "bytes"]


def plot_traffic(ax: Axes, records: Sequence[RoundRecord], count: Count = "messages") -> Axes:
    """Draw one count of the traffic against rounds, coordination below and sharing of measurements on top.

    Args:
        count: ``messages`` (between two agents), ``transmissions`` (a relayed message counts once a hop), or ``bytes``
            (encoded size, once a message).
    """
    coordination = [getattr(r.report.traffic if r.report else Traffic(), count) for r in records]
    sharing = [getattr(r.sharing, count) for r in records]
    counts = {"agreeing where to measure": (style.BLUE, coordination), "sharing measurements": (style.ORANGE, sharing)}
    _stacked(ax, [record.round for record in records], counts, room=1.08, ticks=MaxNLocator(7, integer=True))
    ax.set_title(f"{count.capitalize()}: {sum(coordination) + sum(sharing):,.0f} in all")
    ax.set_ylabel(f"{count} per round")
    return ax


def total_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """All that crossed the links in some rounds."""
    return agreement_traffic(records) + sharing_traffic(records)


def traffic_figure(records: Sequence[RoundRecord]) -> Figure:
    """Messages, transmissions and bytes against rounds.

    Returns:
        A figure of three panels; of two where no message was relayed, so that transmissions are the messages.
    """
    total = total_traffic(records)
    relayed = total.transmissions != total.messages
    counts: tuple[Count, ...] = ("messages", "transmissions", "bytes") if relayed else ("messages", "bytes")
    with style.applied():
        figure = style.new_figure(4.4 * len(counts), 3.7)
        panels = figure.subplots(1, len(counts))
        for ax, count in zip(panels, counts, strict=True):
            plot_traffic(ax, records, count)
        style.legend_below(figure, panels[0], 2)
    return figure


For = Literal["agree", "share"]
_OF: Mapping[For, Callable[[RoundRecord], LinkReport | None]] = {"agree": links_of, "share": sharing_links_of}
_ABREAST = 4  # panels in a row
Counts = Mapping[str, tuple[str, Sequence[float]]]  # by label: a colour, and a number for each round


def plot_fates(ax: Axes, records: Sequence[RoundRecord], to: For = "agree") -> Axes:
    """Draw what became of the messages to agree, or to share, over links with faults, against rounds.

    Args:
        to: What the messages are for.
    """
    edges = [EdgeTraffic() if (links := _OF[to](record)) is None else links.total for record in records]
    total = sum(edges, EdgeTraffic())
    counts = {
        "arrived": (style.BLUE, [edge.arrived for edge in edges]),
        "lost": (style.VERMILLION, [edge.lost for edge in edges]),
    }
    _stacked(ax, [record.round for record in records], counts)
    ax.legend(loc="upper left", ncols=2)
    ax.set_title(f"Messages to {to}: {total.lost / max(1, total.messages):.0%} lost")
    ax.set_ylabel("messages per round")
    return ax


def plot_age(ax: Axes, records: Sequence[RoundRecord], to: For = "agree") -> Axes:
    """Draw how old news were when they arrived: in the mean, and on the quickest and the slowest edge.

    Args:
        records: The rounds; those in which nothing arrived have no age.
        to: What the messages are for.
    """
    reports = [(record.round, links) for record in records if (links := _OF[to](record)) is not None]
    known = [(number, links) for number, links in reports if links.total.arrived]
    rounds, mean = [number for number, _ in known], [links.total.age for _, links in known]
    ages = [[edge.age for edge in links.edges.values() if edge.arrived] for _, links in known]
    spread = [min(own) for own in ages], [max(own) for own in ages]
    ax.fill_between(rounds, *spread, color=style.SKY, alpha=0.35, linewidth=0.0, label="quickest to slowest edge")
    ax.plot(rounds, mean, color=style.BLUE, marker="o", markersize=3.0, label="mean")
    ax.set_title("Age of news on arrival" if to == "agree" else "Age of measurements on arrival")
    ax.set_ylabel("steps of the links' clock")
    _of_rounds(ax, [record.round for record in records], 1.4 * max([*spread[1], 1.0]))
    ax.legend(loc="upper left", ncols=2)
    return ax


def plot_failures(ax: Axes, records: Sequence[RoundRecord]) -> Axes:
    """Draw what failed against rounds: measurements, agents that were silent or had no choice, clashes.

    Args:
        records: The rounds. One whose step failed counts all its measurements as failed.
    """
    counts = _failures(records)
    _stacked(ax, [record.round for record in records], counts)
    ax.legend(loc="upper left", ncols=2)
    ax.set_title(f"Failures: {sum(sum(own) for _, own in counts.values()):,.0f} in all")
    ax.set_ylabel("failures per round")
    return ax


def plot_network(ax: Axes, network: Sequence[NetworkRecord]) -> Axes:
    """Draw what a fleet's network took against rounds: messages repeated, parcels refused, processes restarted.

    Rounds that went on without somebody are shaded.

    Args:
        network: The rounds.
    """
    rounds = [record.round for record in network]
    counts = {
        "repeated": (style.ORANGE, [record.repeated for record in network]),
        "refused": (style.VERMILLION, [record.refused for record in network]),
    }
    _stacked(ax, rounds, counts)
    label: str | None = "a process started again"
    for record in network:
        if record.restarts:
            ax.axvline(record.round, color=style.INK, linewidth=1.0, linestyle=(0, (4, 2)), label=label)
            label = None  # once in the legend
    label = "an agent absent"
    for record in network:
        if record.absent:
            around = record.round - 0.5, record.round + 0.5
            ax.axvspan(*around, color=style.SKY, alpha=0.35, linewidth=0.0, zorder=0.0, label=label)
            label = None
    ax.legend(loc="upper left", ncols=2)
    count = sum(sum(record.restarts.values()) for record in network)
    ax.set_title(f"The fleet's network: {count} {'restart' if count == 1 else 'restarts'}")
    ax.set_ylabel("messages per round")
    return ax


def faults_figure(records: Sequence[RoundRecord], network: Sequence[NetworkRecord] = ()) -> Figure | None:
    """Figure of faults over time, a panel for each kind that there was.

    Args:
        network: The same of a fleet's network.

    Returns:
        The figure; None where nothing can go wrong that is not measured: no links with faults, no network, no failure.
    """
    panels: list[Callable[[Axes], Axes]] = []
    for to, of in _OF.items():
        totals = [links.total for record in records if (links := of(record)) is not None]
        if any(total.messages for total in totals):
            panels.append(partial(plot_fates, records=records, to=to))
        if any(total.arrived for total in totals):
            panels.append(partial(plot_age, records=records, to=to))
    if _failures(records):
        panels.append(partial(plot_failures, records=records))
    if network:
        panels.append(partial(plot_network, network=network))
    if not panels:
        return None
    with style.applied():
        rows = 1 if len(panels) <= _ABREAST else 2
        columns = -(-len(panels) // rows)
        figure = style.new_figure(max(4.8, 4.4 * columns), 3.7 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, plot in zip(axes, panels, strict=False):
            plot(ax)
        for ax in axes[len(panels) :]:
            ax.remove()
    return figure


def _failures(records: Sequence[RoundRecord]) -> dict[str, tuple[str, list[float]]]:
    """Counts of failures in each round; kinds that never failed are left out."""
    reports = [links_of(record) for record in records]
    counts: dict[str, tuple[str, list[float]]] = {
        "measurements": (style.VERMILLION, [_failed(record) for record in records]),
        "silent agents": (style.PURPLE, [0 if links is None else len(links.silent) for links in reports]),
        "agents without a choice": (style.ORANGE, [0 if links is None else len(links.without) for links in reports]),
        "clashes": (style.INK, [0 if links is None else links.clashes for links in reports]),
    }
    return {label: own for label, own in counts.items() if any(own[1])}


def _failed(record: RoundRecord) -> int:
    """Measurements of a round that failed; of a function its factors, or else the total."""
    if record.joint is not None:
        factors = record.joint.factors
        return sum(y is None for y in factors.values()) if factors else int(record.joint.measurement is None)
    return sum(sample.measurement is None and not sample.declined for sample in record.samples)


def _stacked(
    ax: Axes, rounds: Sequence[int], counts: Counts, room: float = 1.4, ticks: MaxNLocator | None = None
) -> None:
    """Bars on top of one another, with room above them for a legend."""
    bottom, width = np.zeros(len(rounds)), 0.82 if len(rounds) <= 80 else 1.0
    for label, (colour, own) in counts.items():
        heights = np.array(own, dtype=float)
        ax.bar(rounds, heights, width, bottom=bottom, color=colour, label=label)
        bottom += heights
    _of_rounds(ax, rounds, room * float(bottom.max(initial=0.0)), ticks)


def _of_rounds(ax: Axes, rounds: Sequence[int], top: float, ticks: MaxNLocator | None = None) -> None:
    style.rounds_axis(ax)
    ax.set_xlim(rounds[0] - 0.6, rounds[-1] + 0.6)
    ax.set_ylim(0.0, top or 1.0)
    ax.yaxis.set_major_locator(ticks or MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.grid(visible=False, axis="x")
