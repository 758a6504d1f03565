"""Pictures of worlds without a display: of functions, and of agents over a field on its map."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from swarmbo.boundary import look
from swarmbo_envs.fields.field import Field
from swarmbo_envs.functions.additive_function import AdditiveFunction
from swarmbo_envs.shared import Places, Values

if TYPE_CHECKING:
    from swarmbo_envs.robot_team.episode import Episode as RobotEpisode
    from swarmbo_envs.robot_team.world import World
    from swarmbo_envs.sensor_field.stations import Episode, Stations

Picture = UInt8[np.ndarray, "height width 3"]
_PIXELS_PER_INCH = 100
_ARROW = np.array([(1.0, 0.0), (-0.8, 0.7), (-0.4, 0.0), (-0.8, -0.7), (1.0, 0.0)])  # points along the heading


def bytes_of(canvas: FigureCanvasAgg) -> Picture:
    """Draw a figure, as bytes of red, green and blue."""
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def function_frame(function: AdditiveFunction, setting: Values, best: Sequence[float], max_cycles: int) -> Picture:
    """Draw the setting of every variable next to the optimum's, and the best true value so far."""
    with look.applied():
        figure = Figure(figsize=(7.4, 3.4), dpi=_PIXELS_PER_INCH, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        left_ax, right = figure.subplots(1, 2)
        figure.suptitle(f"{function.name} · round {len(best)} of {max_cycles}", x=0.01, ha="left", fontsize=10.5)
        sides = function.high - function.low
        places = np.arange(function.n_variables)
        left_ax.plot(places, (setting - function.low) / sides, "o", markersize=4, color=look.BLUE, label="now")
        if function.argmax is not None:
            optimum = (function.argmax - function.low) / sides
            left_ax.plot(places, optimum, "_", markersize=8, color=look.VERMILLION, label="optimum")
        left_ax.set(xlabel="variable", ylabel="share of its range", ylim=(-0.05, 1.05))
        left_ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        left_ax.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=2, borderaxespad=0.2)
        rounds, values = np.arange(1, len(best) + 1), np.asarray(best, dtype=float)
        if function.maximum is not None:
            values = np.maximum(function.maximum - values, 1e-12)
        right.plot(rounds, values, color=look.BLUE, drawstyle="steps-post")
        if function.maximum is not None:
            look.set_log(right)
        title = "Best true value" if function.maximum is None else "Simple regret"
        right.set(title=title, xlabel="round", xlim=(0, max_cycles))
        return bytes_of(canvas)


class FieldPicture:
    """A map with a field on it; ``limits`` are the values at the ends of the colours."""

    def __init__(self, field: Field, limits: tuple[float, float] | None = None) -> None:
        self._field = field
        width, height = field.high - field.low
        size = max(width, height)
        self._unit_m, self._unit = (1000.0, "km") if size >= 5000 else (1.0, "m")
        self._origin = field.low if np.abs(field.low).max() > 100 * size else np.zeros(2)
        is_redundant = field.unit.lower() in ("", field.quantity.lower())  # "pH (pH)" would be redundant
        label = (field.unit or field.quantity) if is_redundant else f"{field.quantity} ({field.unit})"
        # about six inches for the longer side of the map, with room for labels and the colour bar
        inches = 1.9 + 6 * max(0.35, float(width / size)), 1.1 + 6 * max(0.35, float(height / size))
        with look.applied():
            self._figure = Figure(figsize=inches, dpi=_PIXELS_PER_INCH, layout="constrained")
            self._canvas = FigureCanvasAgg(self._figure)
            self.axes = self._figure.subplots()
            self.axes.grid(visible=False)
            image = self._draw_field(*(limits or (None, None)))
            bar = self._figure.colorbar(image, ax=self.axes, shrink=0.85, pad=0.02, label=label)
        bar.outline.set_visible(False)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]

    def to_axes(self, X: Places) -> Places:
        """Places in metres as coordinates of the axes."""
        return (X - self._origin) / self._unit_m

    def draw_links(self, links: "nx.Graph[str]", places: Places, **style: Any) -> None:
        """Draw links of agents at places, in the order of the graph's nodes."""
        place = dict(zip(links.nodes, self.to_axes(places), strict=True))
        for first, second in links.edges:
            self.axes.plot(*np.stack([place[first], place[second]]).T, zorder=2, **style)

    def scatter(self, X: Places, colour: str, size: float, **style: Any) -> None:
        """Draw marks at places, m."""
        self.axes.scatter(*self.to_axes(X).T, s=size, color=colour, **style)

    def finish(self, title: str) -> Picture:
        """The picture, as bytes of red, green and blue."""
        axes, field = self.axes, self._field
        text = self._figure.suptitle(title, x=0.01, ha="left", fontsize=10, parse_math=False)
        # a title wider than the picture gets a smaller font
        width = text.get_window_extent(self._canvas.get_renderer()).width
        text.set_fontsize(10 * min(1.0, 0.98 * self._figure.bbox.width / width))
        offset = [f" − {value / self._unit_m:.10g} {self._unit}" if value else "" for value in self._origin]
        axes.set(xlabel=f"east{offset[0]} ({self._unit})", ylabel=f"north{offset[1]} ({self._unit})")
        (west, south), (east, north) = self.to_axes(np.stack([field.low, field.high]))
        margin = 0.02 * max(east - west, north - south)
        axes.set(xlim=(west - margin, east + margin), ylim=(south - margin, north + margin), aspect="equal")
        axes.spines[:].set_visible(False)
        return bytes_of(self._canvas)

    def _draw_field(self, low: float | None, high: float | None) -> Any:
        """Draw the field as an image, or as coloured sites if nothing lies between them."""
        field = self._field
        colours: dict[str, Any] = {"cmap": look.MEAN_COLOURS, "vmin": low, "vmax": high}
        if field.sites_only:
            east, north = self.to_axes(field.sites).T
            return self.axes.scatter(east, north, c=field.value(field.sites), s=46, marker="s", linewidths=0, **colours)
        (west, south), (east, north) = self.to_axes(np.stack([field.low, field.high]))
        extent = (west, east, south, north)
        return self.axes.imshow(field.raster, origin="lower", extent=extent, interpolation="bilinear", **colours)


def sensor_frame(
    field_of_rounds: Field, stations: "Stations", episode: "Episode", links: "nx.Graph[str]", max_cycles: int
) -> Picture:
    """Draw the field of the round, the sensors, their locations, and the radio links."""
    field, places, targets = field_of_rounds.at(episode.round), stations.places, episode.spots
    picture = FieldPicture(field, field_of_rounds.span or (field.minimum, field.maximum))
    colour = look.MUTED if field.sites_only else "white"  # the ground between sites is white
    picture.draw_links(links, places, color=colour, linewidth=0.6, alpha=0.5)
    for ends in np.stack([places, targets], axis=1)[episode.sampled]:
        effects = look.cased(2.2, look.INK)
        picture.axes.plot(*picture.to_axes(ends).T, color="white", linewidth=1.2, zorder=3, path_effects=effects)
    is_good, has_failed = episode.sampled & ~episode.failed, episode.sampled & episode.failed
    picture.scatter(targets[is_good], look.VERMILLION, 34, edgecolors=look.INK, linewidths=0.8, zorder=5)
    effects = look.cased(3.2, look.INK)
    picture.scatter(targets[has_failed], "white", 34, marker="x", linewidths=1.6, zorder=5, path_effects=effects)
    marks: dict[str, Any] = {"marker": "s", "edgecolors": look.INK, "linewidths": 0.9, "zorder": 4}
    picture.scatter(places[episode.sampled], "white", 26, **marks)
    picture.scatter(places[~episode.sampled], look.MUTED, 26, **marks)
    counts = f"{int(episode.sampled.sum())} of {len(places)} sampled, {episode.spent_j.sum():.4g} J spent"
    return picture.finish(f"{field.name}\nround {episode.round} of {max_cycles}, {counts}")


def robot_frame(world: "World", episode: "RobotEpisode", max_cycles: int) -> Picture:
    """Draw the field, the robots with their paths, samples, radio links, no-go regions, batteries and bases."""
    field, picture = world.field, FieldPicture(world.field)
    axes, to_axes = picture.axes, picture.to_axes
    for region in world.ground.regions:
        look.draw_no_go(axes, [to_axes(ring) for ring in region.rings])
    charge = world.battery_limits.charge(episode)
    for robot, share in enumerate(() if charge is None else charge.tolist()):
        axes.plot(*to_axes(episode.bases[robot, None])[0], color=look.agent_colour(robot), **look.BASE)
        look.draw_battery(axes, to_axes(episode.poses[robot, None, :2])[0], share, look.agent_colour(robot))
    dashes: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (4, 3)), "path_effects": look.cased(1.4, look.INK)}
    picture.draw_links(world.links(episode), episode.poses[:, :2], color="white", **dashes)
    for robot in range(len(episode.poses)):
        _draw_robot(picture, episode, robot)
    measurements = episode.samples[:, 3][np.isfinite(episode.samples[:, 3])]
    best = f"best measured {measurements.max():.4g} {field.unit}".rstrip() if measurements.size else "nothing measured"
    return picture.finish(f"{field.name}\nround {episode.round} of {max_cycles}, {best}")


def _draw_robot(picture: FieldPicture, episode: "RobotEpisode", robot: int) -> None:
    colour, axes, pose = look.agent_colour(robot), picture.axes, episode.poses[robot]
    trail = picture.to_axes(episode.trails[robot])
    axes.plot(*trail.T, color=colour, linewidth=1.5, zorder=3, path_effects=look.cased(2.5, look.INK))
    samples = episode.samples[episode.samples[:, 0] == robot]
    failed = np.isnan(samples[:, 3])
    picture.scatter(samples[~failed, 1:3], colour, 16, edgecolors=look.INK, linewidths=0.6, zorder=4)
    picture.scatter(samples[failed, 1:3], look.INK, 22, marker="x", linewidths=1.2, zorder=4)
    on_the_way = episode.on_the_way[episode.on_the_way[:, 0] == robot]
    picture.scatter(on_the_way[:, 1:3], colour, 6, edgecolors=look.INK, linewidths=0.4, zorder=4)
    position = picture.to_axes(pose[None, :2])[0]
    arrow = MarkerStyle(_ARROW, transform=Affine2D().rotate(float(pose[2])))
    axes.plot(*position, marker=arrow, markersize=15, color=colour, markeredgecolor=look.INK, zorder=5)
    write_beside(axes, str(robot), position, (9, 7), fontsize=9)


def write_beside(axes: Any, text: str, place: Any, offset: tuple[float, float], **style: Any) -> None:
    """Write white text, readable on any ground, some points away from a place in the coordinates of the axes."""
    style |= {"color": "white", "weight": "bold", "path_effects": look.cased(2.2, look.INK), "zorder": 6}
    axes.annotate(text, place, xytext=offset, textcoords="offset points", **style)
