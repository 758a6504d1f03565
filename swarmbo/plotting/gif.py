"""Pictures as an animated GIF with one set of colours, so that only what moved is written in each frame."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.colors import to_rgb
from PIL import Image

from swarmbo.boundary.files import replacing

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
