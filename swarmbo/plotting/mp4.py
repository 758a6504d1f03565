"""Pictures as an MP4 film (H.264), by an encoder that lies in a package or on the path."""

import importlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from swarmbo.boundary.files import PARTIAL
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
