"""Style of figures, their formats, and how they are saved; fonts and colours are those of ``swarmbo.boundary.look``."""

import importlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator
from PIL import Image
from scipy.optimize import isotonic_regression
from scipy.sparse.csgraph import connected_components

from swarmbo.boundary.files import ANIMATION_FORMATS, FIGURE_FORMATS, AnimationFormat, FigureFormat, replacing
from swarmbo.boundary.look import (
    BASE as BASE,
    BATTERY_POINTS as BATTERY_POINTS,
    BEST_COLOUR as BEST_COLOUR,
    BLUE as BLUE,
    ERROR_COLOURS as ERROR_COLOURS,
    GREEN as GREEN,
    INK as INK,
    MEAN_COLOURS as MEAN_COLOURS,
    MUTED as MUTED,
    ORANGE as ORANGE,
    PURPLE as PURPLE,
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
from swarmbo.errors import ConfigError

METHOD_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK, "#a0a8b0")
METHOD_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")

_ABREAST = 4  # most panels in a row
_LONGEST_ROLE = 16  # letters
# type 42 embeds TrueType fonts, which publishers ask for; without a hash salt, the ids in an SVG file are random
_FILES: dict[Any, Any] = {"pdf.fonttype": 42, "svg.hashsalt": "swarmbo"}


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """An empty figure on an Agg canvas, in inches; layout ``compressed`` closes gaps between maps of equal scale."""
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def panel_grid(
    n: int, heights: list[float], width: float, least_width: float, margins: tuple[float, float] = (0.0, 0.0)
) -> tuple[Figure, list[list[Axes]]]:
    """Figure of n columns of panels, at most four side by side; sizes in inches, ``margins`` around panels."""
    rows, n_stacked = -(-n // _ABREAST), len(heights)
    columns = -(-n // rows)
    figure = new_figure(max(least_width, width * columns + margins[0]), sum(heights) * rows + margins[1])
    grid = figure.subplots(n_stacked * rows, columns, squeeze=False, height_ratios=heights * rows)
    panels = grid.reshape(rows, n_stacked, columns).swapaxes(1, 2).reshape(-1, n_stacked)
    for unused in panels[n:].flat:
        unused.remove()
    return figure, panels[:n].tolist()


def save(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write a figure, whole or not at all, in the format of the path's ending; its bytes depend only on the content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file_format = path.suffix[1:].lower() or "png"
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    options: dict[str, Any] = {"format": file_format, "dpi": dpi, "metadata": metadata.get(file_format)}
    with replacing(path) as file, mpl.rc_context(_FILES):
        figure.savefig(file, bbox_inches="tight", pad_inches=0.12, **options)
    return path


def rounds_axis(ax: Axes, label: str = "round") -> None:
    """Label the x axis with rounds, or with another count, at whole numbers."""
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def legend_below(figure: Figure, ax: Axes, columns: int | None = None) -> None:
    """Draw the legend of one axes below the figure, if anything in the axes has a label."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns or len(labels))


def with_unit(label: str, unit: str) -> str:
    """``label (unit)``, or just the label where there is no unit."""
    return f"{label} ({unit})" if unit else label


def write_message(ax: Axes, message: str) -> Axes:
    """Write a message where a plot would have been."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, message, transform=ax.transAxes, ha="center", va="center", color=MUTED)
    return ax


def role_of(agents: Sequence[str]) -> str:
    """Noun for the agents of a team: ``sensor`` for ``sensor_0`` and so on; ``agent`` if they share no short prefix."""
    roles = {agent.rpartition("_")[0] for agent in agents}
    return role if len(roles) == 1 and 0 < len(role := roles.pop()) <= _LONGEST_ROLE else "agent"


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis if it has more than ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def legend_columns(width: float, handles: Sequence[Artist], least: float) -> int:
    """Number of columns of a legend within a width, each as wide as the longest label, at least ``least`` inches."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    return max(1, min(len(handles), int(width / max(least, 0.45 + 0.06 * longest))))


def _mark(shape: Any, size: float, face: str, edge_width: float, label: str, **more: Any) -> dict[str, Any]:
    look = {"marker": shape, "markersize": size, "markerfacecolor": face, "markeredgecolor": INK, "label": label}
    return {**look, "markeredgewidth": edge_width, "linestyle": "none", **more}


# Look of each mark, on maps and in legends alike.
_LYING = Outline([(-1.0, -0.28), (1.0, -0.28), (1.0, 0.28), (-1.0, 0.28), (-1.0, -0.28)])
LEGEND_NO_GO = _mark("s", 8, "#f4f1ec", 1.0, "no-go")
LEGEND_BASE: dict[str, Any] = {**BASE, "color": MUTED, "markersize": 9, "label": "base"}
LEGEND_BATTERY = _mark(_LYING, 16, MUTED, 0.9, "battery")
_CASED: dict[str, Any] = {"path_effects": cased(3.6), "clip_on": False, "zorder": 7}
RECOMMENDATION = _mark("D", 15, "none", 1.8, "recommendation", **_CASED)
BEST = _mark("*", 11, BEST_COLOUR, 0.9, "best measurement", clip_on=False, zorder=8)
FAILED: dict[str, Any] = {"marker": "x", "color": INK, "linestyle": "none", "markeredgewidth": 1.8, "label": "failed"}
MAXIMUM = _mark("^", 9, "white", 1.4, "true maximum", clip_on=False, zorder=6.5)


LEVEL: dict[str, Any] = {"colors": [INK], "linewidths": 1.8, "zorder": 3}  # not a colour of an agent
TRUE_LEVEL: dict[str, Any] = {**LEVEL, "linewidths": 1.3, "linestyles": [(0, (2.5, 1.6))]}


def name_figure(figure: Figure, *parts: str) -> None:
    """Write the parts of a title that are not empty over a figure without a title."""
    if figure.get_suptitle() or not any(parts):
        return
    with applied():
        figure.suptitle(" · ".join(filter(None, parts)), x=0.01, ha="left", fontsize=10.5, color=MUTED)


Spots = Float[np.ndarray, "robots 2"]
Pair = tuple[float, float]


def separating_shifts(
    spots: Spots, apart: Pair, weights: Float[np.ndarray, " robots"] | None = None, edges: Pair = (-np.inf, np.inf)
) -> Spots:
    """Horizontal shifts (positive: to the right) of overlapping marks, evenly to both sides, so that all can be read.

    ``apart`` is the width and the height, in pixels, that a mark needs. A mark with a larger weight in ``weights`` is
    moved less. ``edges`` are the least and largest horizontal position that a mark may be moved to.
    """
    wide, high = apart
    moved, overlap = spots.copy(), np.eye(len(spots), dtype=bool)
    for _ in spots:
        across, up = np.abs(moved[:, None] - moved).transpose(2, 0, 1)
        overlap |= (across < wide - 1e-6) & (up < high)
        n_groups, group = connected_components(overlap)
        for number in range(n_groups):
            members = np.flatnonzero(group == number)
            members = members[np.argsort(spots[members, 0], kind="stable")]
            room = wide * np.arange(len(members))
            starts = spots[members, 0]
            least, most = min(edges[0], starts.min()), max(edges[1], starts.max()) - room[-1]
            group_weights = None if weights is None else weights[members]
            lefts = isotonic_regression(starts - room, weights=group_weights).x  # the least moves that keep this order
            moved[members, 0] = np.maximum(np.minimum(lefts, most), least) + room  # too many marks: left edge
    return moved - spots


Frames = Sequence[UInt8[np.ndarray, "height width 3"]]
_ENCODER_HINT = '`pip install "swarmbo[mp4]"` brings one (or write GIF)'


def encoder() -> str:
    """Path of ffmpeg: that of the package ``imageio-ffmpeg``, or of the system; ConfigError without either."""
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed, or without a program for this machine
        path = shutil.which("ffmpeg")
    if path is None:
        raise ConfigError(f"there is no encoder of MP4 here; {_ENCODER_HINT}", at="--format")
    return path


def write_mp4(frames: Frames, path: Path, pause_ms: Sequence[int]) -> Path:
    """Write RGB frames of one size as a film. One thread and no time stamps, so equal frames give equal bytes."""
    height, width, _ = frames[0].shape
    repeats = [1] * (len(frames) - 1) + [max(1, round(pause_ms[-1] / pause_ms[0]))]
    command = [
        *(encoder(), "-v", "error", "-y"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"1000/{pause_ms[0]}", "-i", "-"),
        # Players want even sides, and colours at half their resolution.
        *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18"),
        *("-threads", "1", "-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact"),
        *("-movflags", "+faststart", "-f", "mp4"),
    ]
    film = [np.ascontiguousarray(frame).tobytes() * times for frame, times in zip(frames, repeats, strict=True)]
    with replacing(path) as file:
        partial = Path(file.name).absolute()
        done = subprocess.run([*command, str(partial)], input=b"".join(film), capture_output=True, check=False)
        if done.returncode or not partial.stat().st_size:
            reasons = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise ConfigError(f"{command[0]} failed: {reasons[-1]}; {_ENCODER_HINT}", at="--format")
    return path


_MIXED_COLOURS = 112  # few, so that little changes from frame to frame


def write_gif(frames: Frames, path: Path, pause_ms: Sequence[int], exact: Sequence[str]) -> Path:
    """Write RGB frames as a repeating animation; colours of ``exact`` are never averaged away."""
    pictures = [Image.fromarray(frame) for frame in frames]
    palette = _palette([pictures[0], pictures[len(pictures) // 2], pictures[-1]], list(dict.fromkeys(exact)))
    drawn = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    with replacing(path) as file:
        timing: dict[str, Any] = {"duration": list(pause_ms), "loop": 0}
        drawn[0].save(file, "GIF", save_all=True, append_images=drawn[1:], optimize=False, **timing)
    return path


def _palette(pictures: Sequence[Image.Image], exact: Sequence[str]) -> Image.Image:
    """One set of colours for the whole animation, so that each frame stores only what moved."""
    sheet = Image.fromarray(np.vstack([np.asarray(picture) for picture in pictures]))
    mixed_colours = sheet.quantize(colors=_MIXED_COLOURS, method=Image.Quantize.MEDIANCUT).getpalette() or []
    fixed = np.array([to_rgb(colour) for colour in exact]) * 255
    mixed_palette = np.array(mixed_colours[: 3 * _MIXED_COLOURS], dtype=float).reshape(-1, 3)
    # Pillow's search for the nearest colour is approximate: it would sometimes take a mixed one close to an exact one.
    distance = np.linalg.norm(mixed_palette[:, None] - fixed[None], axis=2).min(axis=1)
    palette = Image.new("P", (1, 1))
    colours = np.vstack([fixed, mixed_palette[distance > 14]])
    palette.putpalette(np.round(colours).astype(int).ravel().tolist())
    return palette


_TOGETHER_MS, _LEAST_MS, _MOST_MS, _LAST_MS = 9000, 130, 450, 3000


def write_frames(frames: Frames, path: Path, exact: Sequence[str]) -> Path:
    """Write frames as MP4 or GIF, by the ending of the path: 9 s in all, 0.13 to 0.45 s each, the last one 3 s."""
    pause = int(np.clip(_TOGETHER_MS / len(frames), _LEAST_MS, _MOST_MS))
    pauses = [*[pause] * (len(frames) - 1), _LAST_MS]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_mp4(frames, path, pauses) if path.suffix == ".mp4" else write_gif(frames, path, pauses, exact)


LEAST_DPI, MOST_DPI = 20, 1200


@dataclass(frozen=True)
class Formats:
    """Formats of figures and animations, and dots per inch of figures and of maps within vector graphics."""

    figures: FigureFormat = "png"
    animation: AnimationFormat = "gif"
    dpi: int = 150

    def __post_init__(self) -> None:
        if not LEAST_DPI <= self.dpi <= MOST_DPI:
            raise ConfigError(f"got {self.dpi}; wanted {LEAST_DPI} to {MOST_DPI} dots per inch", at="--dpi")
        if self.animation == "mp4":
            encoder()

    @classmethod
    def of(cls, names: Sequence[str] = (), dpi: int | None = None) -> "Formats":
        """Make formats from names: at most one of figures and one of animations. Others have their defaults."""
        figures: list[FigureFormat] = [name for name in FIGURE_FORMATS if name in names]
        animations: list[AnimationFormat] = [name for name in ANIMATION_FORMATS if name in names]
        known = [*FIGURE_FORMATS, *ANIMATION_FORMATS]
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"got {unknown[0]!r}; wanted one of {', '.join(known)}", at="--format")
        for same in (figures, animations):
            if len(same) > 1:
                raise ConfigError(f"got {' and '.join(same)}; wanted one of them", at="--format")
        figure_format, animation = (figures or [cls.figures])[0], (animations or [cls.animation])[0]
        return cls(figure_format, animation, cls.dpi if dpi is None else dpi)
