"""Settings of a WLAN: locations, radio, changes, and the channels and widths among which access points choose."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.settings import Count, Probability, Settings, Whole, convert, require, within
from swarmbo_envs.shared import Pair, Values, kind_of
from swarmbo_envs.simulated_world import WorldSettings

_LARGEST_M = 1e6
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
    """Number of the widened channel, and the position of the channel of 20 MHz in it, from 0."""
    whole, own = (centre_mhz(channel, width) or 0.0 for width in (width_mhz, 20.0))
    base = 2407.0 if whole < 5000.0 else 5000.0
    return round((whole - base) / _STEP_MHZ), round((own - whole + width_mhz / 2.0 - 10.0) / 20.0)


@dataclass(frozen=True)
class Spectrum:
    """Channels of 20 MHz and widths among which each access point chooses; every channel exists in every width.

    A joint setting has all powers, then the position of each access point's channel in ``channels``, then, with several
    widths, the position of each one's width in ``widths_mhz``.
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
        """Channel of each access point as text, with its width if there are several widths: ``36/40``."""
        chosen, has_widths = self.chosen(plan), len(self.widths_mhz) > 1
        return [f"{channel}/{width:g}" if has_widths else str(channel) for channel, width in chosen]


def shares(chosen: Sequence[tuple[int, float]]) -> Float[np.ndarray, "k k"]:
    """Share of the power of access point j (column) within the channel of access point i (row), in [0, 1].

    |B_i ∩ B_j| / w_j for bands B of widths w: the transmitted spectrum is flat over its channel, and the receiver has
    an ideal filter as wide as its own. At 2.4 GHz and 20 MHz: 1, 0.75, 0.5, 0.25, 0 for 0 to 4 channels apart.

    Source: Mishra, Shrivastava, Banerjee & Arbaugh 2006, Partially overlapped channels not considered harmful: their
    interference factor, the integral of transmitted spectrum times receiving filter, for these two rectangles.
    """
    centres = np.array([centre_mhz(*one) for one in chosen], dtype=float)
    widths = np.array([width for _, width in chosen])
    low, high = centres - widths / 2.0, centres + widths / 2.0
    common = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    return np.maximum(common, 0.0) / widths


class GeneratedSettings(Settings, frozen=True):
    """Access points and users drawn at random in a rectangle.

    Args:
        access_points: Number of access points, 3 to 4096.
        users: Number of users, 0 to 16,384.
        area_m: Width and height, each 1 to 1e6 m.
        separation_m: Least distance between two access points, 0 to 1e6 m.
        user_radius_m: Radius of the discs round access points, in which users are placed alternately, 1 to 1e6 m.
        most_heard: Largest number of others in range of an access point, >= 2: factors have at most one variable more.
    """

    access_points: Annotated[int, within(3, 4096)] = 12
    users: Annotated[int, within(0, 16_384)] = 36
    area_m: Pair = (300.0, 300.0)
    separation_m: Annotated[float, within(0, _LARGEST_M, "a distance", "m")] = 30.0
    user_radius_m: Annotated[float, within(1, _LARGEST_M, "a radius", "m")] = 50.0
    most_heard: Annotated[int, within(2)] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        are_within = all(1.0 <= side <= _LARGEST_M for side in self.area_m)
        require(self, "area_m", lambda _: are_within, "width and height from 1 to 1e6 m")


class StatedSettings(Settings, frozen=True):
    """Access points and users at stated locations.

    Args:
        access_points: Location [x, y] of each access point, m; one or more.
        users: Location [x, y] of each user, m.
        serving: Index of the access point of each user, from 0; None: the one of least path loss, also if users walk.
    """

    access_points: list[Pair]
    users: list[Pair] = msgspec.field(default_factory=list)
    serving: list[int] | None = None


class FileSettings(Settings, frozen=True):
    """Access points and users from a CSV file.

    Its columns are ``kind`` (``access_point`` or ``user``), ``x_m`` and ``y_m``. An optional column
    ``access_point`` has the index of the access point that serves a user, from 0 in the order of the rows.

    Args:
        csv: Path of the file; relative to the current directory.
    """

    csv: str


class GeneratorSettings(Settings, frozen=True):
    """Table of a random topology: ``{generated = {...}}``."""

    generated: GeneratedSettings


TopologySettings = GeneratedSettings | StatedSettings | FileSettings
_KINDS: dict[str, Any] = {"generated": GeneratorSettings, "access_points": StatedSettings, "csv": FileSettings}


def topology_settings(table: dict[str, Any] | None) -> TopologySettings:
    """Settings of a topology table, whose kind is given by its key; None is a random topology of 12 access points."""
    if table is None:
        return GeneratedSettings()
    settings = convert(table, _KINDS[kind_of(table, _KINDS, "$.topology")], at="$.topology")
    return settings.generated if isinstance(settings, GeneratorSettings) else settings


class SimulationSettings(Settings, frozen=True):
    """Settings of ns-3.

    Args:
        seconds: Simulated time in which throughput is counted, 0.01 to 1000 s.
        warm_up_s: Simulated time before ``seconds``; users associate in its first four fifths, then traffic begins. 0.1
            to 100 s.
        run: Number of ns-3's random streams, 1 to 1e9. One run gives one outcome for one input.
        runs: Outcomes are means over this many runs, the first being ``run``, 1 to 1000.
        processes: Concurrent simulators, at most as many as ``runs``, 1 to 256.
        timeout_s: Wall-clock limit of a simulation, 0.1 to 1e6 s; a longer one is a failed outcome.
        user_power_dbm: Transmit power of users, for acknowledgements, -100 to 100 dBm.
    """

    seconds: Annotated[float, within(0.01, 1000, "a time", "s")] = 1.0
    warm_up_s: Annotated[float, within(0.1, 100, "a time", "s")] = 0.5
    run: Annotated[int, within(1, 10**9)] = 1
    runs: Annotated[int, within(1, 1000)] = 1
    processes: Annotated[int, within(1, 256)] = 1
    timeout_s: Annotated[float, within(0.1, 1e6, "a time", "s")] = 120.0
    user_power_dbm: Annotated[float, within(-100, 100, "a power", "dBm")] = 20.0


class WlanPowerSettings(WorldSettings, frozen=True):
    """Arguments of the WLAN; see ``WlanPower``."""

    topology: Annotated[dict[str, Any], msgspec.Meta(extra={"kinds": _KINDS})] | None = None
    topology_seed: Whole = 0
    power_dbm: Pair = (1.0, 25.0)
    radio: Literal["closed-form", "ns3"] = "closed-form"
    objective: Literal["capacity", "throughput"] = "capacity"
    utility: Literal["sum", "proportional-fair", "minimum-rate", "cell-minimum", "users-above"] = "sum"
    rate_mbps: float | None = None
    airtime: Literal["shared", "full"] = "shared"
    rate_cap_mbps: Annotated[float, within(1e-3, 1e6, "a rate", "Mbit/s")] | None = None
    snr_gap_db: Annotated[float, within(0, 40, "a gap", "dB")] | None = None
    simulation: SimulationSettings = SimulationSettings()
    bandwidth_mhz: Annotated[float, within(1e-3, 1e5, "a bandwidth", "MHz")] = 20.0
    channels: tuple[int, ...] = ()
    widths_mhz: tuple[float, ...] = ()
    noise_figure_db: Annotated[float, within(0, 100, "a noise figure", "dB")] = 7.0
    shadowing_db: Annotated[float, within(0, 30, "a standard deviation", "dB")] = 0.0
    interference: Literal["audible", "all"] = "audible"
    audible_dbm: Annotated[float, within(-200, 100, "a level", "dBm")] = -82.0
    outcomes: Literal["per-factor", "total"] = "per-factor"
    observes: Literal["powers", "losses"] = "powers"
    mobility_m: Annotated[float, within(0, _LARGEST_M, "a distance", "m")] = 0.0
    leave_rate: Probability = 0.0
    return_rate: Probability = 0.0
    departures: list[tuple[int, int]] = msgspec.field(default_factory=list)
    max_cycles: Count = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        lowest, highest = self.power_dbm
        are_powers = -100.0 <= lowest < highest <= 100.0
        require(self, "power_dbm", lambda _: are_powers, "lowest < highest, from -100 to 100 dBm")
        are_stated = all(at >= 1 and user >= 0 for at, user in self.departures)
        require(self, "departures", lambda _: are_stated, "[round >= 1, index of a user >= 0] of each")
        if self.utility == "users-above":
            is_rate = self.rate_mbps is not None and 0.0 < self.rate_mbps <= 1e6
            wanted = "the rate threshold of the utility 'users-above', above 0 and up to 1e6 Mbit/s"
            require(self, "rate_mbps", lambda _: is_rate, wanted)
        else:
            require(self, "rate_mbps", lambda value: value is None, "no rate, or the utility 'users-above'")
        if self.utility == "minimum-rate":
            fix = "since the least rate of all users is not a sum over access points, or 'cell-minimum', which is"
            require(self, "utility", lambda _: self.outcomes == "total", f"outcomes = 'total', {fix}")
        if self.objective == "throughput":
            require(self, "objective", lambda _: self.radio == "ns3", "'capacity', or radio = 'ns3'")
            is_known = bool(self.channels) or self.bandwidth_mhz in (20.0, 40.0)
            require(self, "bandwidth_mhz", lambda _: is_known, "20 or 40 MHz, a channel of 802.11n")
        if self.worlds == "drawn":
            is_family = isinstance(topology_settings(self.topology), GeneratedSettings) or self.shadowing_db > 0.0
            require(self, "worlds", lambda _: is_family, "'fixed', a generated topology, or shadowing_db above 0")
            require(self, "worlds", lambda _: self.radio == "closed-form", "'fixed', or radio = 'closed-form'")
        if self.worlds == "drawn" or self.observes == "losses":
            require(self, "channels", lambda given: not given, "none, with drawn worlds or observed losses")
        if self.channels or self.widths_mhz:
            self._check_channels()

    def _check_channels(self) -> None:
        wanted = "two or more different channels, or none, and then no widths"
        require(self, "channels", lambda given: len(set(given)) == len(given) >= 2, wanted)
        is_list = len(set(self.widths_mhz)) == len(self.widths_mhz) != 1
        require(self, "widths_mhz", lambda _: is_list, "two or more different widths, or none")
        band = band_of(self.channels[0])
        is_band = band is not None and all(band_of(channel) == band for channel in self.channels)
        require(self, "channels", lambda _: is_band, "channels of one band: 1 to 13, or 36, 40, ... to 177")
        at, widths, known = "widths_mhz", self.widths_mhz, WIDTHS_MHZ[band or 5.0]
        if not widths:
            at, widths = "bandwidth_mhz", (self.bandwidth_mhz,)
        require(self, at, lambda _: all(width in known for width in widths), f"{known} MHz, widths of a channel")
        is_lost = self.objective == "throughput" and band == 2.4 and 40.0 in widths and max(self.channels) > LAST_ABOVE
        fix = f"channels 1 to {LAST_ABOVE}: in ns-3 nothing arrives at 40 MHz on others of 2.4 GHz"
        require(self, "channels", lambda _: not is_lost, fix)
        lacking = [channel for channel in self.channels if any(centre_mhz(channel, width) is None for width in widths)]
        require(self, "channels", lambda _: not lacking, f"channels with all widths, unlike {lacking}")

    @property
    def spectrum(self) -> Spectrum | None:
        """Channels and widths among which access points choose; None if all are on one channel."""
        if not self.channels:
            return None
        return Spectrum(self.channels, self.widths_mhz or (self.bandwidth_mhz,))

    @property
    def changes(self) -> bool:
        """True if users walk, leave or return, so that the function changes from round to round."""
        return bool(self.mobility_m or self.leave_rate or self.departures)
