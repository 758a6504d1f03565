"""A run as a moving picture: the belief sharpens, paths grow, radio links come and go, regret falls."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from swarmbo.belief import ExactGPSettings
from swarmbo.plotting import places, style, surface
from swarmbo.plotting.formats import write_frames
from swarmbo.plotting.history import Records, World, agents_of, belief_after, failures
from swarmbo.plotting.moving_map import MovingMap, band_colours
from swarmbo.plotting.regret import best_so_far, scale_regret, scores

_RESOLUTION = 56
_DPI = 100


def write_animation(
    records: Records, world: World, settings: ExactGPSettings, path: Path, max_frames: int | None = None
) -> Path:
    """Write a run as an animation; the ending of the path, ``.gif`` or ``.mp4``, names the format.

    A run with more rounds than ``max_frames`` (by default 50, or 30 with more than eight robots, whose frames are
    larger) shows every k-th round, and says so; the last round always.
    """
    world.require_plane()
    most = max_frames or (50 if len(agents_of(records)) <= 8 else 30)
    stride = -(-len(records) // most)
    # agents of a served field are nowhere before their first outcomes
    first = 0 if records[0].samples else min(1, len(records) - 1)
    shown = sorted({*range(first, len(records), stride), len(records) - 1})
    bands = [to_hex(colour) for colours in (style.MEAN_COLOURS, style.STD_COLOURS) for colour in band_colours(colours)]
    robots = [style.agent_colour(index) for index in range(len(agents_of(records)))]
    exact = ["#ffffff", style.INK, style.MUTED, style.BLUE, style.BEST_COLOUR, *robots, *bands]
    return write_frames(render_frames(records, world, settings, shown, stride), path, exact)


def render_frames(
    records: Records, world: World, settings: ExactGPSettings, shown: Sequence[int], stride: int = 1
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """Draw the RGB frames of an animation after the records at some places; ``stride`` is for the caption."""
    lattice = surface.lattice_over(world, _RESOLUTION)
    beliefs = [belief_after(records[: place + 1], settings, world.domain) for place in shown]
    posteriors = [None if belief is None else belief.posterior(lattice.points) for belief in beliefs]
    means = [None if posterior is None else posterior[0] for posterior in posteriors]
    stds = [None if posterior is None else np.sqrt(np.maximum(posterior[1], 0.0)) for posterior in posteriors]
    layers = [_Layer("Mean", lattice, means), _Layer("Std. deviation", lattice, stds, is_deviation=True)]
    if (truth := _moving_truth(records, world, shown)) is not None:
        layers.insert(0, truth)
    with style.applied():
        scene = _Scene(records, world, layers)
        frames: list[UInt8[np.ndarray, "height width 3"]] = []
        for frame, place in enumerate(shown):
            pictures = [layer.picture(frame) for layer in layers]
            frames.append(scene.draw(records, place, pictures, _caption(records, place, world, stride)))
    return frames


@dataclass(frozen=True)
class _Layer:
    """One map of the animation: its title, lattice, and values in each frame, None where there are none yet."""

    title: str
    lattice: surface.Lattice
    frames: Sequence[np.ndarray | None]
    is_deviation: bool = False

    @property
    def colours(self) -> Colormap:
        return style.STD_COLOURS if self.is_deviation else style.MEAN_COLOURS

    def picture(self, frame: int) -> np.ma.MaskedArray:
        values = self.frames[frame]
        return np.ma.masked_all(self.lattice.shown.shape) if values is None else self.lattice.image(values)


def _moving_truth(records: Records, world: World, shown: Sequence[int]) -> _Layer | None:
    """The field itself, where it changes and is known on a lattice."""
    found = None if world.points is None else surface.lattice_order(world.points)
    if world.frames is None or found is None:
        return None
    lattice, order = found
    return _Layer("Truth", lattice, [world.frames[records[place].round][order] for place in shown])


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
        *left, right = figure.subplots(1, n + 1, width_ratios=[map_width] * n + [2.0])
        ranges = [_range([layer]) for layer in layers]
        if n == 3:  # truth and mean in one scale
            ranges[0] = ranges[1] = _range(layers[:2])
        agents = agents_of(records)
        self.maps = [
            MovingMap(
                *(ax, layer.lattice, agents, layer.colours, norm),
                style.INK if layer.is_deviation else "white",
                world,
                None if layer.is_deviation else world.level,
            )
            for ax, layer, norm in zip(left, layers, ranges, strict=True)
        ]
        for ax, layer, moving in zip(left, layers, self.maps, strict=True):
            ax.set_title(style.with_unit(layer.title, world.unit))
            surface.frame_map(ax, world)
            surface.add_colour_bar(ax, moving.image, "")
        for ax in left[1:]:
            ax.set_ylabel("")
        self.heights, label, unit = _curve(records, world)
        right.set_title(style.with_unit(label, unit))
        right.set_xlabel("round")
        right.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        right.set_xlim(records[0].round - 0.5, records[-1].round + 0.5)
        _scale_curve(right, self.heights, is_regret=records[-1].score is not None and world.goal == "peak")
        (self.curve,) = right.plot([], [], color=style.BLUE, drawstyle="steps-post", animated=True)
        (self.head,) = right.plot([], [], "o", color=style.BLUE, markersize=7, markeredgecolor="white", animated=True)
        self.caption = figure.text(0.012, 0.985, "", fontsize=11, va="top", animated=True)
        below: dict[str, Any] = {"loc": "outside lower center", "handlelength": 1.8, "columnspacing": 1.4}
        figure.legend(handles=_legend_handles(records, world), ncols=8, **below)
        figure.suptitle(" ", fontsize=11)  # room for the caption
        assert isinstance(figure.canvas, FigureCanvasAgg)
        self.canvas = figure.canvas
        self.canvas.draw()
        self.background: Any = self.canvas.copy_from_bbox(figure.bbox)

    def draw(
        self, records: Records, place: int, pictures: Sequence[np.ma.MaskedArray], caption: str
    ) -> UInt8[np.ndarray, "height width 3"]:
        past = records[: place + 1]
        # A record holds the links at the moment of deciding, that is, at the places where the round before it ended.
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
        self.caption.set_text(caption)
        for artist in (self.curve, self.head):
            self.figure.axes[len(self.maps)].draw_artist(artist)
        self.figure.draw_artist(self.caption)
        return style.pixels(self.canvas)


def _caption(records: Records, place: int, world: World, stride: int) -> str:
    parts = [part for part in (world.name, world.method) if part]
    parts.append(f"round {records[place].round} of {records[-1].round}")
    return " · ".join([*parts, f"every {stride} rounds"] if stride > 1 else parts)


def _range(layers: Sequence[_Layer]) -> Normalize:
    values = [values[layer.lattice.shown.ravel()] for layer in layers for values in layer.frames if values is not None]
    if not values:
        return Normalize(0.0, 1.0)
    least = min(float(value.min()) for value in values) if not layers[0].is_deviation else 0.0
    most = max(float(value.max()) for value in values)
    return Normalize(least, most if most > least else least + 1.0)


def _curve(records: Records, world: World) -> tuple[np.ndarray, str, str]:
    """Score that the run is about, where the truth is known, else the best measurement so far; its name and unit."""
    if records[-1].score is None:
        return best_so_far(records), "Best measurement", world.unit
    kept = {
        "peak": ("simple_regret", "Simple regret", world.unit),
        "map": ("map_rmse", "Map error", world.unit),
        "level": ("level_f1", "F1 of the level", ""),
    }
    name, label, unit = kept[world.goal]
    return scores(records, name), label, unit


def _scale_curve(ax: Axes, heights: np.ndarray, is_regret: bool) -> None:
    """Limits from the whole run, so that the axis stands still while the curve grows."""
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
        marks = [mark for mark in places.sensor_legend(len(failures(records)) > 0) if mark.get_label() != "earlier"]
        return [*marks, *places.legend_of(records, world, ["recommendation", "level", "true level"])]
    path: dict[str, Any] = {"marker": "o", "markersize": 8, "linewidth": 1.4, "label": "robot and its path"}
    link: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (2, 1.5)), "label": "radio link"}
    marks = [Line2D([], [], color=style.MUTED, **path), Line2D([], [], color=style.INK, **link)]
    shown = ["no-go", "base", "level", "true level", "battery", "best", "recommendation", "failed"]
    return [*marks, *places.legend_of(records, world, shown)]
