"""A map whose field, paths, robots and radio links change from frame to frame."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.text import Text

from swarmbo.plotting import style
from swarmbo.plotting.history import World, driven_by, failures, path_of, stops_of
from swarmbo.plotting.surface import Lattice, draw_terrain, level_lines
from swarmbo.records import RoundRecord

_RECENT = 6  # rounds of which paths are drawn broad: those of a long run would hide the map
_MOST_APART = 8  # robots that are told apart one by one: more are crowded
_DISC_PT = 12.2  # across a robot, with its edge
_BANDS = 14  # colours of a map: few enough that a GIF compresses, and the edge of a band reads as a contour line


@dataclass
class MovingMap:
    """The artists of one map that change from frame to frame; they are drawn over a map that does not."""

    ax: Axes
    image: AxesImage
    lattice: Lattice
    trails: dict[str, Line2D]
    recent: dict[str, Line2D]
    heads: dict[str, Line2D]
    numbers: dict[str, Text]
    links: LineCollection
    failed: Line2D
    best: Line2D
    recommendation: Line2D
    boundary: LineCollection
    level: float | None
    marks_peak: bool
    terrain: list[Artist]
    stops: dict[str, Line2D]
    batteries: list[Artist] = field(default_factory=list[Artist])

    @classmethod
    def on(
        cls,
        ax: Axes,
        lattice: Lattice,
        agents: Sequence[str],
        colours: Colormap,
        norm: Normalize,
        link_colour: str,
        world: World | None = None,
        level: float | None = None,
    ) -> "MovingMap":
        """Add empty artists to a map.

        Args:
            ax: The map.
            lattice: Where the field is evaluated.
            agents: Names of the agents, in the team's order.
            colours: Colour map of the field, cut into bands.
            norm: Its range, the same for all frames.
            link_colour: Of the radio links.
            world: With what is no-go, and bases; None: there is nothing of that.
            level: Where the field is at it, a line is drawn; None draws none.
        """
        image = moving_image(ax, lattice, colours, norm)
        terrain = [] if world is None else draw_terrain(ax, world)
        for artist in terrain:
            artist.set_animated(True)  # the image below it moves
        trails: dict[str, Line2D] = {}
        recent: dict[str, Line2D] = {}
        stops: dict[str, Line2D] = {}
        heads: dict[str, Line2D] = {}
        numbers: dict[str, Text] = {}
        is_crowded = len(agents) > _MOST_APART
        broad: dict[str, Any] = (
            {"linewidth": 0.9} if is_crowded else {"linewidth": 1.6, "path_effects": style.cased(3.0)}
        )
        for index, agent in enumerate(agents):
            colour = style.agent_colour(index)
            line: dict[str, Any] = {"color": colour, "linestyle": style.agent_dashes(index), "animated": True}
            (trails[agent],) = ax.plot([], [], zorder=4, linewidth=0.9, **line)
            (recent[agent],) = ax.plot([], [], zorder=4, **line, **broad)
            (stops[agent],) = ax.plot([], [], "o", color=colour, markersize=2.8, markeredgewidth=0, animated=True)
            (heads[agent],) = ax.plot(
                [],
                [],
                "o",
                color=colour,
                markersize=_DISC_PT - 1.2,
                markeredgecolor="white",
                markeredgewidth=1.2,
                animated=True,
                clip_on=False,
                zorder=6,
            )
            numbers[agent] = ax.text(
                0,
                0,
                str(index),
                color="white",
                fontsize=6.5,
                weight="bold",
                ha="center",
                va="center_baseline",
                animated=True,
                zorder=7,
                path_effects=style.cased(1.2, style.INK),
            )
        links = LineCollection(
            [],
            colors=link_colour,
            linewidths=0.6 if is_crowded else 1.1,
            linestyles=(0, (2, 1.5)),
            animated=True,
            zorder=5,
        )
        ax.add_collection(links)
        (failed,) = ax.plot(
            [],
            [],
            "x",
            color=style.INK,
            markersize=6,
            markeredgewidth=1.6,
            path_effects=style.cased(3.2),
            animated=True,
            zorder=4.5,
        )
        (best,) = ax.plot([], [], animated=True, **style.BEST)
        (recommendation,) = ax.plot([], [], animated=True, **style.RECOMMENDATION)
        boundary = LineCollection([], animated=True, **style.LEVEL)
        ax.add_collection(boundary)
        marks_peak = world is None or world.goal == "peak"
        found = (failed, best, recommendation, boundary, level, marks_peak)
        made = cls(ax, image, lattice, trails, recent, heads, numbers, links, *found, terrain, stops)
        for artist in made.artists():
            artist.set_in_layout(False)  # what moves must not push the axes about
        return made

    def show(self, records: Sequence[RoundRecord], links: list[tuple[str, str]], picture: np.ma.MaskedArray) -> None:
        """Bring all artists to the last of these records."""
        self.image.set_data(picture)
        paths = {agent: path_of(records, agent) for agent in self.trails}
        if self.level is not None and picture.count():
            self.boundary.set_segments(level_lines(self.lattice, picture, self.level))
        for agent in paths:
            driven = driven_by(records, agent)
            before = len(driven_by(records[:-_RECENT], agent))
            self.trails[agent].set_data(*driven.T[:2])
            self.recent[agent].set_data(*driven[max(0, before - 1) :].T[:2])
            self.stops[agent].set_data(*stops_of(records, agent).T[:2])
        failed, best, recommendation = failures(records), records[-1].best, records[-1].recommendation
        if not self.marks_peak:
            best = recommendation = None
        told = {one.agent: one.battery for one in records[-1].samples if isinstance(one.battery, float)}
        ends = np.array([path[-1] for path in paths.values()])
        heads = dict(zip(paths, self._placed(ends, None if best is None else best.location, bool(told)), strict=True))
        for artist in self.batteries:
            artist.remove()
        self.batteries = []
        for index, agent in enumerate(paths):
            if agent in told:
                is_above = bool(self._lacks_room(heads[agent][None])[0])
                colour = style.agent_colour(index)
                self.batteries += style.draw_battery(self.ax, heads[agent], told[agent], colour, is_above)
        self.links.set_segments([np.stack([paths[a][-1], paths[b][-1]]) for a, b in links if a in paths and b in paths])
        self.failed.set_data(failed[:, 0], failed[:, 1])
        self.recommendation.set_data(
            *([], []) if recommendation is None else np.asarray(recommendation.location)[:, None]
        )

    def _lacks_room(self, places: Float[np.ndarray, "agents 2"]) -> Bool[np.ndarray, " agents"]:
        """Under which robots a battery would reach out of the map."""
        reach = style.BATTERY_POINTS[2] * self.ax.figure.dpi / 72.0
        return self.ax.transData.transform(places)[:, 1] - reach < self.ax.bbox.y0

    def _placed(
        self, places: Float[np.ndarray, "agents 2"], best: Sequence[float] | None = None, have_batteries: bool = False
    ) -> Float[np.ndarray, "agents 2"]:
        """Robots put where they are; those in one place, or on the best measurement, side by side.

        They and their batteries stay on the map. Of many robots that would be a row across it.

        Args:
            places: Where they are.
            best: Where the best measurement is, whose mark stays there unless it is crowded out at the edge.
            have_batteries: Whether each has one beside it.
        """
        found = np.reshape([] if best is None else best, (-1, 2))
        if len(places) <= _MOST_APART:
            to_pixels, points = self.ax.transData, self.ax.figure.dpi / 72.0
            wide = high = _DISC_PT * points
            if have_batteries:
                width, _, reach = (length * points for length in style.BATTERY_POINTS)
                wide = max(wide, width + 1.5 * points)
                high = 2.0 * reach if self._lacks_room(places).any() else reach + 0.5 * high
            drawn = np.vstack([places, found])
            spots = to_pixels.transform(drawn)
            weights = np.ones(len(spots))
            weights[len(places) :] = 1e9
            inside = (self.ax.bbox.x0 + 0.5 * wide, self.ax.bbox.x1 - 0.5 * wide)
            moved = spots + style.side_by_side(spots, (wide, high), weights, inside)
            is_aside = (np.abs(moved - spots) > 1e-6).any(axis=1)
            drawn[is_aside] = to_pixels.inverted().transform(moved[is_aside])
            places, found = drawn[: len(places)], drawn[len(places) :]
        for agent, place in zip(self.heads, places, strict=True):
            self.heads[agent].set_data(place[:1], place[1:])
            self.numbers[agent].set_position(place)
        self.best.set_data(*found.T)
        return places

    def artists(self) -> list[Artist]:
        """In the order of drawing."""
        heads = [artist for agent in self.heads for artist in (self.heads[agent], self.numbers[agent])]
        paths = [*self.trails.values(), *self.recent.values(), *self.stops.values()]
        bases = [artist for artist in self.terrain if isinstance(artist, Line2D)]  # above the ways that lead there
        no_go = [artist for artist in self.terrain if artist not in bases]
        marks = [self.failed, self.links, self.recommendation, self.best]
        return [self.image, self.boundary, *no_go, *paths, *bases, *marks, *self.batteries, *heads]


def band_colours(colours: Colormap) -> Float[np.ndarray, "bands 4"]:
    """The colours (RGBA) that are left of a colour map on a moving map."""
    return colours(np.linspace(0.0, 1.0, _BANDS))


def moving_image(ax: Axes, lattice: Lattice, colours: Colormap, norm: Normalize) -> AxesImage:
    """An image on a lattice with nothing in it yet, whose data change from frame to frame."""
    return ax.imshow(
        np.ma.masked_all(lattice.shown.shape),
        extent=lattice.extent,
        cmap=ListedColormap(band_colours(colours)),
        norm=norm,
        interpolation="bilinear",
        interpolation_stage="data",
        aspect="equal",
        animated=True,
    )
