"""A picture of the robots on their field, drawn without any display."""

from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.transforms import Affine2D

from swarmbo import look
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.picture import FieldPicture, outline
from swarmbo_envs.robot_team.episode import Episode

_ARROW = np.array([(1.0, 0.0), (-0.8, 0.7), (-0.4, 0.0), (-0.8, -0.7), (1.0, 0.0)])  # points along the heading


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
    picture = FieldPicture(field)
    _draw_links(picture.axes, episode, links, picture.to_axes)
    _draw_robots(picture.axes, episode, picture.to_axes)
    good = episode.samples[:, 3][np.isfinite(episode.samples[:, 3])]
    best = f"best measured {good.max():.4g} {field.unit}".rstrip() if good.size else "nothing measured"
    return picture.finish(f"{field.name}\nround {episode.round} of {max_cycles}, {best}")


def _draw_links(axes: Axes, episode: Episode, links: "nx.Graph[str]", to_axes: Any) -> None:
    places = dict(zip(links.nodes, to_axes(episode.poses[:, :2]), strict=True))
    for one, other in links.edges:
        ends = np.stack([places[one], places[other]])
        axes.plot(*ends.T, color="white", linewidth=0.8, linestyle=(0, (4, 3)), zorder=2, path_effects=outline(1.4))


def _draw_robots(axes: Axes, episode: Episode, to_axes: Any) -> None:
    for robot, (pose, trail) in enumerate(zip(episode.poses, episode.trails, strict=True)):
        colour = look.agent_colour(robot)
        axes.plot(*to_axes(trail).T, color=colour, linewidth=1.5, zorder=3, path_effects=outline(2.5))
        samples = episode.samples[episode.samples[:, 0] == robot]
        failed = np.isnan(samples[:, 3])
        axes.scatter(
            *to_axes(samples[~failed, 1:3]).T, s=16, color=colour, edgecolors=look.INK, linewidths=0.6, zorder=4
        )
        axes.scatter(*to_axes(samples[failed, 1:3]).T, s=22, color=look.INK, marker="x", linewidths=1.2, zorder=4)
        here = to_axes(pose[None, :2])[0]
        arrow = MarkerStyle(_ARROW, transform=Affine2D().rotate(float(pose[2])))
        axes.plot(*here, marker=arrow, markersize=15, color=colour, markeredgecolor=look.INK, zorder=5)
        axes.annotate(
            str(robot),
            here,
            xytext=(9, 7),
            textcoords="offset points",
            color="white",
            weight="bold",
            fontsize=9,
            path_effects=outline(2.2),
            zorder=6,
        )
