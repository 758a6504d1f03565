"""Pictures of the robots on their field without a display."""

from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.transforms import Affine2D

from swarmbo.boundary import look
from swarmbo_envs.fields.picture import FieldPicture, outline
from swarmbo_envs.ground import Ground
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.world import World

_ARROW = np.array([(1.0, 0.0), (-0.8, 0.7), (-0.4, 0.0), (-0.8, -0.7), (1.0, 0.0)])  # points along the heading


def frame(
    world: World, episode: Episode, links: "nx.Graph[str]", max_cycles: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw the field, the robots with their paths, samples, radio links, no-go regions, batteries and bases."""
    field = world.field
    picture = FieldPicture(field)
    _draw_no_go(picture.axes, world.ground, picture.to_axes)
    charge = world.homes.charge(episode)
    if charge is not None:
        _draw_bases(picture.axes, episode, picture.to_axes)
        _draw_batteries(picture.axes, episode, charge, picture.to_axes)
    _draw_links(picture.axes, episode, links, picture.to_axes)
    _draw_robots(picture.axes, episode, picture.to_axes)
    good = episode.samples[:, 3][np.isfinite(episode.samples[:, 3])]
    best = f"best measured {good.max():.4g} {field.unit}".rstrip() if good.size else "nothing measured"
    return picture.finish(f"{field.name}\nround {episode.round} of {max_cycles}, {best}")


def _draw_no_go(axes: Axes, ground: Ground, to_axes: Any) -> None:
    for region in ground.regions:
        look.draw_no_go(axes, [to_axes(ring) for ring in region.rings])


def _draw_bases(axes: Axes, episode: Episode, to_axes: Any) -> None:
    for robot, base in enumerate(episode.bases):
        axes.plot(*to_axes(base[None])[0], color=look.agent_colour(robot), **look.BASE)


def _draw_batteries(axes: Axes, episode: Episode, charge: Float[np.ndarray, " robots"], to_axes: Any) -> None:
    for robot, (pose, share) in enumerate(zip(episode.poses, charge, strict=True)):
        look.draw_battery(axes, to_axes(pose[None, :2])[0], float(share), look.agent_colour(robot))


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
        on_the_way = episode.on_the_way[episode.on_the_way[:, 0] == robot]
        axes.scatter(*to_axes(on_the_way[:, 1:3]).T, s=6, color=colour, edgecolors=look.INK, linewidths=0.4, zorder=4)
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
