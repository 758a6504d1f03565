"""The look of every picture, of figures and worlds alike: fonts, colours and colour maps.

Colours are those of Okabe and Ito (2008), told apart under the common forms of colour blindness; the colour maps
rise evenly in lightness, so they also survive a grey print.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.patheffects import AbstractPathEffect, Normal, Stroke
from matplotlib.ticker import LogFormatterSciNotation

INK = "#20262e"
MUTED = "#6b7580"
GRID = "#e3e7eb"

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"

_AGENT_COLOURS = (
    *(VERMILLION, SKY, ORANGE, PURPLE, GREEN, BLUE, "#f0e442", "#4d4d4d"),
    *("#7b3294", "#8c510a", "#a6d854", "#b2182b"),  # beyond those of Okabe and Ito: for teams of up to twelve
)
_AGENT_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)))

BEST_COLOUR = "#fff200"

RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlecolor": INK,
    "axes.labelsize": 9.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,  # names and units are shown as they are, whatever a dollar in them could mean
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 100,
    "image.origin": "lower",
}

MEAN_COLOURS: Colormap = mpl.colormaps["viridis"]
STD_COLOURS: Colormap = LinearSegmentedColormap.from_list("slate", ["#ffffff", "#c3ccd6", "#8492a3", "#4a586b"])


@contextmanager
def applied() -> Generator[None]:
    """The look, for as long as artists are made within the block."""
    with mpl.rc_context(RC):
        yield


def agent_colour(index: int) -> str:
    """Colour of the agent with this place in the team."""
    return _AGENT_COLOURS[index % len(_AGENT_COLOURS)]


def agent_dashes(index: int) -> Any:
    """Line style of the agent with this place in the team: colours repeat after twelve agents, dashes do not."""
    return _AGENT_DASHES[(index // len(_AGENT_COLOURS)) % len(_AGENT_DASHES)]


def cased(width: float, colour: str = "white") -> list[AbstractPathEffect]:
    """Path effects that keep a line or a mark readable on any background.

    Args:
        width: Total width of the casing, in points.
        colour: Its colour.
    """
    return [Stroke(linewidth=width, foreground=colour), Normal()]


class Powers(LogFormatterSciNotation):
    """Labels of a logarithmic axis as plain text: 10⁻², as dollars are not read as mathematics here."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick."""
        text = super().__call__(x, pos).removeprefix(r"$\mathdefault{").removesuffix("}$").replace(r"\times", "×")
        return re.sub(r"\^\{(-?\d+)\}", lambda found: found.group(1).translate(_RAISED), text).replace("-", "−")


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def set_log(ax: Axes, scale: Literal["log", "symlog"] = "log", **options: Any) -> Axes:
    """Make the y axis logarithmic.

    Args:
        ax: The axes.
        scale: ``symlog`` for values that may be zero or less.
        **options: Of the scale, as ``linthresh``.
    """
    ax.set_yscale(scale, **options)
    ax.yaxis.set_major_formatter(Powers())
    if scale == "log":
        ax.yaxis.set_minor_formatter(Powers(labelOnlyBase=False))
    return ax
