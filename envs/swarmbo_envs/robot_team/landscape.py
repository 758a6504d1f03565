"""Which field a table of settings asks for."""

from typing import Any

from swarmbo_envs.robot_team.drawn import drawn_field
from swarmbo_envs.robot_team.elevation import elevation_field
from swarmbo_envs.robot_team.fields import Field
from swarmbo_envs.robot_team.measured import measured_field
from swarmbo_envs.robot_team.settings import ElevationSettings, MeasuredSettings, field_settings


def build_field(table: dict[str, Any] | None, max_sites: int, at: str = "$.field") -> Field:
    """The field that a table describes: an elevation model, a CSV file or a draw from a prior.

    Args:
        table: As in a scenario file; None for the default elevation model.
        max_sites: Largest number of candidate sites; the sites of a CSV file are all kept.
        at: Path of the table, for messages.

    Raises:
        ConfigError: If the table, or the data that it names, can't be used.
    """
    settings = field_settings(table, at)
    if isinstance(settings, ElevationSettings):
        return elevation_field(settings, max_sites, at)
    if isinstance(settings, MeasuredSettings):
        return measured_field(settings, max_sites, at)
    return drawn_field(settings.gp, max_sites)
