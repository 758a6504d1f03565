"""Pictures of one size, one after the other, as a file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from swarmbo.plotting.gif import write_gif
from swarmbo.plotting.mp4 import write_mp4

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
