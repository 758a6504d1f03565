"""A picture of the robots on their field, drawn without any display."""

from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Affine2D

from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.fields import Field

_ROBOT_COLOURS = ["#d62728", "#ff9f1c", "#e83fb8", "#f4f1de", "#ff6b35", "#c77dff", "#ffd60a", "#9b2226"]
_ARROW = np.array([(1.0, 0.0), (-0.8, 0.7), (-0.4, 0.0), (-0.8, -0.7), (1.0, 0.0)])  # points along the heading
_PIXELS_PER_INCH = 100


def frame(
    field: Field, episode: Episode, links: "nx.Graph[str]", max_cycles: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw the field, the robots with the paths they drove, their samples and the radio links.

    Args:
        field: What is measured.
        episode: Where the team stands.
        links: Who hears whom; its nodes are in the order of the robots.
        max_cycles: Rounds of the episode.

    Returns:
        Red, green and blue from 0 to 255.
    """
    figure = Figure(figsize=_size_in_inches(field), dpi=_PIXELS_PER_INCH, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    unit_m, label = (1000.0, "km") if (field.high - field.low).max() >= 5000 else (1.0, "m")
    origin = field.low if np.abs(field.low).max() > 100 * (field.high - field.low).max() else np.zeros(2)

    def to_axes(X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, "k 2"]:
        return (X - origin) / unit_m

    colours = _draw_field(axes, field, to_axes)
    bar = figure.colorbar(colours, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label(f"{field.quantity} ({field.unit})" if field.unit else field.quantity)
    bar.outline.set_visible(False)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    _draw_links(axes, episode, links, to_axes)
    _draw_robots(axes, episode, to_axes)
    good = episode.samples[:, 3][np.isfinite(episode.samples[:, 3])]
    best = f"best measured {good.max():.4g} {field.unit}".rstrip() if good.size else "nothing measured"
    axes.set_title(f"{field.name}\nround {episode.round} of {max_cycles}, {best}", fontsize=10, loc="left")
    offset = [f" − {value / unit_m:g} {label}" if value else "" for value in origin]
    axes.set_xlabel(f"east{offset[0]} ({label})")
    axes.set_ylabel(f"north{offset[1]} ({label})")
    (west, south), (east, north) = to_axes(np.stack([field.low, field.high]))
    margin = 0.02 * max(east - west, north - south)
    axes.set_xlim(west - margin, east + margin)
    axes.set_ylim(south - margin, north + margin)
    axes.set_aspect("equal")
    axes.tick_params(labelsize=8)
    for spine in axes.spines.values():
        spine.set_visible(False)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _size_in_inches(field: Field) -> tuple[float, float]:
    """About six inches for the longer side of the map, and room for labels and the colour bar."""
    width, height = field.high - field.low
    longer = max(width, height)
    return 1.9 + 6 * max(0.35, float(width / longer)), 1.1 + 6 * max(0.35, float(height / longer))


def _draw_field(axes: Axes, field: Field, to_axes: Any) -> Any:
    """The field as an image, or as coloured sites where nothing lies between them."""
    if field.sites_only:
        east, north = to_axes(field.sites).T
        return axes.scatter(east, north, c=field.value(field.sites), cmap="viridis", s=46, marker="s", linewidths=0)
    (west, south), (east, north) = to_axes(np.stack([field.low, field.high]))
    return axes.imshow(
        field.raster,
        origin="lower",
        extent=(west, east, south, north),
        cmap="viridis",
        interpolation="bilinear",
    )


def _draw_links(axes: Axes, episode: Episode, links: "nx.Graph[str]", to_axes: Any) -> None:
    places = dict(zip(links.nodes, to_axes(episode.poses[:, :2]), strict=True))
    for one, other in links.edges:
        ends = np.stack([places[one], places[other]])
        axes.plot(*ends.T, color="white", linewidth=0.8, linestyle=(0, (4, 3)), zorder=2, path_effects=_outline(1.4))


def _draw_robots(axes: Axes, episode: Episode, to_axes: Any) -> None:
    for robot, (pose, trail) in enumerate(zip(episode.poses, episode.trails, strict=True)):
        colour = _ROBOT_COLOURS[robot % len(_ROBOT_COLOURS)]
        axes.plot(*to_axes(trail).T, color=colour, linewidth=1.5, zorder=3, path_effects=_outline(2.5))
        samples = episode.samples[episode.samples[:, 0] == robot]
        failed = np.isnan(samples[:, 3])
        axes.scatter(
            *to_axes(samples[~failed, 1:3]).T, s=16, color=colour, edgecolors="black", linewidths=0.6, zorder=4
        )
        axes.scatter(*to_axes(samples[failed, 1:3]).T, s=22, color="black", marker="x", linewidths=1.2, zorder=4)
        here = to_axes(pose[None, :2])[0]
        arrow = MarkerStyle(_ARROW, transform=Affine2D().rotate(float(pose[2])))
        axes.plot(*here, marker=arrow, markersize=15, color=colour, markeredgecolor="black", zorder=5)
        axes.annotate(
            str(robot),
            here,
            xytext=(9, 7),
            textcoords="offset points",
            color="white",
            weight="bold",
            fontsize=9,
            path_effects=_outline(2.2),
            zorder=6,
        )


def _outline(width: float) -> list[Any]:
    return [withStroke(linewidth=width, foreground="black")]
