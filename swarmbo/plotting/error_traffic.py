"""The error of the map that every agent has, against rounds and against what sharing took."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from swarmbo.belief import ExactGPSettings
from swarmbo.plotting import style
from swarmbo.plotting.agent_maps import error_of, records_of
from swarmbo.plotting.history import World, agents_of, belief_after
from swarmbo.records import RoundRecord, Score

_SEEN = 0.005  # of the axis: a band that is narrower is hidden by the line in it
MOST_REBUILT = 60  # rounds: a belief is made anew for each of them, and for every agent


@dataclass(frozen=True, eq=False)
class ErrorTraces:
    """Map errors after each round, in the unit of the outcome; NaN where unknown.

    Args:
        rounds: Which rounds.
        shared_kb: What was sent up to then to share measurements, in thousands of bytes.
        fused: Lowest, mean and largest error over the agents, each by its own view, as logged.
        pooled: Error of the exact belief of all measurements so far.
        alone: Mean error over the agents that measured anything, each by its own measurements alone.
    """

    rounds: Float[np.ndarray, " n"]
    shared_kb: Float[np.ndarray, " n"]
    fused: Float[np.ndarray, "3 n"]
    pooled: Float[np.ndarray, " n"]
    alone: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, records: Sequence[RoundRecord], world: World, settings: ExactGPSettings) -> "ErrorTraces":
        """Read logged errors, and rebuild the others; in runs of more than 60 rounds for 60 rounds, evenly picked."""
        agents = agents_of(records)
        pooled, alone = np.full(len(records), np.nan), np.full(len(records), np.nan)
        singles = {agent: records_of(records, agent) for agent in agents}
        for n in np.linspace(0, len(records) - 1, min(len(records), MOST_REBUILT)).round().astype(int):
            then = world.at(records[n].round)
            if (error := error_of(belief_after(records[: n + 1], settings, world.domain), then)) is not None:
                pooled[n] = error
            own = [error_of(belief_after(one[: n + 1], settings, world.domain), then) for one in singles.values()]
            known = [error for error in own if error is not None]
            if known:
                alone[n] = np.mean(known)
        return cls(
            rounds=np.array([record.round for record in records], dtype=float),
            shared_kb=np.cumsum([record.sharing.bytes for record in records]) / 1e3,
            fused=np.array([_spread(record.score) for record in records]).T,
            pooled=pooled,
            alone=alone,
        )


def _spread(score: Score | None) -> tuple[float, float, float]:
    if score is not None and score.view_rmse:
        errors = list(score.view_rmse.values())
        return min(errors), float(np.mean(errors)), max(errors)
    error = np.nan if score is None or score.map_rmse is None else score.map_rmse
    return error, error, error  # an older log has only that of the agent that knows most


def plot_errors(ax: Axes, traces: ErrorTraces, at: Float[np.ndarray, " n"], unit: str = "") -> Axes:
    """Draw map errors: of the agents' own views with their range, of all data pooled, and of agents left alone.

    Args:
        ax: Where to draw.
        traces: The errors.
        at: What they are drawn against (n,).
        unit: Unit of the outcome.

    Returns:
        The axes.
    """
    low, mean, high = traces.fused
    is_alone, is_pooled = np.isfinite(traces.alone), np.isfinite(traces.pooled)
    ax.plot(
        at[is_alone],
        traces.alone[is_alone],
        "o-",
        color=style.ORANGE,
        markersize=2.6,
        label="own data alone, mean over agents",
    )
    is_seen = bool(np.nanmax(high - low, initial=0.0) > _SEEN * np.nanmax(high, initial=0.0))
    if is_seen:
        look: dict[str, Any] = {"facecolor": style.SKY, "alpha": 0.5, "edgecolor": style.BLUE, "linewidth": 0.8}
        ax.fill_between(at, low, high, label="fused, best to worst agent", **look)
    label = "fused, mean over agents" if is_seen else "fused, all agents alike"
    ax.plot(at, mean, "o-", color=style.BLUE, markersize=3.2, label=label)
    ax.plot(
        at[is_pooled],
        traces.pooled[is_pooled],
        color=style.INK,
        linewidth=1.3,
        linestyle=(0, (4, 2.4)),
        label="all data pooled",
    )
    ax.set_ylabel(style.with_unit("map RMSE", unit))
    ax.set_ylim(bottom=0.0)
    return ax


def error_traffic_figure(records: Sequence[RoundRecord], world: World, settings: ExactGPSettings) -> Figure:
    """The error of every agent's view against rounds, and against the bytes sent up to then to share measurements.

    For comparison the error of all data pooled, and of each agent's own data alone: exact beliefs under the
    hyper-parameters that the record of the round holds.

    Args:
        records: The rounds of a run, from the first on.
        world: Its world, with the truth.
        settings: Kernel and priors of the run's belief.
    """
    traces = ErrorTraces.of(records, world, settings)
    with style.applied():
        figure = style.new_figure(10.6, 4.2)
        by_round, by_bytes = figure.subplots(1, 2, sharey=True)
        plot_errors(by_round, traces, traces.rounds, world.unit).set_xlabel("round")
        by_round.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        plot_errors(by_bytes, traces, traces.shared_kb, "").set_xlabel("kB sent so far to share measurements")
        by_bytes.set_ylabel("")
        by_bytes.set_xlim(left=0.0)
        handles, labels = by_round.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        name = f"{world.name} · " if world.name else ""
        figure.suptitle(f"{name}error of the map, agent by agent", x=0.01, ha="left", fontsize=12.5)
    return figure
