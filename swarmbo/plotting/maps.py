"""Parts of every map: a scalar field over the plane, and marks.

A field is an image with contours if it is known everywhere, and discs if it is known only at sites. Marks show paths,
measurements, sensors, no-go regions, bases, the best measurement and the recommendation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator
from scipy.spatial import cKDTree

from swarmbo.boundary.coordinates import Coordinates
from swarmbo.plotting import style
from swarmbo.plotting.history import Records, World, agents_of, failures, measured_places, path_of
from swarmbo.records import RoundRecord

_CONTOURS: dict[str, Any] = {"colors": "white", "linewidths": 0.6, "alpha": 0.55, "linestyles": "solid", "zorder": 1}
_FEWEST_LINES = 16  # a coarser lattice of evaluation points is drawn as discs, not as an image
_KILOMETRES = 5000.0  # coordinate in metres from which on axes are in kilometres
_REACH = 1.6  # largest distance from a site at which a belief is shown, in usual distances between sites


Limits = tuple[float, float]
Places = Float[np.ndarray, "k d"]
Standpoints = Mapping[str, Float[np.ndarray, " 2"]]


@dataclass(frozen=True, eq=False)
class Lattice:
    """Points on a rectangular lattice, in rows from south to north; ``shown`` says which are drawn."""

    x: Float[np.ndarray, " nx"]
    y: Float[np.ndarray, " ny"]
    shown: Bool[np.ndarray, "ny nx"]

    @property
    def points(self) -> Float[np.ndarray, "m 2"]:
        """All points, row by row."""
        columns, rows = np.meshgrid(self.x, self.y)
        return np.column_stack([columns.ravel(), rows.ravel()])

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Edges of the image whose pixels are centred on the points: left, right, bottom, top."""
        half_x, half_y = (self.x[1] - self.x[0]) / 2, (self.y[1] - self.y[0]) / 2
        return self.x[0] - half_x, self.x[-1] + half_x, self.y[0] - half_y, self.y[-1] + half_y

    def image(self, values: Float[np.ndarray, " m"]) -> np.ma.MaskedArray:
        """Values at ``points`` as a picture (ny, nx), masked where they are not shown or not known (NaN)."""
        picture = values.reshape(self.shown.shape)
        return np.ma.masked_array(picture, mask=~self.shown | np.isnan(picture))


def lattice_over(world: World, resolution: int = 128) -> Lattice:
    """A lattice over a world; if the truth is known only at sites, twice as fine and shown only around them."""
    low, high = world.domain.low, world.domain.high
    side = (high - low).max() / (resolution - 1)
    nx, ny = (max(round(0.3 * resolution), round(float(length) / float(side)) + 1) for length in high - low)
    if world.points is None or len(world.points) < 3 or lattice_order(world.points, bool(world.no_go)) is not None:
        return _even(low, high, nx, ny)
    everywhere = _even(low, high, 2 * nx, 2 * ny)
    sites = cKDTree(world.points)
    spacing = float(np.quantile(np.asarray(sites.query(world.points, k=2)[0])[:, 1], 0.9))
    distance = np.asarray(sites.query(everywhere.points)[0])
    return replace(everywhere, shown=(distance <= max(_REACH * spacing, 2 * side)).reshape(2 * ny, 2 * nx))


def _even(low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"], nx: int, ny: int) -> Lattice:
    x, y = np.linspace(low[0], high[0], nx), np.linspace(low[1], high[1], ny)
    return Lattice(x, y, np.ones((ny, nx), dtype=bool))


def lattice_order(points: Float[np.ndarray, "m 2"], has_holes: bool = False) -> tuple[Lattice, np.ndarray] | None:
    """The lattice that points form, and the point index of each node (in holes the nearest); None without a lattice."""
    x, column = np.unique(points[:, 0], return_inverse=True)
    y, row = np.unique(points[:, 1], return_inverse=True)
    cell = row * len(x) + column
    is_full = len(points) == len(x) * len(y) or (has_holes and len(points) > 0.3 * len(x) * len(y))
    if len(x) < 2 or len(y) < 2 or not is_full or len(np.unique(cell)) != len(points):
        return None
    even = all(np.allclose(np.diff(axis), axis[1] - axis[0], rtol=1e-3, atol=0.0) for axis in (x, y))
    order = np.full(len(x) * len(y), -1)
    order[cell] = np.arange(len(points))
    lattice = Lattice(x, y, np.ones((len(y), len(x)), dtype=bool))
    holes = order < 0
    if holes.any():
        order[holes] = cKDTree(points).query(lattice.points[holes])[1]
    return (lattice, order) if even else None


def world_lattice(world: World) -> tuple[Lattice, Float[np.ndarray, " m"]] | None:
    """The lattice on which the truth is known, and its values there; None if there is no such lattice."""
    found = None if world.points is None else lattice_order(world.points, bool(world.no_go))
    return None if found is None or world.values is None else (found[0], world.values[found[1]])


def plot_lattice(
    ax: Axes,
    lattice: Lattice,
    values: Float[np.ndarray, " m"],
    colours: Colormap = style.MEAN_COLOURS,
    limits: Limits | None = None,
    label: str = "",
    n_contours: int = 9,
) -> Axes:
    """Draw values on a lattice as an image with about ``n_contours`` lines, and a colour bar if there is a label."""
    picture = lattice.image(values)
    norm = normalise(picture.compressed(), limits)
    look: dict[str, Any] = {"cmap": colours, "norm": norm, "interpolation": "bilinear", "aspect": "equal", "zorder": 0}
    image = ax.imshow(picture, extent=lattice.extent, origin="lower", **look)
    if n_contours and picture.count() and picture.max() > picture.min():
        levels = MaxNLocator(n_contours).tick_values(float(norm.vmin or 0.0), float(norm.vmax or 1.0))
        shown_levels = levels[(levels > picture.min()) & (levels < picture.max())]
        if len(shown_levels):
            ax.contour(lattice.x, lattice.y, picture, levels=shown_levels, **_CONTOURS)
    if label:
        add_colour_bar(ax, image, label)
    return ax


def plot_field(
    ax: Axes, points: Float[np.ndarray, "m 2"], values: Float[np.ndarray, " m"], has_holes: bool = False, **options: Any
) -> Axes:
    """Draw a field as ``plot_lattice`` does where its points form a fine lattice, else as discs at its sites."""
    found = lattice_order(points, has_holes)
    if found is not None and min(found[0].shown.shape) >= _FEWEST_LINES:
        lattice, order = found
        return plot_lattice(ax, lattice, values[order], **options)
    size, colours = float(np.clip(9000 / max(len(points), 1), 8, 70)), options.get("colours", style.MEAN_COLOURS)
    edge = "white" if colours is style.MEAN_COLOURS else style.MUTED  # other colours begin with white
    disc_style: dict[str, Any] = {"cmap": colours, "s": size, "zorder": 1, "edgecolors": edge, "linewidths": 0.5}
    marks = ax.scatter(*points.T, c=values, norm=normalise(values, options.get("limits")), **disc_style)
    if label := options.get("label"):
        add_colour_bar(ax, marks, label)
    return ax


def add_colour_bar(ax: Axes | Sequence[Axes], mappable: ScalarMappable, label: str) -> None:
    """Add a slim colour bar next to one or several axes, in the style of all maps."""
    panels = [ax] if isinstance(ax, Axes) else list(ax)
    figure = panels[0].get_figure(root=False)
    assert figure is not None
    bar = figure.colorbar(mappable, ax=panels, aspect=28, pad=0.02)
    bar.outline.set(edgecolor=style.MUTED, linewidth=0.5)  # pyright: ignore[reportCallIssue]  white ends, too
    bar.ax.tick_params(length=0)
    bar.ax.grid(visible=False)
    bar.locator = MaxNLocator(6)
    bar.update_ticks()
    bar.set_label(label)


def drawn_aspect(world: World) -> float:
    """Ratio of the drawn map's height to its width: that of the box, clipped to 0.3 to 3.5."""
    width, height = world.domain.high - world.domain.low
    return float(np.clip(height / width, 0.3, 3.5))


def frame_map(ax: Axes, world: World, x_ticks: int | None = None) -> Axes:
    """Set the axes of a map: few ticks, labels with units, a margin around the box; equal scales but for long boxes."""
    low, high = world.domain.low, world.domain.high
    width, height = high - low
    aspect = drawn_aspect(world) / float(height / width)
    margin = 0.02 * max(width, aspect * height)
    ax.set_xlim(float(low[0] - margin), float(high[0] + margin))
    ax.set_ylim(float(low[1] - margin / aspect), float(high[1] + margin / aspect))
    ax.set_aspect(aspect)
    ax.grid(visible=False)
    x_ticks = x_ticks or (2 if height > 2 * width else 3 if high[0] >= 1e5 else 4)
    ax.xaxis.set_major_locator(MaxNLocator(x_ticks))
    ax.yaxis.set_major_locator(MaxNLocator(5 if height > 0.4 * width else 3))
    if world.coordinates is not None:
        return _in_input(ax, world, world.coordinates, (min(x_ticks, 3), 3))
    unit = world.axis_unit
    if unit == "m" and max(abs(low).max(), abs(high).max()) >= _KILOMETRES:
        unit = "km"
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda metres, _: f"{metres / 1000:.10g}")
    ax.set_xlabel(style.with_unit("x, east", unit))
    ax.set_ylabel(style.with_unit("y, north", unit))
    return ax


def _in_input(ax: Axes, world: World, coordinates: Coordinates, most_ticks: tuple[int, int]) -> Axes:
    """Set ticks in the coordinates of the input; degrees are those along the middle of the map."""
    low, high = world.domain.low, world.domain.high
    middle, unit = (low + high) / 2.0, coordinates.unit if coordinates.unit_m == 1.0 else ""
    for number, (axis, name) in enumerate(zip((ax.xaxis, ax.yaxis), coordinates.axes(), strict=True)):
        range_ends = np.tile(middle, (2, 1))
        range_ends[:, number] = low[number], high[number]
        ticks = MaxNLocator(most_ticks[number]).tick_values(*coordinates.own(range_ends)[:, number])
        places = np.tile(coordinates.own(middle[None]), (len(ticks), 1))
        places[:, number] = ticks
        axis.set_major_locator(FixedLocator(coordinates.metres(places)[:, number].tolist()))
        axis.set_major_formatter(FixedFormatter([f"{tick:.10g}" for tick in ticks]))
        axis.set_label_text(style.with_unit(name, unit))
    return ax


def limits_of(parts: Sequence[np.ndarray]) -> Limits | None:
    """Least and largest known value of all parts; None if none is known."""
    values = np.concatenate([*parts, np.empty(0)])
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if values.size else None


def from_zero(values: np.ndarray) -> Limits:
    """Zero and the largest known value; 1 if that is 0."""
    return 0.0, float(np.fmax.reduce(values, initial=0.0)) or 1.0


def normalise(values: np.ndarray, limits: Limits | None) -> Normalize:
    """The scale of a colour map: between the limits, or else over all known values; widened if both ends are equal."""
    low, high = limits or limits_of([values]) or (0.0, 1.0)
    if not low < high:  # a constant field needs a scale with a width, too
        half = 0.5 * max(abs(low), 1.0)
        low, high = low - half, high + half
    return Normalize(low, high)


_SENSORS: dict[str, Any] = {"marker": "s", "linewidths": 0.9, "edgecolors": style.INK, "clip_on": False, "zorder": 5}
_SPOTS: dict[str, Any] = {**_SENSORS, "marker": "o", "edgecolors": "white", "color": style.VERMILLION, "zorder": 6}
_EARLIER: dict[str, Any] = {"color": style.VERMILLION, "alpha": 0.35, "s": 7, "linewidths": 0, "zorder": 3.5}
_AWAKE, _ASLEEP = "white", "#9aa3ad"


def draw_agent_paths(ax: Axes, paths: Sequence[Places], width: float, **look: Any) -> list[Line2D]:
    """Draw the path of each agent, in its colour and dashes; ``width`` in points."""
    drawn: list[Line2D] = []
    for index, path in enumerate(paths):
        line: dict[str, Any] = {"color": style.agent_colour(index), "linestyle": style.agent_dashes(index), **look}
        drawn += ax.plot(*path.T[:2], linewidth=width, **line)
    return drawn


def draw_measurements(ax: Axes, places: Sequence[Places], size: float, **look: Any) -> list[Line2D]:
    """Draw the mark of each agent at its locations; arguments are as in ``draw_agent_paths``, ``size`` in points."""
    look = {"linestyle": "none", "markersize": size, "markeredgewidth": 0.5, "markeredgecolor": "white", **look}
    drawn: list[Line2D] = []
    for index, own_places in enumerate(places):
        mark: dict[str, Any] = {"color": style.agent_colour(index), "marker": style.agent_marker(index), **look}
        drawn += ax.plot(*own_places.T[:2], **mark)
    return drawn


def draw_failed(ax: Axes, places: Places, size: float, width: float = 1.8, casing: float = 0.0) -> list[Line2D]:
    """Draw a cross where each measurement failed; nothing if none failed."""
    if not len(places):
        return []
    look: dict[str, Any] = {**style.FAILED, "markersize": size, "markeredgewidth": width, "zorder": 6}
    return ax.plot(*places.T[:2], path_effects=style.cased(casing) if casing else [], clip_on=False, **look)


def draw_bases(ax: Axes, world: World) -> list[Artist]:
    """Draw the bases where agents charge their batteries, each in the colour of its agent."""
    colours = {agent: style.agent_colour(index) for index, agent in enumerate(world.agents or world.bases)}
    return [line for a, base in world.bases.items() for line in ax.plot(*base[:2], color=colours[a], **style.BASE)]


def plot_paths(ax: Axes, records: Records, world: World | None = None) -> Axes:
    """Draw each robot's path: a square at the start, dots at measurements, crosses where they failed."""
    agents = agents_of(records, world)
    width, paths = 1.7 if len(agents) <= 8 else 1.2, [path_of(records, agent) for agent in agents]
    path_style: dict[str, Any] = {"clip_on": False, "zorder": 4}  # robots may stand on the very edge
    lines = draw_agent_paths(ax, paths, width, path_effects=style.cased(width + 1.5), **path_style)
    moving = [agent for agent, path in zip(agents, paths, strict=True) if len(path)]  # others always abstained
    for agent, line in zip(moving, lines, strict=True):
        line.set_label(agent)
    draw_measurements(ax, [measured_places(records, agent) for agent in agents], 3.2 * width, zorder=4.2)
    start: dict[str, Any] = {"marker": "s", "markeredgecolor": "white", "markeredgewidth": 1.2, "zorder": 4.4}
    draw_measurements(ax, [path[:1] for path in paths], 7, clip_on=False, **start)
    draw_failed(ax, failures(records), 7, casing=3.6)
    return ax


def clip_strays(ax: Axes) -> None:
    """Clip lines through points far outside a map, which would stretch the whole figure."""
    low, high = np.transpose([ax.get_xlim(), ax.get_ylim()])
    for line in ax.lines:
        off_centre = np.abs(np.asarray(line.get_xydata(), dtype=float) - (low + high) / 2)
        line.set_clip_on(line.get_clip_on() or bool((off_centre > 0.6 * np.abs(high - low)).any()))


def plot_findings(ax: Axes, records: Records, with_best: bool = True) -> Axes:
    """Mark the best measurement (unless the field changes) and the recommendation after the last of these rounds."""
    best, recommendation = records[-1].best, records[-1].recommendation
    if recommendation is not None:
        ax.plot(*recommendation.location[:2], **style.RECOMMENDATION)
    if best is not None and with_best:
        ax.plot(*best.location[:2], **style.BEST)
    return ax


def plot_sensors(ax: Axes, records: Records, standpoints: Standpoints) -> Axes:
    """Draw sensors and the locations sampled in the last of these rounds, over faint marks of all earlier samples."""
    earlier = [sample.location for record in records for sample in record.samples if not sample.declined]
    if earlier:
        ax.scatter(*np.array(earlier).T, **_EARLIER)
    draw_sensors(ax, records[-1], standpoints, sizes=(24, 34, 7), width=1.8)
    return ax


def draw_sensors(
    ax: Axes, record: RoundRecord, standpoints: Standpoints, sizes: tuple[float, float, float], width: float
) -> list[Artist]:
    """Draw sensors, and beams to the locations sampled; ``sizes`` of sensors, samples (points²), crosses (points)."""
    sampled = [sample for sample in record.samples if not sample.declined]  # others sleep
    segments = [np.stack([standpoints[sample.agent], sample.location]) for sample in sampled]
    beams = LineCollection(segments, colors=style.INK, linewidths=1.0, zorder=4.5)
    ax.add_collection(beams)
    awake = {sample.agent for sample in sampled}
    colours = [_AWAKE if agent in awake else _ASLEEP for agent in standpoints]
    artists: list[Artist] = [beams]
    artists.append(ax.scatter(*np.array(list(standpoints.values())).T, s=sizes[0], color=colours, **_SENSORS))
    if succeeded := [sample.location for sample in sampled if sample.measurement is not None]:
        artists.append(ax.scatter(*np.array(succeeded).T, s=sizes[1], **_SPOTS))
    failed = np.array([sample.location for sample in sampled if sample.measurement is None]).reshape(-1, 2)
    return [*artists, *draw_failed(ax, failed, sizes[2], width)]


def sensor_legend(has_failed: bool) -> list[Line2D]:
    """Legend of the marks of sensors."""
    sensor_style: dict[str, Any] = {"marker": "s", "markeredgecolor": style.INK, "linestyle": "none", "markersize": 6}
    marks = [
        Line2D([], [], markerfacecolor=_AWAKE, label="sensor", **sensor_style),
        Line2D([], [], markerfacecolor=_ASLEEP, label="did not measure", **sensor_style),
        Line2D([], [], marker="o", color=style.VERMILLION, linestyle="none", markersize=6.5, label="looked at"),
        Line2D([], [], marker="o", color=style.VERMILLION, alpha=0.35, linestyle="none", markersize=3, label="earlier"),
    ]
    return [*marks, Line2D([], [], **style.FAILED)] if has_failed else marks


def legend_of(records: Records, world: World, names: Sequence[str]) -> list[Line2D]:
    """Legend of the marks among ``names`` that are on the maps of a run, in that order."""
    has_truth, is_peak, last = world.has_truth, world.goal == "peak", records[-1]
    has_battery = (isinstance(sample.battery, float) for record in records for sample in record.samples)
    small: dict[str, Any] = {"markersize": 7.5, "path_effects": []}  # findings are smaller than on the map
    marks_shown: dict[str, tuple[bool, dict[str, Any]]] = {
        "no-go": (bool(world.no_go), style.LEGEND_NO_GO),
        "base": (bool(world.bases), style.LEGEND_BASE),
        "failed": (len(failures(records)) > 0, style.FAILED),
        "battery": (any(has_battery), style.LEGEND_BATTERY),
        "best": (is_peak and world.frames is None and last.best is not None, style.BEST | small | {"markersize": 10.0}),
        "recommendation": (is_peak and last.recommendation is not None, style.RECOMMENDATION | small),
        "maximum": (is_peak and has_truth, style.MAXIMUM | small),
    }
    marks = {name: Line2D([], [], **look) for name, (is_there, look) in marks_shown.items() if is_there}
    if world.level is not None:
        label = f"level {world.level:g} {world.unit}".rstrip()
        marks["level"] = Line2D([], [], color=style.INK, linewidth=1.8, label=label)
        if has_truth and world_lattice(world) is not None:
            dashes = style.TRUE_LEVEL["linestyles"][0]
            marks["true level"] = Line2D([], [], color=style.INK, linewidth=1.3, linestyle=dashes, label="true level")
    return [marks[name] for name in names if name in marks]
