"""Names in scenarios and arguments: kinds of swarmbo, or a user's own code."""

from swarmbo.registry.slots import (
    FIELD as FIELD,
    FUNCTION as FUNCTION,
    SLOTS as SLOTS,
    TEAMS as TEAMS,
    Slot as Slot,
    Team as Team,
    is_kind as is_kind,
    kind as kind,
    kinds as kinds,
    name_of as name_of,
    nearest_kind as nearest_kind,
    require_known as require_known,
    schema as schema,
    settings_of as settings_of,
    summary_of as summary_of,
)
