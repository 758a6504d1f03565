"""What crossed the radio links in each round: to agree on where to measure, and to share what was measured."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from swarmbo.metrics import links_of
from swarmbo.plotting import style
from swarmbo.records import EdgeTraffic, RoundRecord, Traffic

Count = Literal["messages", "transmissions", "bytes"]


def plot_traffic(ax: Axes, records: Sequence[RoundRecord], count: Count = "messages") -> Axes:
    """Draw one count of the traffic against rounds, coordination below and sharing of measurements on top.

    Args:
        ax: Where to draw.
        records: The rounds.
        count: ``messages`` (between two agents), ``transmissions`` (a relayed message counts once a hop), or ``bytes``
            (encoded size, once a message).

    Returns:
        The axes.
    """
    coordination = np.array([getattr(r.report.traffic if r.report else Traffic(), count) for r in records], dtype=float)
    sharing = np.array([getattr(r.sharing, count) for r in records], dtype=float)
    rounds = np.array([record.round for record in records])
    width = 0.82 if len(records) <= 80 else 1.0
    ax.bar(rounds, coordination, width, color=style.BLUE, label="agreeing where to measure")
    ax.bar(rounds, sharing, width, bottom=coordination, color=style.ORANGE, label="sharing measurements")
    ax.set_title(f"{count.capitalize()}: {coordination.sum() + sharing.sum():,.0f} in all")
    ax.set_ylabel(f"{count} per round")
    ax.set_xlabel("round")
    ax.set_xlim(rounds[0] - 0.6, rounds[-1] + 0.6)
    ax.set_ylim(0.0, 1.08 * float((coordination + sharing).max()) or 1.0)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_locator(MaxNLocator(7, integer=True))
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.grid(visible=False, axis="x")
    return ax


def plot_fates(ax: Axes, records: Sequence[RoundRecord]) -> Axes:
    """Draw what became of the messages to agree, over links with faults, against rounds.

    Args:
        ax: Where to draw.
        records: The rounds.

    Returns:
        The axes.
    """
    edges = [EdgeTraffic() if (links := links_of(record)) is None else links.total for record in records]
    arrived, lost = (np.array([getattr(edge, name) for edge in edges], dtype=float) for name in ("arrived", "lost"))
    rounds, total = np.array([record.round for record in records]), sum(edges, EdgeTraffic())
    width = 0.82 if len(records) <= 80 else 1.0
    ax.bar(rounds, arrived, width, color=style.BLUE, label="arrived")
    ax.bar(rounds, lost, width, bottom=arrived, color=style.VERMILLION, label="lost")
    age = f", {total.age:.2g} ticks under way" if total.arrived else ""
    ax.set_title(f"{total.lost / max(1, total.messages):.0%} lost{age}")
    ax.set_ylabel("messages to agree per round")
    ax.set_xlabel("round")
    ax.set_xlim(rounds[0] - 0.6, rounds[-1] + 0.6)
    ax.set_ylim(0.0, 1.3 * float((arrived + lost).max()) or 1.0)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.grid(visible=False, axis="x")
    ax.legend(loc="upper left", ncols=2)
    return ax


def total_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """All that crossed the links in some rounds."""
    return sum((r.sharing + (r.report.traffic if r.report else Traffic()) for r in records), Traffic())


def traffic_figure(records: Sequence[RoundRecord]) -> Figure:
    """Messages, transmissions and bytes against rounds.

    Args:
        records: The rounds of a run.

    Returns:
        A figure of three panels; of two where no message was relayed, so that transmissions are the messages; one more
        says what became of messages where links have faults.
    """
    total = total_traffic(records)
    relayed = total.transmissions != total.messages
    counts: tuple[Count, ...] = ("messages", "transmissions", "bytes") if relayed else ("messages", "bytes")
    n_panels = len(counts) + any(links_of(record) is not None for record in records)
    with style.applied():
        figure = style.new_figure(4.4 * n_panels, 3.7)
        panels = figure.subplots(1, n_panels)
        for ax, count in zip(panels, counts, strict=False):
            plot_traffic(ax, records, count)
        if n_panels > len(counts):
            plot_fates(panels[-1], records)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure
