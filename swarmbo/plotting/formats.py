"""Formats of figures and animations, and pictures of one size as a file that moves."""

import importlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import UInt8
from matplotlib.colors import to_rgb
from PIL import Image

from swarmbo.boundary.files import PARTIAL, replacing
from swarmbo.errors import ConfigError

_HINT = '`pip install "swarmbo[mp4]"` brings one (or write GIF)'


def encoder() -> str:
    """Path of ffmpeg: that of the package ``imageio-ffmpeg``, or of the system; ConfigError without either."""
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed, or without a program for this machine
        found = shutil.which("ffmpeg")
    if found is None:
        raise ConfigError(f"there is no encoder of MP4 here; {_HINT}", at="--format")
    return found


def write_mp4(frames: Sequence[UInt8[np.ndarray, "height width 3"]], path: Path, pause_ms: Sequence[int]) -> Path:
    """Write RGB frames of one size as a film. One thread and no time stamps, so equal frames give equal bytes."""
    height, width, _ = frames[0].shape
    held = [1] * (len(frames) - 1) + [max(1, round(pause_ms[-1] / pause_ms[0]))]
    partial = path.with_name(path.name + PARTIAL)
    partial.touch()  # what cannot be written is told by the system, not by the encoder
    command = [
        *(encoder(), "-v", "error", "-y"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"1000/{pause_ms[0]}", "-i", "-"),
        # Players want even sides, and colours at half their resolution.
        *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18"),
        *("-threads", "1", "-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact"),
        *("-movflags", "+faststart", "-f", "mp4", str(partial.absolute())),
    ]
    film = [np.ascontiguousarray(frame).tobytes() * times for frame, times in zip(frames, held, strict=True)]
    try:
        done = subprocess.run(command, input=b"".join(film), capture_output=True, check=False)
        if done.returncode or not partial.stat().st_size:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise ConfigError(f"{command[0]} failed: {said[-1]}; {_HINT}", at="--format")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


_MIXED_COLOURS = 112  # few, so that little changes from frame to frame
_MOST_COLOURS = 256


def write_gif(
    frames: Sequence[UInt8[np.ndarray, "height width 3"]],
    path: Path,
    pause_ms: Sequence[int],
    exact: Sequence[str],
    shaded: bool = False,
) -> Path:
    """Write RGB frames as a repeating animation; colours of ``exact`` are never averaged away."""
    pictures = [Image.fromarray(frame) for frame in frames]
    palette = _palette([pictures[0], pictures[len(pictures) // 2], pictures[-1]], list(dict.fromkeys(exact)), shaded)
    drawn = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    with replacing(path) as file:
        timing: dict[str, Any] = {"duration": list(pause_ms), "loop": 0}
        drawn[0].save(file, "GIF", save_all=True, append_images=drawn[1:], optimize=False, **timing)
    return path


def _palette(pictures: Sequence[Image.Image], exact: Sequence[str], shaded: bool) -> Image.Image:
    """One set of colours for the whole animation, so that each frame stores only what moved."""
    width, height = pictures[0].size
    sheet = Image.new("RGB", (width, height * len(pictures)))
    for row, picture in enumerate(pictures):
        sheet.paste(picture, (0, row * height))
    count = _MOST_COLOURS - len(exact) if shaded else _MIXED_COLOURS
    found = sheet.quantize(colors=count, method=Image.Quantize.MEDIANCUT).getpalette() or []
    fixed = np.array([to_rgb(colour) for colour in exact]) * 255
    mixed = np.array(found[: 3 * count], dtype=float).reshape(-1, 3)
    # Pillow's search for the nearest colour is approximate: a mixed one close to an exact one would win now and then.
    distance = np.linalg.norm(mixed[:, None] - fixed[None], axis=2).min(axis=1)
    palette = Image.new("P", (1, 1))
    colours = np.vstack([fixed, mixed[distance > (8 if shaded else 14)]])
    palette.putpalette(np.round(colours).astype(int).ravel().tolist())
    return palette


_TOGETHER_MS, _LEAST_MS, _MOST_MS, _LAST_MS = 9000, 130, 450, 3000


def write_frames(
    frames: Sequence[UInt8[np.ndarray, "height width 3"]], path: Path, exact: Sequence[str], shaded: bool = False
) -> Path:
    """Write frames as MP4 or GIF, by the ending of the path: 9 s in all, 0.13 to 0.45 s each, the last one 3 s."""
    pause = int(np.clip(_TOGETHER_MS / len(frames), _LEAST_MS, _MOST_MS))
    pauses = [*[pause] * (len(frames) - 1), _LAST_MS]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_mp4(frames, path, pauses) if path.suffix == ".mp4" else write_gif(frames, path, pauses, exact, shaded)


FigureFormat = Literal["png", "pdf", "svg"]
AnimationFormat = Literal["gif", "mp4"]
FIGURE_FORMATS: tuple[FigureFormat, ...] = get_args(FigureFormat)
ANIMATION_FORMATS: tuple[AnimationFormat, ...] = get_args(AnimationFormat)
LEAST_DPI, MOST_DPI = 20, 1200


@dataclass(frozen=True)
class Formats:
    """Formats of figures and animations, and dots per inch of figures, and of maps in them.

    In ``pdf`` and ``svg`` maps are pictures, all else is lines and letters; ``mp4`` needs an encoder.

    Example:
        >>> Formats.of(["pdf"], dpi=300)
        Formats(figures='pdf', animation='gif', dpi=300)
    """

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
        """Formats by name: at most one of figures and one of animations; the rest is as by default."""
        figures: list[FigureFormat] = [name for name in FIGURE_FORMATS if name in names]
        animations: list[AnimationFormat] = [name for name in ANIMATION_FORMATS if name in names]
        known = ", ".join([*FIGURE_FORMATS, *ANIMATION_FORMATS])
        if strangers := [name for name in names if name not in FIGURE_FORMATS and name not in ANIMATION_FORMATS]:
            raise ConfigError(f"got {strangers[0]!r}; wanted one of {known}", at="--format")
        for same in (figures, animations):
            if len(same) > 1:
                raise ConfigError(f"got {' and '.join(same)}; wanted one of them", at="--format")
        drawn = figures[0] if figures else cls.figures
        return cls(drawn, animations[0] if animations else cls.animation, cls.dpi if dpi is None else dpi)
