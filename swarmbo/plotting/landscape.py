"""A run in three dimensions: robots drive over the ground, which is painted with what the team believes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from swarmbo.belief import ExactGPSettings
from swarmbo.plotting import maps, style
from swarmbo.plotting.history import Records, World, agents_of, belief_after, driven_by, failures, stops_of
from swarmbo.plotting.maps import Lattice, lattice_over
from swarmbo.plotting.style import write_frames

_RESOLUTION = 64
_PIXELS = 1024  # of what the ground is painted with, along the longer side
_DPI = 100
_MOST_FRAMES = 90
_MOMENTS = 4  # of a round, at the most
_PAN = 24.0  # degrees that the camera goes round, in all
_LABEL = 1.25  # lengths of a robot as it is drawn, above the ground
_APART = 15.0, 18.0  # pixels that numbers need, to the right and up


class Scene(Protocol):
    """Drawing of a world in three dimensions; ``env.unwrapped.scene(width, height)`` makes one.

    Args:
        size: Width and height of its pictures.
        larger: How much longer robots are drawn than they are.
        higher: How much higher the ground is.
    """

    size: tuple[int, int]
    larger: float
    higher: float

    def picture(
        self, ground: UInt8[np.ndarray, "rows columns 3"], poses: Float[np.ndarray, "robots 3"], turn: float = 0.0
    ) -> UInt8[np.ndarray, "height width 3"]:
        """The map, painted (south row first), with robots (x, y, heading) on it."""
        ...

    def pixels(self, places: Float[np.ndarray, "k 2"], above: float = 0.0) -> Float[np.ndarray, "k 2"]:
        """Pixels of places in the last picture."""
        ...


def write_landscape(records: Records, world: World, settings: ExactGPSettings, scene: Scene, path: Path) -> Path:
    """Write a run as an animation in three dimensions, drawn by ``scene``."""
    world.require_plane()
    moments = max(1, min(_MOMENTS, _MOST_FRAMES // len(records)))
    stride = -(-len(records) // _MOST_FRAMES)
    lattice = lattice_over(world, _RESOLUTION)
    beliefs = {
        place: None if belief is None else belief.posterior(lattice.points)[0]
        for place in sorted({*range(0, len(records), stride), len(records) - 1})
        for belief in [belief_after(records[: place + 1], settings, world.domain)]
    }
    shown = [(0, 1.0)]
    for place in list(beliefs)[1:]:
        shown += [(place, (moment + 1) / moments) for moment in range(moments)]
    with style.applied():
        stage = _Stage(records, world, scene, lattice, beliefs)
        frames = [
            stage.draw(place, share, _PAN * (n / max(1, len(shown) - 1) - 0.5))
            for n, (place, share) in enumerate(shown)
        ]
    robots = [style.agent_colour(index) for index in range(len(agents_of(records)))]
    return write_frames(frames, path, ["#ffffff", style.INK, style.MUTED, style.BEST_COLOUR, *robots], shaded=True)


class _Stage:
    """The figure around the scene, and the map that the ground is painted with."""

    def __init__(
        self,
        records: Records,
        world: World,
        scene: Scene,
        lattice: Lattice,
        beliefs: Mapping[int, Float[np.ndarray, " m"] | None],
    ) -> None:
        self._records, self._world, self._scene = records, world, scene
        self._lattice, self._beliefs = lattice, beliefs
        values = [mean for mean in beliefs.values() if mean is not None]
        low = min((float(mean.min()) for mean in values), default=0.0)
        high = max((float(mean.max()) for mean in values), default=1.0)
        self._norm = Normalize(low, high if high > low else low + 1.0)
        self._agents = agents_of(records)
        self._map_canvas, self._map = _blank(world)
        width, height = scene.size
        self._figure = Figure(figsize=((width + 110) / _DPI, (height + 60) / _DPI), dpi=_DPI)
        self._canvas = FigureCanvasAgg(self._figure)
        total = self._figure.get_size_inches() * _DPI
        self._view = self._figure.add_axes((0.0, 34 / total[1], width / total[0], height / total[1]))
        bar = self._figure.add_axes(((width + 8) / total[0], 0.2, 16 / total[0], 0.55))
        self._figure.colorbar(ScalarMappable(self._norm, style.MEAN_COLOURS), cax=bar)
        bar.set_title(style.with_unit("Mean", world.unit), fontsize=9, loc="left")
        ways = Line2D([], [], marker="o", color=style.MUTED, markersize=6, linewidth=1.8, label="way and measurements")
        marks = [ways, *maps.legend_of(records, world, ["no-go", "base", "best", "level", "failed"])]
        self._figure.legend(handles=marks, loc="lower left", ncols=8, handlelength=1.6, columnspacing=1.6)

    def draw(self, place: int, share: float, turn: float) -> UInt8[np.ndarray, "height width 3"]:
        """One frame: a share of the way into the round of a record."""
        records, agents = self._records[: place + 1], self._agents
        ways = {agent: _way(records, agent, share) for agent in agents}
        poses = np.array([[*way[-1], _heading(way)] for way in ways.values()])
        before = max([known for known in self._beliefs if known < place], default=0)
        told = records if share >= 1.0 else records[:-1]
        picture = self._scene.picture(self._ground(told, ways, place if share >= 1.0 else before), poses, turn)
        view, scene = self._view, self._scene
        view.clear()
        view.set_axis_off()
        view.imshow(picture, origin="upper", aspect="auto")
        view.set_xlim(-0.5, picture.shape[1] - 0.5)
        view.set_ylim(picture.shape[0] - 0.5, -0.5)
        spots = scene.pixels(poses[:, :2], _LABEL)
        bold: dict[str, Any] = {"fontsize": 12, "weight": "bold", "ha": "center", "va": "bottom"}
        for index, (x, y) in enumerate((spots + style.side_by_side(spots, _APART)).tolist()):
            view.text(x, y, str(index), color=style.agent_colour(index), path_effects=style.cased(2.6), **bold)
        if (best := told[-1].best) is not None and self._world.goal == "peak":
            view.plot(*scene.pixels(np.array([best.location])).T, **style.BEST)
        larger, higher = f"robots {scene.larger:.0f}", f"heights {scene.higher:.1f}"
        drawn = [larger] * (scene.larger > 1.0) + [higher] * (scene.higher > 1.0)
        scale = f" · {' and '.join(drawn)} times as large" if drawn else ""
        name = f"{self._world.name} · " if self._world.name else ""
        self._figure.texts.clear()
        last = self._records[-1].round
        self._figure.text(0.012, 0.985, f"{name}round {records[-1].round} of {last}", fontsize=12, va="top")
        note = f"the ground is painted with what the team believes{scale}"
        self._figure.text(0.012, 0.945, note, fontsize=8.5, va="top", color=style.MUTED)
        self._canvas.draw()
        return style.pixels(self._canvas)

    def _ground(
        self, told: Records, ways: Mapping[str, Float[np.ndarray, "k 2"]], place: int
    ) -> UInt8[np.ndarray, "rows columns 3"]:
        """Paint of the ground: the belief, ways, measurements, and what may not be entered."""
        ax, mean = self._map, self._beliefs[place]
        ax.clear()
        ax.set_axis_off()
        low, high = self._world.domain.low, self._world.domain.high
        if mean is not None:
            image = self._lattice.image(mean)
            colours: dict[str, Any] = {"cmap": style.MEAN_COLOURS, "norm": self._norm, "interpolation": "bicubic"}
            ax.imshow(image, extent=self._lattice.extent, aspect="auto", **colours)
            ax.contour(self._lattice.x, self._lattice.y, image, levels=10, colors="white", linewidths=0.9, alpha=0.5)
            level = self._world.level
            if level is not None and image.min() < level < image.max():
                ax.contour(self._lattice.x, self._lattice.y, image, levels=[level], colors=[style.INK], linewidths=4.0)
        for rings in self._world.no_go:
            style.draw_no_go(ax, rings)
        maps.draw_ways(ax, [ways[agent] for agent in self._agents], 3.0, path_effects=style.cased(5.5), zorder=3)
        stops = [stops_of(told, agent) for agent in self._agents]
        maps.draw_stops(ax, stops, 8, markeredgecolor="white", markeredgewidth=1.4, zorder=4)
        maps.draw_bases(ax, self._world, 26)
        maps.draw_failed(ax, failures(told), 13, 3.2, casing=6.0, zorder=4.5)
        ax.set_xlim(low[0], high[0])
        ax.set_ylim(low[1], high[1])
        self._map_canvas.draw()
        return style.pixels(self._map_canvas)[::-1]


def _blank(world: World) -> tuple[FigureCanvasAgg, Axes]:
    """A figure that is one map, to its edges."""
    size = world.domain.high - world.domain.low
    width, height = (_PIXELS / _DPI * size / size.max()).tolist()
    figure = Figure(figsize=(width, height), dpi=_DPI)
    return FigureCanvasAgg(figure), figure.add_axes((0.0, 0.0, 1.0, 1.0))


def _way(records: Records, agent: str, share: float) -> Float[np.ndarray, "k 2"]:
    """Way of an agent, of the last of these rounds a share only."""
    earlier, all_of_it = driven_by(records[:-1], agent), driven_by(records, agent)
    if share >= 1.0 or not len(earlier) or len(all_of_it) == len(earlier):
        return all_of_it
    last = all_of_it[len(earlier) - 1 :]
    along = np.append(0.0, np.cumsum(np.hypot(*np.diff(last, axis=0).T)))
    here = share * along[-1]
    behind = last[1:][along[1:] < here]
    spot = [np.interp(here, along, last[:, axis]) for axis in range(2)]
    return np.vstack([earlier, behind, spot])


def _heading(way: Float[np.ndarray, "k 2"]) -> float:
    """Heading of an agent at the end of its path; north if it did not move."""
    moved = way[(way != way[-1]).any(axis=1)]
    return float(np.arctan2(*(way[-1] - moved[-1])[::-1])) if len(moved) else np.pi / 2
