"""Pictures of a WLAN without a display: locations, powers, and capacities."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from swarmbo.boundary import look
from swarmbo_envs.pictures import Picture, bytes_of, write_beside
from swarmbo_envs.shared import Ends, Values, grid_points
from swarmbo_envs.wlan_power.network import Network, Utility
from swarmbo_envs.wlan_power.settings import WlanPowerSettings
from swarmbo_envs.wlan_power.topology import Topology, distances, path_loss_db
from swarmbo_envs.wlan_power.world import Episode, World

_RESOLUTION = 160  # pixels of the map along its longer side
_MARGIN = 0.06
_NUMBERED, _LABELLED = 40, 24  # most access points with room for a number, and for a number and a power
_DISTURBERS = {"audible": "access points in range of the serving one (dashed)", "all": "all others (dashed: audible)"}
_SINR_DB = (-20.0, 40.0)


def frame(world: World, network: Network, episode: Episode, max_cycles: int) -> Picture:
    """Draw the map, the capacity of each user, the powers, and the network's capacity so far."""
    settings, utility, network = world.settings, world.utility, network.on(episode.choices)
    with look.applied():
        figure = Figure(figsize=(12.0, 6.4), dpi=100, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        parts: Any = [["map", "powers"], ["map", "users"], ["map", "total"]]
        axes: Any = figure.subplot_mosaic(parts, width_ratios=[1.25, 1.0])
        capacities = network.user_capacities(episode.powers[None])[0]
        _draw_map(figure, axes["map"], world, network, episode)
        _draw_powers(axes["powers"], world, episode)
        _draw_users(axes["users"], network, capacities, settings)
        _draw_total(axes["total"], episode, settings, utility)
        axes["total"].set_xlim(0, max_cycles)
        totals, disturbers = np.array(episode.totals), _DISTURBERS[settings.interference]
        best = len(totals) and not settings.changes and np.isfinite(totals[-1]) and totals[-1] >= np.nanmax(totals)
        if network.n_points > _NUMBERED:
            disturbers = disturbers.partition(" (")[0]
        left = f", {count} left (×)" if (count := int((~network.present).sum())) else ""
        parts = (
            f"round {episode.round} of {max_cycles}{' (best so far)' if best else ''}",
            f"{_found(episode, capacities, settings, utility)} for {network.n_users.sum()} users{left}",
            f"interference from {disturbers}",
        )
        figure.suptitle(" · ".join(parts), x=0.01, ha="left", fontsize=10.5)
        return bytes_of(canvas)


def sinr_map(topology: Topology, network: Network, powers: Values, places: Ends) -> Float[np.ndarray, " m"]:
    """SINR in dB of a user at each place (m), served by the access point of least path loss, without shadowing."""
    loss = path_loss_db(distances(topology.access_points, places))
    visitors = replace(network, loss_db=loss, serving=loss.argmin(axis=0), present=np.ones(len(places), dtype=bool))
    return 10.0 * np.log10(visitors.sinr(powers[None])[0])


def _draw_map(figure: Figure, ax: Axes, world: World, network: Network, episode: Episode) -> None:
    topology = world.topology
    low = np.minimum(topology.low, topology.access_points.min(axis=0))
    high = np.maximum(topology.high, topology.access_points.max(axis=0))
    margin = max(_MARGIN * float((high - low).max()), 10.0)
    low, high = low - margin, high + margin
    nx, ny = np.maximum(2, np.round(_RESOLUTION * (high - low) / (high - low).max())).astype(int)
    x, y = np.linspace(low[0], high[0], nx), np.linspace(low[1], high[1], ny)
    sinr = sinr_map(topology, network, episode.powers, grid_points(x, y)).reshape(ny, nx)
    style: dict[str, Any] = {"cmap": look.MEAN_COLOURS, "norm": Normalize(*_SINR_DB), "interpolation": "bilinear"}
    image = ax.imshow(sinr, origin="lower", extent=(low[0], high[0], low[1], high[1]), **style)
    bar = figure.colorbar(image, ax=ax, shrink=0.8, pad=0.02, extend="both")
    bar.outline.set_visible(False)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    ax.set_title("SINR from the nearest access point (dB)")
    ax.grid(visible=False)
    points, users = topology.access_points, episode.users
    is_present, pairs = network.present, np.argwhere(np.triu(world.hears & (network.disturbs + network.disturbs.T > 0)))
    served = np.stack([users[is_present], points[network.serving[is_present]]], axis=1)
    is_small = len(points) <= _NUMBERED
    if is_small:  # else lines and colours would hide the map
        thin: dict[str, Any] = {"linewidths": 0.8, "alpha": 0.7}
        dashed = LineCollection(list(points[pairs]), colors="white", linestyles=(0, (4, 3)), zorder=2, **thin)
        for lines in (dashed, LineCollection(list(served), colors=look.INK, zorder=3, **thin)):
            ax.add_collection(lines, autolim=False)
    colours, spectrum = np.array(_colours(world, episode)), world.settings.spectrum
    room = min(1.0, _NUMBERED / len(points))  # many access points get smaller markers
    own = colours[network.serving[is_present]]
    edge = "white" if is_small else "none"
    ax.scatter(*users[is_present].T, s=26 * room, c=own, edgecolors=edge, linewidths=0.7 * room, zorder=4)
    ax.scatter(*users[~is_present].T, s=26 * room, color=look.INK, marker="x", linewidths=1.2 * room, zorder=4)
    ax.scatter(*points.T, s=120 * room, c=colours, marker="^", edgecolors=look.INK, linewidths=1.0 * room, zorder=5)
    labels = [f"{power:.0f} dBm" for power in episode.powers]
    if spectrum is not None:
        labels = [f"ch {plan}, {label}" for plan, label in zip(spectrum.labels(episode.choices), labels, strict=True)]
        for number, channel in enumerate(spectrum.channels):
            ax.scatter([], [], c=look.agent_colour(number), marker="^", edgecolors=look.INK, label=f"channel {channel}")
        ax.legend(loc="upper left", bbox_to_anchor=(0.0, -0.09), ncols=5, borderaxespad=0.2)
    for i, (place, label) in enumerate(zip(points, labels, strict=True) if is_small else ()):
        write_beside(
            ax, f"{i}: {label}" if len(points) <= _LABELLED else str(i), place, (0, 9), ha="center", fontsize=8
        )
    ax.set(xlabel="east (m)", ylabel="north (m)", xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")


def _colours(world: World, episode: Episode) -> list[str]:
    """Colour of each access point: that of its channel; without channels, its own, or white if there are many."""
    k = len(episode.powers)
    if world.choices:
        return [look.agent_colour(int(position)) for position in episode.choices[:k]]
    return [look.agent_colour(i) if k <= _NUMBERED else "white" for i in range(k)]


def _draw_powers(ax: Axes, world: World, episode: Episode) -> None:
    low, high = world.settings.power_dbm
    # bars begin below the least power, so that it has a visible bar, too
    numbers, foot = np.arange(len(episode.powers)), low - 0.08 * (high - low)
    if len(numbers) > _NUMBERED:
        ax.hist(episode.powers, bins=24, range=(low, high), color=look.BLUE)
        ax.set(title="Histogram of powers", xlabel="power (dBm)", ylabel="access points", xlim=(low, high))
        return
    ax.bar(numbers, episode.powers - foot, bottom=foot, color=_colours(world, episode))
    ax.set(title="Power (dBm)", ylim=(foot, high), xlabel="access point")
    ax.set_yticks(np.linspace(low, high, 4))
    ax.set_xticks(numbers, [str(i) for i in numbers])
    ax.grid(visible=False, axis="x")


def _found(episode: Episode, capacities: Float[np.ndarray, " m"], settings: WlanPowerSettings, utility: Utility) -> str:
    """Utility of the network in this round, in words; for throughput only a simulator knows it."""
    if settings.objective == "capacity":
        return f"capacity {capacities.sum():,.0f} Mbit/s"
    total = episode.totals[-1] if episode.totals else np.nan
    what = utility.label or "throughput"
    return f"{what} {total:,.0f} {utility.unit}" if np.isfinite(total) else f"no {what} known"


def _draw_users(ax: Axes, network: Network, capacities: Float[np.ndarray, " m"], settings: WlanPowerSettings) -> None:
    """Share of users below each capacity, compared with that at largest power everywhere."""
    here = network.present
    loudest = network.user_capacities(np.full((1, network.n_points), settings.power_dbm[1]))[0]
    kinds = {"all at largest power": (loudest, look.MUTED, (0, (4, 3))), "this round": (capacities, look.BLUE, "-")}
    for label, (values, colour, dashes) in kinds.items() if here.any() else ():
        ax.ecdf(values[here], label=label, color=colour, linestyle=dashes, linewidth=1.6)
    if here.any():
        ax.legend(loc="lower right")
    by = "" if settings.objective == "capacity" else " by the closed form"
    title = f"Users below a capacity{by} (CDF)"
    ax.set(title=title, xlabel="capacity of a user (Mbit/s)", ylim=(0.0, 1.02), xlim=(0.0, None))


def _draw_total(ax: Axes, episode: Episode, settings: WlanPowerSettings, utility: Utility) -> None:
    rounds = np.arange(1, len(episode.totals) + 1)
    ax.plot(rounds, episode.totals, "o", ms=3, color=look.MUTED, label="this round")
    if len(rounds):
        if not settings.changes:
            best = np.fmax.accumulate(episode.totals)
            ax.plot(rounds, best, color=look.BLUE, drawstyle="steps-post", label="best so far")
        ax.legend(loc="lower right")
    what = utility.label or f"sum {settings.objective}"
    ax.set(title=f"{what[0].upper()}{what[1:]} ({utility.unit})", xlabel="round")
