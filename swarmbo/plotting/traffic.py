"""What crossed the radio links in each round: to agree on where to measure, and to share what was measured."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from swarmbo.plotting import style
from swarmbo.records import RoundRecord, Traffic

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


def total_traffic(records: Sequence[RoundRecord]) -> Traffic:
    """All that crossed the links in some rounds."""
    return sum((r.sharing + (r.report.traffic if r.report else Traffic()) for r in records), Traffic())


def traffic_figure(records: Sequence[RoundRecord]) -> Figure:
    """Messages, transmissions and bytes against rounds.

    Args:
        records: The rounds of a run.

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
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure
