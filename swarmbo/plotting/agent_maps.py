"""What single agents know by their own measurements, beside what all of them would know together."""

from collections.abc import Sequence

import msgspec
import numpy as np
from matplotlib.figure import Figure

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.plotting import style
from swarmbo.plotting.belief_map import plot_mean
from swarmbo.plotting.history import World, agents_of, belief_after
from swarmbo.plotting.surface import lattice_over
from swarmbo.plotting.traffic import total_traffic
from swarmbo.records import RoundRecord

MOST_AGENTS = 8


def records_of(records: Sequence[RoundRecord], agent: str) -> list[RoundRecord]:
    """The rounds as if this agent alone had measured."""
    return [
        msgspec.structs.replace(record, samples=[one for one in record.samples if one.agent == agent])
        for record in records
    ]


def map_rmse(belief: ExactGP, world: World) -> float | None:
    """Root mean squared error of a belief's mean on the world's evaluation points; None where the truth is unknown."""
    if world.points is None or world.values is None or not world.values.size:
        return None
    return float(np.sqrt(np.mean((belief.posterior(world.points)[0] - world.values) ** 2)))


def agent_maps_figure(records: Sequence[RoundRecord], world: World, settings: ExactGPSettings) -> Figure:
    """Posterior means by the data of single agents and by all data pooled, in one colour scale.

    All beliefs are exact, under the hyper-parameters that the last record holds.

    Args:
        records: The rounds of a run, from the first on.
        world: The world of the run, with two axes.
        settings: Kernel and priors of the run's belief.

    Returns:
        A figure of one panel for each of up to 8 agents, evenly picked, and a last one for the pooled data.

    Raises:
        ShapeError: If the world has another number of axes than two.
    """
    world.require_plane()
    world, agents = world.at(records[-1].round), agents_of(records)
    chosen = np.linspace(0, len(agents) - 1, min(MOST_AGENTS, len(agents))).round().astype(int)
    beliefs = {agents[i]: belief_after(records_of(records, agents[i]), settings, world.domain) for i in chosen}
    beliefs["all, pooled"] = belief_after(records, settings, world.domain)
    lattice = lattice_over(world)
    means = [b.posterior(lattice.points)[0][lattice.shown.ravel()] for b in beliefs.values() if b is not None]
    everything = np.concatenate(means) if means else np.empty(0)
    limits = (float(everything.min()), float(everything.max())) if everything.size else None
    columns = min(3, len(beliefs))
    rows = -(-len(beliefs) // columns)
    with style.applied():
        figure = style.new_figure(4.4 * columns, 3.9 * rows + 0.5)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, (name, belief) in zip(panels, beliefs.items(), strict=False):
            plot_mean(ax, belief, world, lattice, limits)
            rmse = None if belief is None else map_rmse(belief, world)
            ax.set_title(name if rmse is None else f"{name}: RMSE {rmse:.3g}")
        for ax in panels[len(beliefs) :]:
            ax.remove()
        title = (
            f"round {records[-1].round} · own data of {len(chosen)} of {len(agents)} agents, evenly picked; all pooled"
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=12.5)
    return figure


def error_traffic_figure(records: Sequence[RoundRecord]) -> Figure:
    """The logged map RMSE against rounds, and against all bytes sent up to then.

    Args:
        records: The rounds of a run; those without a logged error are left out, their bytes count.
    """
    totals = np.cumsum([total_traffic([record]).bytes for record in records])
    scored = [
        (record.round, total / 1e3, record.score.map_rmse)
        for record, total in zip(records, totals, strict=True)
        if record.score is not None and record.score.map_rmse is not None
    ]
    with style.applied():
        figure = style.new_figure(8.8, 3.7)
        for index, (ax, label) in enumerate(zip(figure.subplots(1, 2), ("round", "kB sent so far"), strict=True)):
            ax.plot([row[index] for row in scored], [row[2] for row in scored], "o-", color=style.BLUE, markersize=3)
            ax.set_xlabel(label)
            ax.set_ylabel("map RMSE")
            ax.set_ylim(bottom=0.0)
        figure.axes[1].set_xlim(left=0.0)
    return figure
