"""The one look of every figure: fonts, colours, colour maps, and how a figure is made and saved.

Colours are those of Okabe and Ito (2008), told apart under the common forms of colour blindness; the colour maps
rise evenly in lightness, so they also survive a grey print.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, Normal, Stroke
from matplotlib.ticker import LogFormatterSciNotation

from swarmbo.boundary.files import replacing

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

METHOD_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK, "#a0a8b0")
METHOD_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")

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


_FILES: dict[Any, Any] = {
    "pdf.fonttype": 42,  # letters as letters, which publishers ask for
    "svg.hashsalt": "swarmbo",  # names of parts are drawn at random without it
}

MEAN_COLOURS: Colormap = mpl.colormaps["viridis"]
STD_COLOURS: Colormap = LinearSegmentedColormap.from_list("slate", ["#ffffff", "#c3ccd6", "#8492a3", "#4a586b"])


@contextmanager
def applied() -> Generator[None]:
    """The look, for as long as artists are made within the block."""
    with mpl.rc_context(RC):
        yield


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """An empty figure on an Agg canvas, laid out so that nothing overlaps.

    Args:
        width: In inches, > 0.
        height: In inches, > 0.
        layout: ``compressed`` for maps of equal scales: it closes the gaps that those leave.
    """
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure, whole or not at all; the bytes depend only on what it shows.

    Args:
        figure: What to write.
        path: Where to; its ending names the format. The folder is made.
        dpi: Dots per inch, of pictures in it where the format is one of lines.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    written_as = path.suffix[1:].lower() or "png"
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with replacing(path) as file, mpl.rc_context(_FILES):
        figure.savefig(
            file,
            format=written_as,
            dpi=dpi,
            bbox_inches="tight",
            pad_inches=0.12,
            metadata=undated.get(written_as),
        )
    return path


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


def with_unit(label: str, unit: str) -> str:
    """``label (unit)``, or just the label where there is no unit."""
    return f"{label} ({unit})" if unit else label


def say(ax: Axes, message: str) -> Axes:
    """Write a message where a plot would have been."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, message, transform=ax.transAxes, ha="center", va="center", color=MUTED)
    return ax


def role_of(agents: Sequence[str]) -> str:
    """What the agents of a team are called: ``sensor`` for ``sensor_0`` and so on, else ``agent``."""
    roles = {agent.rpartition("_")[0] for agent in agents}
    return roles.pop() if len(roles) == 1 and all(roles) else "agent"


def counted(number: int, noun: str) -> str:
    """``1 robot``, ``2 robots``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


# Marks of what was found; the one look of each on maps and in legends.
RECOMMENDATION: dict[str, Any] = {
    "marker": "D",
    "markersize": 15,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.8,
    "linestyle": "none",
    "label": "recommendation",
    "clip_on": False,
    "path_effects": cased(3.6),
    "zorder": 7,
}
BEST: dict[str, Any] = {
    "marker": "*",
    "markersize": 11,
    "markerfacecolor": BEST_COLOUR,
    "markeredgecolor": INK,
    "markeredgewidth": 0.9,
    "linestyle": "none",
    "label": "best measurement",
    "clip_on": False,
    "zorder": 8,
}
MAXIMUM: dict[str, Any] = {
    "marker": "^",
    "markersize": 9,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.4,
    "linestyle": "none",
    "label": "true maximum",
    "clip_on": False,
    "zorder": 6.5,
}


LEVEL: dict[str, Any] = {"colors": [VERMILLION], "linewidths": 1.8, "zorder": 3}


def legend_level(label: str) -> Line2D:
    """The line of a level as it stands in a legend."""
    return Line2D([], [], color=VERMILLION, linewidth=1.8, label=label)


def legend_mark(mark: dict[str, Any]) -> Line2D:
    """A mark as it stands in a legend: smaller, and without its casing."""
    smaller: dict[str, Any] = {**mark, "markersize": 7.5 if mark is not BEST else 10, "path_effects": []}
    return Line2D([], [], **smaller)
