"""Fields that somebody measured more than once: rows of a CSV file with a column of times."""

import hashlib
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError
from swarmbo_envs.fields.csv_file import read_measurements
from swarmbo_envs.fields.field import Surface
from swarmbo_envs.fields.measured import Kriging, NearestSite, distinct, field_of
from swarmbo_envs.fields.moving import FieldInTime, with_surface
from swarmbo_envs.fields.settings import MeasuredSettings


class Stations:
    """Series of values at fixed sites, linear between their times and level beyond them.

    Args:
        table: Rows x, y, time, value. Rows of one site and time are averaged.
        time_step: What goes by in a round, in the unit of the times; None for the median distance between neighbours.
        interpolated: Whether the field between the sites is kriged, or that of the nearest site.
        at: Path of the settings, for messages.

    Raises:
        ConfigError: If all rows are of one time.
    """

    def __init__(self, table: Float[np.ndarray, "n 4"], time_step: float | None, interpolated: bool, at: str) -> None:
        times = np.unique(table[:, 2])
        if len(times) < 2:
            raise ConfigError(f"got {len(times)} time; wanted at least 2, or no column of times", at=f"{at}.time")
        self._step = float(np.median(np.diff(times))) if time_step is None else time_step
        self._begin, self._interpolated = float(times[0]), interpolated
        self.sites, _ = distinct(table[:, :2], table[:, 3])
        self._series: list[tuple[np.ndarray, np.ndarray]] = []
        for site in self.sites:
            own = table[(table[:, :2] == site).all(axis=1)]
            rounds, values = distinct(own[:, 2:3], own[:, 3])
            order = np.argsort(rounds[:, 0])
            self._series.append((rounds[order, 0], values[order]))

    def values(self, round_number: float) -> Float[np.ndarray, " n"]:
        """The value of every site in a round."""
        time = self._begin + round_number * self._step
        return np.array([np.interp(time, rounds, values) for rounds, values in self._series])

    def surface(self, round_number: float) -> Surface:
        """The field of a round."""
        values = self.values(round_number)
        return Kriging(self.sites, values) if self._interpolated else NearestSite(self.sites, values)


def measured_in_time(settings: MeasuredSettings, max_sites: int, at: str = "$.field", title: str = "") -> FieldInTime:
    """The field of a CSV file, that changes if it has a column of times; see ``measured_field``."""
    read = read_measurements(settings, at)
    still = field_of(read, settings, max_sites, at, title)
    if read.times is None:
        return FieldInTime(still)
    table = np.column_stack([read.places, read.times, read.values])
    stations = Stations(table, settings.time_step, settings.sites == "interpolated", at)
    digest = hashlib.blake2b(table.astype("<f8").tobytes(), digest_size=16).hexdigest()
    first = with_surface(replace(still, digest=digest), stations.surface(0))
    return FieldInTime(first, stations, float(table[:, 3].min()), float(table[:, 3].max()))
