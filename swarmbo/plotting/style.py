"""Style of figures, and how they are saved; fonts and colours are those of ``swarmbo.boundary.look``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression
from scipy.sparse.csgraph import connected_components

from swarmbo.boundary.files import replacing
from swarmbo.boundary.look import (
    BASE as BASE,
    BATTERY_POINTS as BATTERY_POINTS,
    BEST_COLOUR as BEST_COLOUR,
    BLUE as BLUE,
    ERROR_COLOURS as ERROR_COLOURS,
    GREEN as GREEN,
    GRID as GRID,
    INK as INK,
    MEAN_COLOURS as MEAN_COLOURS,
    MUTED as MUTED,
    NO_GO as NO_GO,
    ORANGE as ORANGE,
    PURPLE as PURPLE,
    RC as RC,
    SKY as SKY,
    STD_COLOURS as STD_COLOURS,
    VERMILLION as VERMILLION,
    agent_colour as agent_colour,
    agent_dashes as agent_dashes,
    agent_marker as agent_marker,
    applied as applied,
    cased as cased,
    draw_battery as draw_battery,
    draw_no_go as draw_no_go,
    set_log as set_log,
)

METHOD_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK, "#a0a8b0")
METHOD_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")

# fonts of type 42 are letters as letters, which publishers ask for; without a salt SVG's names of parts are random
_FILES: dict[Any, Any] = {"pdf.fonttype": 42, "svg.hashsalt": "swarmbo"}


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """An empty figure on an Agg canvas, in inches; layout ``compressed`` closes gaps between maps of equal scale."""
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure, whole or not at all, in the format of its ending; the bytes depend only on what it shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written_as = path.suffix[1:].lower() or "png"
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    told: dict[str, Any] = {"format": written_as, "dpi": dpi, "metadata": undated.get(written_as)}
    with replacing(path) as file, mpl.rc_context(_FILES):
        figure.savefig(file, bbox_inches="tight", pad_inches=0.12, **told)
    return path


def pixels(canvas: FigureCanvasAgg) -> UInt8[np.ndarray, "height width 3"]:
    """Picture on a canvas, as bytes of red, green and blue."""
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def rounds_axis(ax: Axes) -> None:
    """Label the x axis with rounds, at whole numbers."""
    ax.set_xlabel("round")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def legend_below(figure: Figure, ax: Axes, columns: int | None = None) -> None:
    """Legend of one axes below the whole figure, if something is labelled there."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns or len(labels))


def with_unit(label: str, unit: str) -> str:
    """``label (unit)``, or just the label where there is no unit."""
    return f"{label} ({unit})" if unit else label


def say(ax: Axes, message: str) -> Axes:
    """Write a message where a plot would have been."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, message, transform=ax.transAxes, ha="center", va="center", color=MUTED)
    return ax


def role_of(agents: Sequence[str]) -> str:
    """Common noun of the agents of a team: ``sensor`` for ``sensor_0`` and so on, else ``agent``."""
    roles = {agent.rpartition("_")[0] for agent in agents}
    return roles.pop() if len(roles) == 1 and all(roles) else "agent"


def counted(number: int, noun: str) -> str:
    """``1 robot``, ``2 robots``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _mark(shape: Any, size: float, face: str, edge_width: float, label: str, **more: Any) -> dict[str, Any]:
    look = {"marker": shape, "markersize": size, "markerfacecolor": face, "markeredgecolor": INK, "label": label}
    return {**look, "markeredgewidth": edge_width, "linestyle": "none", **more}


# The one look of each mark on maps and in legends.
_LYING = Outline([(-1.0, -0.28), (1.0, -0.28), (1.0, 0.28), (-1.0, 0.28), (-1.0, -0.28)])
LEGEND_NO_GO = _mark("s", 8, "#f4f1ec", 1.0, "no-go")
LEGEND_BASE: dict[str, Any] = {**BASE, "color": MUTED, "markersize": 9, "label": "base"}
LEGEND_BATTERY = _mark(_LYING, 16, MUTED, 0.9, "battery")
_CASED: dict[str, Any] = {"path_effects": cased(3.6), "clip_on": False, "zorder": 7}
RECOMMENDATION = _mark("D", 15, "none", 1.8, "recommendation", **_CASED)
BEST = _mark("*", 11, BEST_COLOUR, 0.9, "best measurement", clip_on=False, zorder=8)
FAILED: dict[str, Any] = {"marker": "x", "color": INK, "linestyle": "none", "markeredgewidth": 1.8, "label": "failed"}
MAXIMUM = _mark("^", 9, "white", 1.4, "true maximum", clip_on=False, zorder=6.5)


LEVEL: dict[str, Any] = {"colors": [INK], "linewidths": 1.8, "zorder": 3}  # no colour of an agent
TRUE_LEVEL: dict[str, Any] = {**LEVEL, "linewidths": 1.3, "linestyles": [(0, (2.5, 1.6))]}


def name_figure(figure: Figure, *parts: str) -> None:
    """Write the parts of a title over a figure that has none, as far as they are not empty."""
    if figure.get_suptitle() or not any(parts):
        return
    with applied():
        figure.suptitle(" · ".join(filter(None, parts)), x=0.01, ha="left", fontsize=10.5, color=MUTED)


def legend_mark(mark: dict[str, Any]) -> Line2D:
    """A mark as it stands in a legend: smaller, and without its casing."""
    smaller: dict[str, Any] = {**mark, "markersize": 7.5 if mark is not BEST else 10, "path_effects": []}
    return Line2D([], [], **smaller)


def side_by_side(
    spots: Float[np.ndarray, "robots 2"],
    apart: tuple[float, float],
    weights: Float[np.ndarray, " robots"] | None = None,
    edges: tuple[float, float] = (-np.inf, np.inf),
) -> Float[np.ndarray, "robots 2"]:
    """Shifts of marks to the right, those of robots in one place evenly to both sides, so that all can be read.

    ``apart`` is the room, in pixels, that one needs to the right and up, ``weights`` how much each wants to stay,
    ``edges`` the least and largest place to the right that a mark may be moved to.

    Example:
        >>> side_by_side(np.array([[50.0, 9.0], [52.0, 10.0], [90.0, 9.0]]), (15.0, 18.0))[:, 0].tolist()
        [-6.5, 6.5, 0.0]
    """
    wide, high = apart
    moved, together = spots.copy(), np.eye(len(spots), dtype=bool)
    for _ in spots:
        across, up = np.abs(moved[:, None] - moved).transpose(2, 0, 1)
        together |= (across < wide - 1e-6) & (up < high)
        n_groups, group = connected_components(together)
        for number in range(n_groups):
            members = np.flatnonzero(group == number)
            members = members[np.argsort(spots[members, 0], kind="stable")]
            room = wide * np.arange(len(members))
            own = spots[members, 0]
            least, most = min(edges[0], own.min()), max(edges[1], own.max()) - room[-1]
            stays = None if weights is None else weights[members]
            first = isotonic_regression(own - room, weights=stays).x  # the least moves in this order
            moved[members, 0] = np.maximum(np.minimum(first, most), least) + room  # too many begin at the left edge
    return moved - spots
