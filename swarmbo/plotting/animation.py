"""A run as an animation: a map whose field, robots and radio links change from frame to frame."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contourpy import contour_generator
from jaxtyping import Bool, Float, UInt8
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize, to_hex
from matplotlib.lines import Line2D
from matplotlib.text import Text

from swarmbo.belief import ExactGPSettings
from swarmbo.metrics import scores_of
from swarmbo.plotting import maps, style
from swarmbo.plotting.history import Records, World, agents_of, belief_after, failures, measured_places, path_of
from swarmbo.plotting.maps import Lattice
from swarmbo.plotting.regret import best_so_far, scale_regret
from swarmbo.records import RoundRecord

_RECENT = 6  # rounds whose paths are drawn broad: more broad paths would hide the map
_MOST_APART = 8  # most robots whose marks are moved apart: more would be crowded
_DISC_PT = 12.2  # diameter of a robot's disc, with its edge
_BANDS = 14  # colours of a map: few enough that a GIF compresses, and the edge of a band reads as a contour line

Look = tuple[Colormap, Normalize, str]  # the last is the colour of links
Drawn = dict[str, Sequence[Artist]]  # artists by kind, in the order of drawing
_RESOLUTION = 56
_DPI = 100
_CAPTION, _LEAST = 11.0, 7.0  # points, of the caption and of titles at least
_MOST_FRAMES, _FEWER_FRAMES = 50, 30


class MovingMap:
    """One map of an animation: each frame updates the image and has new artists over it."""

    def __init__(
        self, ax: Axes, lattice: Lattice, agents: Sequence[str], look: Look, world: World, level: float | None = None
    ) -> None:
        self.ax, self._lattice, self._agents, self._world = ax, lattice, tuple(agents), world
        (colours, norm, self._link_colour), self._level = look, level
        bands = ListedColormap(band_colours(colours))
        options: dict[str, Any] = {"cmap": bands, "norm": norm, "extent": lattice.extent, "origin": "lower"}
        options |= {"interpolation": "bilinear", "interpolation_stage": "data", "aspect": "equal", "animated": True}
        self.image = ax.imshow(np.ma.masked_all(lattice.shown.shape), **options)
        self.image.set_in_layout(False)  # moving parts must not shift the axes

    def show(self, records: Records, links: list[tuple[str, str]], picture: np.ma.MaskedArray) -> Drawn:
        """Update the map to the last record; return artists in drawing order. The caller removes all but the image."""
        self.image.set_data(picture)
        drawn: Drawn = {"field": [self.image], "level": self._level_lines(self._lattice, picture, style.LEVEL)}
        world = self._world.at(records[-1].round)
        if self._level is not None and (truth := maps.world_lattice(world)) is not None:
            lattice, values = truth
            drawn["true level"] = self._level_lines(lattice, lattice.image(values), style.TRUE_LEVEL)
        return drawn | (self._sensors if self._world.standpoints else self._robots)(records, links)

    def _sensors(self, records: Records, links: list[tuple[str, str]]) -> Drawn:
        standpoints = self._world.standpoints
        line_style: dict[str, Any] = {"colors": self._link_colour, "linewidths": 0.5, "alpha": 0.7}
        return {
            "links": self._lines([np.stack([standpoints[a], standpoints[b]]) for a, b in links], **line_style),
            "sensors": maps.draw_sensors(self.ax, records[-1], standpoints, sizes=(22, 30, 6), width=1.6),
            "recommendation": self._recommendation(records[-1]),
        }

    def _robots(self, records: Records, links: list[tuple[str, str]]) -> Drawn:
        ax, agents, is_crowded = self.ax, self._agents, len(self._agents) > _MOST_APART
        places = [measured_places(records, agent) for agent in agents]
        ends = {agent: at[-1] for agent, at in zip(agents, places, strict=True) if len(at)}  # others: not seen yet
        paths = [path_of(records, agent) for agent in agents]
        before = [len(path_of(records[:-_RECENT], agent)) for agent in agents]
        recent = [path[max(0, n - 1) :] for n, path in zip(before, paths, strict=True)]
        broad: dict[str, Any] = {"width": 0.9} if is_crowded else {"width": 1.6, "path_effects": style.cased(3.0)}
        best = records[-1].best if self._world.goal == "peak" and self._world.frames is None else None
        charges = {sample.agent: sample.battery for sample in records[-1].samples if isinstance(sample.battery, float)}
        spots = np.array(list(ends.values())).reshape(-1, 2)
        best_spot = None if best is None else np.array(best.location)
        spots, best_spot = self.separate_marks(spots, best_spot, bool(charges))
        heads = dict(zip(ends, spots, strict=True))
        pairs = [np.stack([ends[a], ends[b]]) for a, b in links if a in ends and b in ends]
        link_style: dict[str, Any] = {"colors": self._link_colour, "linewidths": 0.6 if is_crowded else 1.1}
        batteries: list[Artist] = []
        robots: list[Artist] = []
        for agent, place in heads.items():
            index = agents.index(agent)
            robots += self._robot(index, place)
            if agent in charges:
                is_above = bool(self._lacks_room(place[None])[0])  # below, it would reach out of the map
                batteries += style.draw_battery(ax, place, charges[agent], style.agent_colour(index), is_above)
        return {
            "no-go": [style.draw_no_go(ax, rings) for rings in self._world.no_go],
            "ways": maps.draw_agent_paths(ax, paths, 0.9),
            "recent": maps.draw_agent_paths(ax, recent, **broad),
            "stops": maps.draw_measurements(ax, places, 2.8),
            "bases": maps.draw_bases(ax, self._world),  # above the paths that lead there
            "failed": maps.draw_failed(ax, failures(records), 6, 1.6, casing=3.2),
            "links": self._lines(pairs, linestyles=(0, (2, 1.5)), **link_style),
            "recommendation": self._recommendation(records[-1]),
            "best": [] if best_spot is None else ax.plot(*best_spot, **style.BEST),
            "batteries": batteries,
            "robots": robots,
        }

    def _robot(self, index: int, place: Float[np.ndarray, " 2"]) -> list[Artist]:
        disc_style: dict[str, Any] = {"markersize": _DISC_PT - 1.2, "markeredgecolor": "white", "markeredgewidth": 1.2}
        text_style: dict[str, Any] = {"color": "white", "fontsize": 6.5, "weight": "bold", "ha": "center"}
        (x, y), colour = place.tolist(), style.agent_colour(index)
        casing = style.cased(1.2, style.INK)
        number = self.ax.text(x, y, str(index), va="center_baseline", path_effects=casing, **text_style)
        return [*self.ax.plot(x, y, "o", color=colour, clip_on=False, **disc_style), number]

    def _recommendation(self, record: RoundRecord) -> Sequence[Artist]:
        if record.recommendation is None or self._world.goal != "peak":
            return []
        return self.ax.plot(*record.recommendation.location[:2], **style.RECOMMENDATION)

    def _level_lines(self, lattice: Lattice, picture: np.ma.MaskedArray, look: dict[str, Any]) -> Sequence[Artist]:
        lines: Any = []
        if self._level is not None and picture.count():
            lines = contour_generator(lattice.x, lattice.y, picture).lines(self._level)
        return self._lines(lines, **look)

    def _lines(self, segments: Sequence[np.ndarray], **look: Any) -> Sequence[Artist]:
        lines = LineCollection(segments, **look)
        self.ax.add_collection(lines, autolim=False)
        return [lines]

    def _lacks_room(self, places: Float[np.ndarray, "agents 2"]) -> Bool[np.ndarray, " agents"]:
        """True for each robot under which a battery would reach out of the map."""
        reach = style.BATTERY_POINTS[2] * self.ax.figure.dpi / 72.0
        return self.ax.transData.transform(places)[:, 1] - reach < self.ax.bbox.y0

    def separate_marks(
        self, places: Float[np.ndarray, "agents 2"], best: Float[np.ndarray, " 2"] | None, have_batteries: bool
    ) -> tuple[Float[np.ndarray, "agents 2"], Float[np.ndarray, " 2"] | None]:
        """Positions of robots and of the best measurement's mark, moved apart where they overlap."""
        if len(places) > _MOST_APART:
            return places, best
        to_pixels, points = self.ax.transData, self.ax.figure.dpi / 72.0
        wide = high = _DISC_PT * points
        if have_batteries:
            width, _, reach = (length * points for length in style.BATTERY_POINTS)
            wide = max(wide, width + 1.5 * points)
            high = 2.0 * reach if self._lacks_room(places).any() else reach + 0.5 * high
        locations = np.array(places) if best is None else np.vstack([places, best])
        spots = to_pixels.transform(locations)
        weights = np.where(np.arange(len(locations)) < len(places), 1.0, 1e9)
        inside = (self.ax.bbox.x0 + 0.5 * wide, self.ax.bbox.x1 - 0.5 * wide)
        moved = spots + style.separating_shifts(spots, (wide, high), weights, inside)
        is_aside = (np.abs(moved - spots) > 1e-6).any(axis=1)
        locations[is_aside] = to_pixels.inverted().transform(moved[is_aside])
        return locations[: len(places)], None if best is None else locations[-1]


def band_colours(colours: Colormap) -> Float[np.ndarray, "bands 4"]:
    """The few colours (RGBA) of a colour map that a moving map uses."""
    return colours(np.linspace(0.0, 1.0, _BANDS))


def write_animation(records: Records, world: World, settings: ExactGPSettings, path: Path) -> Path:
    """Write a run as an animation, ``.gif`` or ``.mp4`` by the ending of the path.

    A run of more than 50 rounds (30 with more than eight robots) shows every k-th round, and the last, and says so.
    """
    world.require_plane()
    stride = -(-len(records) // (_MOST_FRAMES if len(agents_of(records, world)) <= 8 else _FEWER_FRAMES))
    first = 0 if records[0].samples else min(1, len(records) - 1)  # a served field begins without outcomes
    shown = sorted({*range(first, len(records), stride), len(records) - 1})
    bands = [to_hex(colour) for colours in (style.MEAN_COLOURS, style.STD_COLOURS) for colour in band_colours(colours)]
    robots = [style.agent_colour(index) for index in range(len(agents_of(records, world)))]
    exact = ["#ffffff", style.INK, style.MUTED, style.BLUE, style.BEST_COLOUR, *robots, *bands]
    return style.write_frames(render_frames(records, world, settings, shown, stride), path, exact)


def render_frames(
    records: Records, world: World, settings: ExactGPSettings, shown: Sequence[int], stride: int = 1
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Draw the RGB frames of an animation, one after each record in ``shown``; ``stride`` is for the caption."""
    lattice = maps.lattice_over(world, _RESOLUTION)
    beliefs = [belief_after(records[: place + 1], settings, world.domain) for place in shown]
    posteriors = [None if belief is None else belief.posterior(lattice.points) for belief in beliefs]
    means = [None if posterior is None else posterior[0] for posterior in posteriors]
    stds = [None if posterior is None else np.sqrt(np.maximum(posterior[1], 0.0)) for posterior in posteriors]
    layers = [_Layer("Mean", lattice, means), _Layer("Std. deviation", lattice, stds, is_deviation=True)]
    known = None if world.points is None else maps.lattice_order(world.points, bool(world.no_go))
    if world.frames is not None and known is not None:
        layers.insert(0, _Layer("Truth", known[0], [world.frames[records[k].round][known[1]] for k in shown]))
    with style.applied():
        scene = _Scene(records, world, layers)
        frames: list[UInt8[np.ndarray, "height width 3"]] = []
        for frame, place in enumerate(shown):
            pictures = [layer.picture(frame) for layer in layers]
            parts = [world.name, world.method, f"round {records[place].round} of {records[-1].round}"]
            parts += [f"every {stride} rounds"] if stride > 1 else []
            frames.append(scene.draw(records, place, pictures, " · ".join(filter(None, parts))))
    return frames


@dataclass(frozen=True)
class _Layer:
    """One map of the animation: its title, lattice, and values in each frame, None where there are none yet."""

    title: str
    lattice: Lattice
    frames: Sequence[np.ndarray | None]
    is_deviation: bool = False

    def picture(self, frame: int) -> np.ma.MaskedArray:
        values = self.frames[frame]
        return np.ma.masked_all(self.lattice.shown.shape) if values is None else self.lattice.image(values)


class _Scene:
    """A figure whose fixed part is drawn once; frames are that picture with the moving artists on top."""

    def __init__(self, records: Records, world: World, layers: Sequence[_Layer]) -> None:
        width, height = world.domain.high - world.domain.low
        aspect = float(np.clip(height / width, 0.45, 2.2))
        map_height = min(2.7 * max(1.0, aspect**0.5), 3.6 * aspect)
        map_width = max(map_height / aspect, 1.8)
        n = len(layers)
        self.figure = figure = style.new_figure(n * (map_width + 0.95) + 2.6, map_height + 1.3)
        figure.set_dpi(_DPI)
        *map_axes, right = figure.subplots(1, n + 1, width_ratios=[map_width] * n + [2.0])
        ranges = [_range([layer]) for layer in layers]
        if n == 3:  # truth and mean in one scale
            ranges[0] = ranges[1] = _range(layers[:2])
        agents = agents_of(records, world)
        self.maps: list[MovingMap] = []
        titles = [ax.set_title(layer.title) for ax, layer in zip(map_axes, layers, strict=True)]
        for ax, layer, norm in zip(map_axes, layers, ranges, strict=True):
            colours = style.STD_COLOURS if layer.is_deviation else style.MEAN_COLOURS
            link, level = (style.INK, None) if layer.is_deviation else ("white", world.level)
            moving = MovingMap(ax, layer.lattice, agents, (colours, norm, link), world, level)
            self.maps.append(moving)
            maps.frame_map(ax, world)
            maps.add_colour_bar(ax, moving.image, "")
        for ax in map_axes[1:]:
            ax.set_ylabel("")
        self.heights, label, unit = _curve(records, world)
        titles.append(right.set_title(label))  # units follow below: wide titles would move the axes
        style.rounds_axis(right)
        right.set_xlim(records[0].round - 0.5, records[-1].round + 0.5)
        _scale_curve(right, self.heights, is_regret=records[-1].score is not None and world.goal == "peak")
        (self.curve,) = right.plot([], [], color=style.BLUE, drawstyle="steps-post", animated=True)
        (self.head,) = right.plot([], [], "o", color=style.BLUE, markersize=7, markeredgecolor="white", animated=True)
        self.caption = figure.text(0.012, 0.985, "", va="top", animated=True)
        below: dict[str, Any] = {"loc": "outside lower center", "handlelength": 1.8, "columnspacing": 1.4}
        figure.legend(handles=_legend_handles(records, world), ncols=8, **below)
        figure.suptitle(" ", fontsize=_CAPTION)  # room for the caption
        self.canvas = FigureCanvasAgg(figure)
        figure.draw_without_rendering()
        # over the map and its colour bar, but not over the labels of the bar
        widths = [*(1.07 * ax.bbox.width for ax in map_axes), 0.95 * (figure.bbox.x1 - right.bbox.x0)]
        for title, width in zip(titles, widths, strict=True):
            _fit_title(title, unit if title is titles[-1] else world.unit, width)
        self.canvas.draw()
        self.background: Any = self.canvas.copy_from_bbox(figure.bbox)

    def draw(
        self, records: Records, place: int, pictures: Sequence[np.ma.MaskedArray], caption: str
    ) -> UInt8[np.ndarray, "height width 3"]:
        past = records[: place + 1]
        # A record holds the links at the time of the decision, that is, at the locations where the round before ended.
        links = records[place + 1].links if place + 1 < len(records) else []
        self.canvas.restore_region(self.background)
        for moving, picture in zip(self.maps, pictures, strict=True):
            for artists in moving.show(past, links, picture).values():
                for artist in artists:
                    moving.ax.draw_artist(artist)
                    if artist is not moving.image:
                        artist.remove()
        rounds = [record.round for record in past]
        self.curve.set_data(rounds, self.heights[: place + 1])
        self.head.set_data(rounds[-1:], self.heights[place : place + 1])
        self.caption.set(text=caption, fontsize=_CAPTION)
        # smaller if it is too wide: its end, the round, must stay visible
        ratio = self.caption.get_window_extent().width / (0.92 * self.figure.bbox.width)
        self.caption.set_fontsize(_CAPTION / max(1.0, ratio))
        for artist in (self.curve, self.head, self.caption):
            self.figure.draw_artist(artist)
        return np.asarray(self.canvas.buffer_rgba())[..., :3].copy()


def _fit_title(title: Text, unit: str, width: float) -> None:
    """Add the unit to a title within ``width`` pixels: smaller if need be, and if that is not enough, shortened."""
    label, size, most = title.get_text(), float(title.get_fontsize()), len(unit)
    title.set_text(style.with_unit(label, unit))
    while title.get_window_extent().width > width and most > 1:
        size, most = (size - 0.25, most) if size > _LEAST else (size, most - 1)
        title.set(text=style.with_unit(label, style.shortened(unit, most)), fontsize=size)


def _range(layers: Sequence[_Layer]) -> Normalize:
    pictures = [layer.picture(frame).compressed() for layer in layers for frame in range(len(layer.frames))]
    values = np.concatenate(pictures)
    return maps.normalise(values, maps.from_zero(values) if layers[0].is_deviation else None)


def _curve(records: Records, world: World) -> tuple[np.ndarray, str, str]:
    """Score of the run if the truth is known, otherwise the best measurement so far; its name and unit."""
    if records[-1].score is None:
        return best_so_far(records), "Best measurement", world.unit
    if world.goal == "level":
        return scores_of(records, "level_f1"), "F1 of the level", ""
    name, label = ("simple_regret", "Simple regret") if world.goal == "peak" else ("map_rmse", "Map error")
    return scores_of(records, name), label, world.unit


def _scale_curve(ax: Axes, heights: np.ndarray, is_regret: bool) -> None:
    """Set limits from the whole run, so that the axis stands still while the curve grows."""
    finite = heights[np.isfinite(heights)]
    if is_regret and len(finite):
        scale_regret(ax, heights)
        if ax.get_yscale() == "log":
            ax.set_ylim(0.7 * finite.min(), 1.4 * finite.max())
    elif len(finite):
        margin = 0.06 * float(finite.max() - finite.min()) or 1.0
        ax.set_ylim(float(finite.min()) - margin, float(finite.max()) + margin)


def _legend_handles(records: Records, world: World) -> list[Line2D]:
    if world.standpoints:
        marks = [mark for mark in maps.sensor_legend(len(failures(records)) > 0) if mark.get_label() != "earlier"]
        return [*marks, *maps.legend_of(records, world, ["recommendation", "level", "true level"])]
    path: dict[str, Any] = {"marker": "o", "markersize": 8, "linewidth": 1.4, "label": "robot and its path"}
    link: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (2, 1.5)), "label": "radio link"}
    marks = [Line2D([], [], color=style.MUTED, **path), Line2D([], [], color=style.INK, **link)]
    shown = ["no-go", "base", "level", "true level", "battery", "best", "recommendation", "failed"]
    return [*marks, *maps.legend_of(records, world, shown)]
