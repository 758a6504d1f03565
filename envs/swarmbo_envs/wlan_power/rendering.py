"""Pictures of a WLAN without a display: locations, powers, and capacities."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from swarmbo.boundary import look
from swarmbo_envs.wlan_power.network import Network, Utility
from swarmbo_envs.wlan_power.settings import WlanPowerSettings
from swarmbo_envs.wlan_power.topology import Topology, distances, path_loss_db
from swarmbo_envs.wlan_power.world import Episode

_RESOLUTION = 160  # pixels of the map along its longer side
_MARGIN = 0.06
_NUMBERED = 40  # most access points with room for a number
_DISTURBERS = {"audible": "access points that the serving one hears (dashed)", "all": "all others (dashed: audible)"}
_SINR_DB = (-20.0, 40.0)


def frame(
    topology: Topology,
    hears: Bool[np.ndarray, "k k"],
    network: Network,
    episode: Episode,
    settings: WlanPowerSettings,
    utility: Utility,
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw the map, the capacity of each user, the powers, and the network's capacity so far."""
    with look.applied():
        figure = Figure(figsize=(12.0, 6.4), dpi=100, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        parts: Any = [["map", "powers"], ["map", "users"], ["map", "total"]]
        axes: Any = figure.subplot_mosaic(parts, width_ratios=[1.25, 1.0])
        capacities = network.user_capacities(episode.powers[None])[0]
        _draw_map(figure, axes["map"], topology, hears, network, episode)
        _draw_powers(axes["powers"], episode, settings)
        _draw_users(axes["users"], network, capacities, settings)
        _draw_total(axes["total"], episode, settings, utility)
        left = f", {count} left (×)" if (count := int((~network.present).sum())) else ""
        figure.suptitle(
            f"round {episode.round} of {settings.max_cycles} · {_found(episode, capacities, settings, utility)} for "
            f"{network.n_users.sum()} users{left} · interference from {_DISTURBERS[settings.interference]}",
            x=0.01,
            ha="left",
            fontsize=10.5,
        )
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def sinr_map(
    topology: Topology, network: Network, powers: Float[np.ndarray, " k"], places: Float[np.ndarray, "m 2"]
) -> Float[np.ndarray, " m"]:
    """SINR in dB of a user at each place (m), served by the access point of least path loss, without shadowing."""
    loss = path_loss_db(distances(topology.access_points, places))
    present = np.ones(len(places), dtype=bool)
    visitors = Network(loss, loss.argmin(axis=0), present, network.disturbs, network.noise_mw, network.bandwidth_mhz)
    return 10.0 * np.log10(visitors.sinr(powers[None])[0])


def _draw_map(
    figure: Figure,
    ax: Axes,
    topology: Topology,
    hears: Bool[np.ndarray, "k k"],
    network: Network,
    episode: Episode,
) -> None:
    low = np.minimum(topology.low, topology.access_points.min(axis=0))
    high = np.maximum(topology.high, topology.access_points.max(axis=0))
    margin = max(_MARGIN * float((high - low).max()), 10.0)
    low, high = low - margin, high + margin
    nx, ny = np.maximum(2, np.round(_RESOLUTION * (high - low) / (high - low).max())).astype(int)
    x, y = np.linspace(low[0], high[0], nx), np.linspace(low[1], high[1], ny)
    places = np.column_stack([axis.ravel() for axis in np.meshgrid(x, y)])
    sinr = sinr_map(topology, network, episode.powers, places).reshape(ny, nx)
    image = ax.imshow(
        sinr,
        origin="lower",
        extent=(low[0], high[0], low[1], high[1]),
        cmap=look.MEAN_COLOURS,
        norm=Normalize(*_SINR_DB),
        interpolation="bilinear",
    )
    bar = figure.colorbar(image, ax=ax, shrink=0.8, pad=0.02, extend="both")
    bar.outline.set_visible(False)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    ax.set_title("SINR from the nearest access point (dB)")
    ax.grid(visible=False)
    points, users = topology.access_points, episode.users
    here, heard = network.present, np.argwhere(np.triu(hears))
    served = np.stack([users[here], points[network.serving[here]]], axis=1)
    # one artist for all lines of a kind: hundreds of them would take seconds a picture
    ax.add_collection(
        LineCollection(list(points[heard]), colors="white", lw=0.8, ls=(0, (4, 3)), alpha=0.7, zorder=2), autolim=False
    )
    ax.add_collection(LineCollection(list(served), colors=look.INK, lw=0.8, alpha=0.7, zorder=3), autolim=False)
    colours = np.array([look.agent_colour(i) for i in range(len(points))])
    room = min(1.0, _NUMBERED / len(points))  # for markers; the more there are the smaller
    own = colours[network.serving[here]]
    ax.scatter(*users[here].T, s=26 * room, c=own, edgecolors="white", linewidths=0.7 * room, zorder=4)
    ax.scatter(*users[~here].T, s=26 * room, color=look.INK, marker="x", linewidths=1.2 * room, zorder=4)
    ax.scatter(*points.T, s=120 * room, c=colours, marker="^", edgecolors=look.INK, linewidths=1.0 * room, zorder=5)
    numbered = zip(points, episode.powers, strict=True) if len(points) <= _NUMBERED else ()
    for i, (place, power) in enumerate(numbered):
        ax.annotate(
            f"{i}: {power:.0f} dBm",
            place,
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color="white",
            weight="bold",
            fontsize=8,
            path_effects=look.cased(2.2, look.INK),
            zorder=6,
        )
    ax.set(xlabel="east (m)", ylabel="north (m)", xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")


def _draw_powers(ax: Axes, episode: Episode, settings: WlanPowerSettings) -> None:
    low, high = settings.power_dbm
    # the foot leaves a bar for the least power too
    numbers, foot = np.arange(len(episode.powers)), low - 0.08 * (high - low)
    colours = [look.agent_colour(i) for i in range(len(numbers))]
    if len(numbers) <= _NUMBERED:
        ax.bar(numbers, episode.powers - foot, bottom=foot, color=colours)
    else:
        ax.vlines(numbers, foot, episode.powers, colors=colours)
    ax.set_title("Power (dBm)")
    ax.set(ylim=(foot, high), xlabel="access point")
    ax.set_yticks(np.linspace(low, high, 4))
    _number(ax, numbers)


def _found(episode: Episode, capacities: Float[np.ndarray, " m"], settings: WlanPowerSettings, utility: Utility) -> str:
    """Utility of the network in this round, in words; for throughput only a simulator knows it."""
    if settings.objective == "capacity":
        return f"capacity {capacities.sum():,.0f} Mbit/s"
    total = episode.totals[-1] if episode.totals else np.nan
    what = utility.label or "throughput"
    return f"{what} {total:,.0f} {utility.unit}" if np.isfinite(total) else f"no {what} known"


def _draw_users(ax: Axes, network: Network, capacities: Float[np.ndarray, " m"], settings: WlanPowerSettings) -> None:
    """Draw users in a row, by access point, the best of each first."""
    place, centres, bars = 0.0, list[float](), list[tuple[float, float, str]]()
    for i in range(network.n_points):
        group = np.flatnonzero(network.present & (network.serving == i))
        group = group[np.argsort(-capacities[group], kind="stable")]
        bars += [(place + n, float(capacities[user]), look.agent_colour(i)) for n, user in enumerate(group)]
        centres.append(place + max(len(group) - 1, 0) / 2.0)
        place += max(len(group), 1) + 1.0
    if bars:
        at, heights, colours = zip(*bars, strict=True)
        sides = np.array(at)[:, None] + 0.85 * np.array([-0.5, -0.5, 0.5, 0.5])
        tops = np.array(heights)[:, None] * np.array([0.0, 1.0, 1.0, 0.0])
        ax.add_collection(PolyCollection(list(np.stack([sides, tops], axis=-1)), facecolors=colours))
    ax.set_ylim(0.0, 1.05 * max(float(capacities[network.present].max(initial=0.0)), 1e-9))
    by = "" if settings.objective == "capacity" else " by the closed form"
    ax.set_title(f"Capacity of each user{by} (Mbit/s)")
    ax.set(xlabel="users by access point", xlim=(-1.0, place - 1.0))
    _number(ax, centres)


def _draw_total(ax: Axes, episode: Episode, settings: WlanPowerSettings, utility: Utility) -> None:
    rounds = np.arange(1, len(episode.totals) + 1)
    ax.plot(rounds, episode.totals, "o", ms=3, color=look.MUTED, label="this round")
    if len(rounds):
        if not settings.changes:
            ax.plot(
                rounds, np.fmax.accumulate(episode.totals), color=look.BLUE, drawstyle="steps-post", label="best so far"
            )
        ax.legend(loc="lower right")
    what = utility.label or f"sum {settings.objective}"
    ax.set_title(f"{what[0].upper()}{what[1:]} ({utility.unit})")
    ax.set(xlabel="round", xlim=(0, settings.max_cycles))


def _number(ax: Axes, centres: Any) -> None:
    """Number the access points, if there is room."""
    if len(centres) <= _NUMBERED:
        ax.set_xticks(centres, [str(i) for i in range(len(centres))])
    ax.grid(visible=False, axis="x")
