"""Channels and widths among which access points choose, and the share of power that falls into another channel."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo_envs.shared import Values

_STEP_MHZ = 5.0  # between the centres of consecutive channel numbers
_BANDS_5_GHZ = (range(36, 65, 4), range(100, 145, 4), range(149, 178, 4))
WIDTHS_MHZ = {2.4: (20.0, 40.0), 5.0: (20.0, 40.0, 80.0, 160.0)}  # by band, GHz
LAST_ABOVE = 7  # last channel at 2.4 GHz whose second half of 40 MHz lies above it


def band_of(channel: int) -> float | None:
    """Band of a channel number, 2.4 or 5 GHz; None if there is no such channel."""
    if 1 <= channel <= 13:
        return 2.4
    return 5.0 if any(channel in numbers for numbers in _BANDS_5_GHZ) else None


@functools.cache
def centre_mhz(channel: int, width_mhz: float) -> float | None:
    """Centre frequency of a channel of 20 MHz widened to a width; None if there is no such channel.

    2407 + 5 n MHz, or 5000 + 5 n MHz, for the number n. At 5 GHz the wide channels are fixed blocks, such as 36 and 40.
    At 2.4 GHz the second half of 40 MHz lies above channels 1 to 7, and below 8 to 13.

    Source: IEEE 802.11-2020, 15.4.4.3, 17.3.8.4.2 and annex E.

    Example:
        >>> centre_mhz(6, 20.0), centre_mhz(40, 40.0), centre_mhz(44, 80.0), centre_mhz(140, 80.0)
        (2437.0, 5190.0, 5210.0, 5690.0)
    """
    band = band_of(channel)
    if band is None or width_mhz not in WIDTHS_MHZ[band]:
        return None
    beside = (width_mhz - 20.0) / 2.0
    if band == 2.4:
        return 2407.0 + _STEP_MHZ * channel + (beside if channel <= LAST_ABOVE else -beside)
    numbers = next(numbers for numbers in _BANDS_5_GHZ if channel in numbers)
    together = round(width_mhz / 20.0)
    first = numbers.index(channel) // together * together
    return 5000.0 + _STEP_MHZ * numbers[first] + beside if first + together <= len(numbers) else None


def whole_channel(channel: int, width_mhz: float) -> tuple[int, int]:
    """Number of the widened channel, and the position of the channel of 20 MHz in it, from 0.

    Example:
        >>> whole_channel(44, 80.0), whole_channel(11, 40.0)
        ((42, 2), (9, 1))
    """
    whole, own = (centre_mhz(channel, width) or 0.0 for width in (width_mhz, 20.0))
    base = 2407.0 if whole < 5000.0 else 5000.0
    return round((whole - base) / _STEP_MHZ), round((own - whole + width_mhz / 2.0 - 10.0) / 20.0)


@dataclass(frozen=True)
class Spectrum:
    """Channels among which each access point chooses, and widths if there are several.

    A joint setting has all powers, then the position of each access point's channel in ``channels``, then, with several
    widths, the position of each one's width in ``widths_mhz``.

    Args:
        channels: Numbers of channels of 20 MHz.
        widths_mhz: Widths; each channel exists with each.
    """

    channels: tuple[int, ...]
    widths_mhz: tuple[float, ...]

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """Values of each choice of an access point, by name."""
        return {"channel": self.channels} | ({"width": self.widths_mhz} if len(self.widths_mhz) > 1 else {})

    def chosen(self, plan: Values) -> list[tuple[int, float]]:
        """Channel and width in MHz of each access point, from positions (k,) or (2k,)."""
        positions = np.asarray(plan, dtype=int).reshape(len(self.choices), -1)
        widths = positions[1] if len(positions) > 1 else np.zeros_like(positions[0])
        return [(self.channels[c], self.widths_mhz[w]) for c, w in zip(positions[0], widths, strict=True)]

    def labels(self, plan: Values) -> list[str]:
        """Channel of each access point as text, with its width if it could have another: ``36/40``."""
        chosen, has_widths = self.chosen(plan), len(self.widths_mhz) > 1
        return [f"{channel}/{width:g}" if has_widths else str(channel) for channel, width in chosen]


def shares(chosen: Sequence[tuple[int, float]]) -> Float[np.ndarray, "k k"]:
    """Share of the power of access point j (column) within the channel of access point i (row), in [0, 1].

    |B_i ∩ B_j| / w_j for bands B of widths w: the transmitted spectrum is flat over its channel, and the receiver has
    an ideal filter as wide as its own. At 2.4 GHz and 20 MHz: 1, 0.75, 0.5, 0.25, 0 for 0 to 4 channels apart.

    Source: Mishra, Shrivastava, Banerjee & Arbaugh 2006, Partially overlapped channels not considered harmful: their
    interference factor, the integral of transmitted spectrum times receiving filter, for these two rectangles.

    Example:
        >>> shares([(1, 20.0), (3, 20.0), (6, 20.0)])[0].tolist()
        [1.0, 0.5, 0.0]
    """
    centres = np.array([centre_mhz(*one) for one in chosen], dtype=float)
    widths = np.array([width for _, width in chosen])
    low, high = centres - widths / 2.0, centres + widths / 2.0
    common = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    return np.maximum(common, 0.0) / widths
