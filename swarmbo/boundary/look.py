"""Style of every picture, of figures and environments alike: fonts, colours and colour maps.

Colours are those of Okabe and Ito (2008), distinct under the common forms of colour blindness; the colour maps rise
evenly in lightness, so they survive a grey print.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.patheffects import AbstractPathEffect, Normal, Stroke
from matplotlib.ticker import LogFormatterSciNotation
from matplotlib.transforms import ScaledTranslation

INK = "#20262e"
MUTED = "#6b7580"
GRID = "#e3e7eb"

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"

_AGENT_COLOURS = (
    *(VERMILLION, SKY, PURPLE, BLUE, GREEN, ORANGE, "#f0e442", "#4d4d4d"),
    *("#7b3294", "#8c510a", "#a6d854", "#b2182b"),  # beyond those of Okabe and Ito: for teams of up to twelve
)
_AGENT_MARKERS = ("o", "^", "D", "v", "P", "h", "<", ">")
_AGENT_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)))

BEST_COLOUR = "#fff200"

_TICKS = {"color": MUTED, "labelcolor": INK, "labelsize": 8.5, "major.width": 0.8}
RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # names and units are shown literally, even with dollar signs
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.formatter.offset_threshold": 7,  # digits that all labels of an axis have in common
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    **{f"{axis}tick.{key}": value for axis in "xy" for key, value in _TICKS.items()},
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "image.origin": "lower",
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}

MEAN_COLOURS: Colormap = mpl.colormaps["viridis"]
ERROR_COLOURS: Colormap = LinearSegmentedColormap.from_list("rust", ["#ffffff", "#f3d5c0", "#dd8452", "#8c3a12"])
STD_COLOURS: Colormap = LinearSegmentedColormap.from_list("slate", ["#ffffff", "#c3ccd6", "#8492a3", "#4a586b"])


@contextmanager
def applied() -> Generator[None]:
    """Apply the style to artists made within the block."""
    with mpl.rc_context(RC):
        yield


def agent_colour(index: int) -> str:
    """Colour of the agent with this index in the team."""
    return _AGENT_COLOURS[index % len(_AGENT_COLOURS)]


def agent_marker(index: int) -> str:
    """Marker of the measurements of the agent with this index in the team."""
    return _AGENT_MARKERS[index % len(_AGENT_MARKERS)]


def agent_dashes(index: int) -> Any:
    """Line style of the agent with this index: colours repeat after twelve agents, dashes do not."""
    return _AGENT_DASHES[(index // len(_AGENT_COLOURS)) % len(_AGENT_DASHES)]


def cased(width: float, colour: str = "white") -> list[AbstractPathEffect]:
    """Path effects that keep a line or a mark readable on any background, with a casing of this width in points."""
    return [Stroke(linewidth=width, foreground=colour), Normal()]


NO_GO: dict[str, Any] = {
    "facecolor": "#f4f1ecd9",
    "edgecolor": INK,
    "hatch": "////",
    "hatchcolor": "#8d857b",
    "linewidth": 1.1,
    "zorder": 1.6,
}
BASE: dict[str, Any] = {
    "marker": "p",
    "markersize": 12,
    "markeredgecolor": "white",
    "markeredgewidth": 1.4,
    "linestyle": "none",
    "clip_on": False,
    "zorder": 4.6,  # above paths
}
BATTERY_POINTS = (16.0, 4.5, 15.0)  # width, height, and extent below the agent
_NEARLY_EMPTY = 0.2
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_no_go(ax: Axes, rings: Sequence[Float[np.ndarray, "k 2"]]) -> Artist:
    """Draw a no-go region from its closed outlines in the coordinates of the axes; a hole is a ring within another."""
    depth = [sum(Path(other).contains_point(ring[0]) for other in rings if other is not ring) for ring in rings]
    whole = [_turned(ring, 1.0 if level % 2 == 0 else -1.0) for ring, level in zip(rings, depth, strict=True)]
    outline = Path.make_compound_path(*(Path(np.vstack([ring, ring[:1]]), closed=True) for ring in whole))
    return ax.add_patch(PathPatch(outline, **NO_GO))


def _turned(ring: Float[np.ndarray, "k 2"], side: float) -> Float[np.ndarray, "k 2"]:
    """Ring in anticlockwise (1) or clockwise (-1) order: overlaps are filled, holes are not."""
    x, y = ring.T
    area = float(x @ np.roll(y, -1) - y @ np.roll(x, -1))
    return ring if area * side >= 0 else ring[::-1]


def draw_battery(
    ax: Axes, place: Float[np.ndarray, " 2"], share: float, colour: str, is_above: bool = False
) -> list[Artist]:
    """Draw an agent's battery below (or above) it, filled by ``share`` (0 to 1), outlined in red if nearly empty."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    x, y = place.tolist()
    at = ScaledTranslation(x, y, ax.transData)  # pyright: ignore[reportArgumentType]  as in matplotlib's manual
    width, height, reach = (length / 72 for length in BATTERY_POINTS)
    bottom = reach - height if is_above else -reach
    outline: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.9}
    if share < _NEARLY_EMPTY:  # shown by the outline, since the fill has the agent's colour
        outline = {"edgecolor": VERMILLION, "linewidth": 1.8}
    looks: list[dict[str, Any]] = [
        {"width": width, "facecolor": "white", "linewidth": 0},
        {"width": share * width, "facecolor": colour, "linewidth": 0},
        {"width": width, "fill": False, **outline},
    ]
    boxes = [Rectangle((-width / 2, bottom), height=height, zorder=7, clip_on=False, **look) for look in looks]
    for box in boxes:
        box.set_transform(figure.dpi_scale_trans + at)
        ax.add_patch(box)
    return list(boxes)


class Powers(LogFormatterSciNotation):
    """Labels of a logarithmic axis as plain text, 10⁻², since ``RC`` turns the parsing of mathematics off."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Label of a tick."""
        text = super().__call__(x, pos).removeprefix(r"$\mathdefault{").removesuffix("}$").replace(r"\times", "×")
        return re.sub(r"\^\{(-?\d+)\}", lambda found: found.group(1).translate(_RAISED), text).replace("-", "−")


def set_log(ax: Axes, scale: Literal["log", "symlog"] = "log", **options: Any) -> Axes:
    """Make the y axis logarithmic; ``symlog`` is for values of zero or less."""
    if "linthresh" in options:  # the logarithm of 1000 is rounded to less than 3, which would add labels at 100
        options["linthresh"] *= 1.0 + 1e-9
    ax.set_yscale(scale, **options)
    ax.yaxis.set_major_formatter(Powers())
    if scale == "log":
        ax.yaxis.set_minor_formatter(Powers(labelOnlyBase=False))
    return ax
