"""Pictures of one size, one after the other, as a file."""

import importlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.colors import to_rgb
from PIL import Image

from swarmbo.boundary.files import PARTIAL, replacing
from swarmbo.errors import ConfigError

_HINT = '`pip install "swarmbo[mp4]"` brings one (or write GIF)'


def encoder() -> str:
    """The program that encodes films: ffmpeg of the package ``imageio-ffmpeg``, or that on the path.

    Raises:
        ConfigError: If there is none.
    """
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed, or without a program for this machine
        found = shutil.which("ffmpeg")
    if found is None:
        raise ConfigError(f"there is no encoder of MP4 here; {_HINT}", at="--format")
    return found


def write_mp4(frames: Sequence[UInt8[np.ndarray, "height width 3"]], path: Path, pause_ms: Sequence[int]) -> Path:
    """Write frames as a film; one thread and no marks of time, so the same frames give the same bytes.

    Args:
        frames: RGB pictures of one size, at least one.
        path: Where to.
        pause_ms: How long each is shown, at least 1 ms; all but the last alike.

    Returns:
        The path.

    Raises:
        ConfigError: If there is no encoder, or it fails.
        OSError: If the file cannot be written.
    """
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
    pictures = b"".join(
        np.ascontiguousarray(frame).tobytes() * times for frame, times in zip(frames, held, strict=True)
    )
    try:
        done = subprocess.run(command, input=pictures, capture_output=True, check=False)
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
    """Write frames as an animation that repeats.

    Args:
        frames: RGB pictures of one size, at least one.
        path: Where to.
        pause_ms: How long each is shown.
        exact: Colours that must not be averaged away.
        shaded: Whether pictures have light and shadow, which takes as many colours as there may be.

    Returns:
        The path.
    """
    pictures = [Image.fromarray(frame) for frame in frames]
    palette = _palette([pictures[0], pictures[len(pictures) // 2], pictures[-1]], list(dict.fromkeys(exact)), shaded)
    drawn = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    with replacing(path) as file:
        drawn[0].save(
            file,
            "GIF",
            save_all=True,
            append_images=drawn[1:],
            duration=list(pause_ms),
            loop=0,
            optimize=False,
        )
    return path


def _palette(pictures: Sequence[Image.Image], exact: Sequence[str], shaded: bool) -> Image.Image:
    """One set of colours for the whole animation: only what moved is then written in each frame.

    Args:
        pictures: Frames that the mixed colours are taken from.
        exact: Colours that must not be averaged away: paper, ink, robots, bands of the maps.
        shaded: Whether to take as many mixed ones as there is room for.
    """
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
    palette.putpalette(
        np.round(np.vstack([fixed, mixed[distance > (8 if shaded else 14)]])).astype(int).ravel().tolist()
    )
    return palette


_TOGETHER_MS, _LEAST_MS, _MOST_MS, _LAST_MS = 9000, 130, 450, 3000


def write_frames(
    frames: Sequence[UInt8[np.ndarray, "height width 3"]], path: Path, exact: Sequence[str], shaded: bool = False
) -> Path:
    """Write frames that last 9 s together, within 0.13 to 0.45 s each; the last one stays for 3 s.

    Args:
        frames: RGB pictures of one size, at least one.
        path: Where to; MP4 where it ends so, else GIF. The folder is made.
        exact: Colours that must not be averaged away where there are few.
        shaded: Whether pictures have light and shadow.

    Returns:
        The path.

    Raises:
        ConfigError: If MP4 is asked for, and there is no encoder.
    """
    pause = int(np.clip(_TOGETHER_MS / len(frames), _LEAST_MS, _MOST_MS))
    pauses = [*[pause] * (len(frames) - 1), _LAST_MS]
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_mp4(frames, path, pauses) if path.suffix == ".mp4" else write_gif(frames, path, pauses, exact, shaded)
