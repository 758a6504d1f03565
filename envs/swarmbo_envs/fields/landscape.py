"""Which field a table of settings asks for."""

from pathlib import Path
from typing import Any

from swarmbo_envs.fields.drawn import drawn_field, drawn_in_time
from swarmbo_envs.fields.elevation import elevation_field
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.measured import measured_field
from swarmbo_envs.fields.measured_in_time import measured_in_time
from swarmbo_envs.fields.moving import FieldInTime
from swarmbo_envs.fields.plume import plume_field
from swarmbo_envs.fields.raster import raster_field
from swarmbo_envs.fields.settings import (
    CarriedSettings,
    DrawnSettings,
    ElevationSettings,
    FieldSettings,
    MeasuredSettings,
    RasterFieldSettings,
    SurveySettings,
    field_settings,
)

_DATA = Path(__file__).parent / "data"
_OXFORD = "Oxford soil, pH"


def build_field(table: dict[str, Any] | None, max_sites: int, at: str = "$.field") -> Field:
    """The field that a table describes: an elevation model, a CSV file, a GeoTIFF, a survey or a draw from a prior.

    Args:
        table: As in a scenario file; None for the default elevation model.
        max_sites: Largest number of candidate sites; the sites of a CSV file are all kept.
        at: Path of the table, for messages.

    Raises:
        ConfigError: If the table, or the data that it names, can't be used, or the field would change.
    """
    settings = field_settings(table, at)
    if isinstance(settings, ElevationSettings):
        return elevation_field(settings, max_sites, at)
    if isinstance(settings, DrawnSettings):
        return drawn_field(settings.gp, max_sites)
    if isinstance(settings, RasterFieldSettings):
        return raster_field(settings, max_sites, at)
    measured, title = _measured(settings)
    return measured_field(measured, max_sites, at, title)


def build_field_in_time(table: dict[str, Any] | None, max_sites: int, at: str = "$.field") -> FieldInTime:
    """The same of a field that may change: also a plume, a draw over time, or a CSV file with a column of times."""
    settings = field_settings(table, at, moving=True)
    if isinstance(settings, CarriedSettings):
        return plume_field(settings.plume, max_sites)
    if isinstance(settings, DrawnSettings):
        return drawn_in_time(settings.gp, max_sites)
    if isinstance(settings, ElevationSettings):
        return FieldInTime(elevation_field(settings, max_sites, at))
    if isinstance(settings, RasterFieldSettings):
        return FieldInTime(raster_field(settings, max_sites, at, may_have_gaps=False))
    measured, title = _measured(settings)
    return measured_in_time(measured, max_sites, at, title)


def _measured(settings: FieldSettings) -> tuple[MeasuredSettings, str]:
    """The settings of a CSV file, and what its field is called."""
    if isinstance(settings, SurveySettings):
        path = str(_DATA / "oxford_ph.csv")
        return MeasuredSettings(csv=path, x="x_m", y="y_m", value="ph", unit="pH", sites=settings.sites), _OXFORD
    assert isinstance(settings, MeasuredSettings)
    return settings, ""
