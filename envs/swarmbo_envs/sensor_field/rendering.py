"""Pictures of the sensors on their field without a display."""

from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes

from swarmbo.boundary import look
from swarmbo_envs.fields.picture import FieldPicture, outline
from swarmbo_envs.sensor_field.world import Episode, World


def frame(
    world: World, episode: Episode, links: "nx.Graph[str]", max_cycles: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw the field of the round, the sensors, their locations, and the radio links."""
    field = world.field.at(episode.round)
    picture = FieldPicture(field, (world.field.minimum, world.field.maximum))
    places, spots = picture.to_axes(world.stations.places), picture.to_axes(episode.spots)
    _draw_links(picture.axes, places, links, look.MUTED if field.sites_only else "white")  # between sites it is white
    _draw_sensors(picture.axes, places, spots, episode)
    counts = f"{int(episode.sampled.sum())} of {len(world.agents)} sampled, {episode.spent_j.sum():.4g} J spent"
    return picture.finish(f"{field.name}\nround {episode.round} of {max_cycles}, {counts}")


def _draw_links(axes: Axes, places: Float[np.ndarray, "n 2"], links: "nx.Graph[str]", colour: str) -> None:
    place = dict(zip(links.nodes, places, strict=True))
    for one, other in links.edges:
        axes.plot(*np.stack([place[one], place[other]]).T, color=colour, linewidth=0.6, alpha=0.5, zorder=2)


def _draw_sensors(
    axes: Axes, places: Float[np.ndarray, "n 2"], spots: Float[np.ndarray, "n 2"], episode: Episode
) -> None:
    good, failed = episode.sampled & ~episode.failed, episode.sampled & episode.failed
    for place, spot in zip(places[episode.sampled], spots[episode.sampled], strict=True):
        axes.plot(*np.stack([place, spot]).T, color="white", linewidth=1.2, zorder=3, path_effects=outline(2.2))
    axes.scatter(*spots[good].T, s=34, color=look.VERMILLION, edgecolors=look.INK, linewidths=0.8, zorder=5)
    axes.scatter(*spots[failed].T, s=34, color="white", marker="x", linewidths=1.6, zorder=5, path_effects=outline(3.2))
    marks: dict[str, Any] = {"marker": "s", "edgecolors": look.INK, "linewidths": 0.9, "zorder": 4}
    axes.scatter(*places[episode.sampled].T, s=26, color="white", **marks)
    axes.scatter(*places[~episode.sampled].T, s=26, color=look.MUTED, **marks)
