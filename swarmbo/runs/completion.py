"""What a shell may complete on the command line: names of scenarios, and settings for ``--set``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from swarmbo.errors import ConfigError
from swarmbo.registry import SLOTS, kinds
from swarmbo.runs.scenario import Scenario, available, locate, read_toml
from swarmbo.runs.world import default_kinds, load_plug_ins, plug_in_ids


def scenario_names(begun: str) -> list[str]:
    """Scenarios that swarmbo brings, and TOML files, whose names begin so.

    Example:
        >>> scenario_names("robots-t")
        ['robots-topobathy']
    """
    files = sorted(str(path) for path in Path().glob("*.toml"))
    return [name for name in (*available(), *files) if name.startswith(begun)]


def setting_paths(source: str | None, begun: str) -> list[str]:
    """Settings of a scenario that begin so, each with its ``=``; of kinds and worlds with each name that there is.

    Args:
        source: The scenario; None, or one that cannot be read, has the defaults of a field.
        begun: What was typed.

    Example:
        >>> setting_paths("robots", "coordination.kind=max"), setting_paths("robots", "coordination.t")
        (['coordination.kind=max-sum'], ['coordination.table_budget='])
    """
    found = dict.fromkeys(path for path in _paths(source) if path.startswith(begun))
    return list(found)


def _paths(source: str | None) -> Iterator[str]:
    tables = _tables(source)
    for name in Scenario.__struct_fields__:
        if name not in ("environment", "modules", *SLOTS):
            yield f"{name}="
    environment = tables.get("environment")
    load_plug_ins()
    yield from (f"environment.id={identifier}" for identifier in plug_in_ids())
    usual = default_kinds(environment.get("id") if isinstance(environment, Mapping) else None)
    for slot in SLOTS:
        table = tables.get(slot)
        yield from (f"{slot}.kind={kind}" for kind in kinds(slot))
        kind = table.get("kind", usual.get(slot)) if isinstance(table, Mapping) else usual.get(slot)
        settings = kinds(slot).get(str(kind))
        if settings is not None:
            yield from (f"{slot}.{field.encode_name}=" for field in msgspec.structs.fields(settings))
    yield from _stated(tables, "")


def _stated(table: Mapping[str, Any], above: str) -> Iterator[str]:
    """What a scenario states, tables within tables too."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _stated(cast(Mapping[str, Any], value), f"{above}{key}.")
        elif key != "kind" and f"{above}{key}" != "environment.id":
            yield f"{above}{key}="


def _tables(source: str | None) -> dict[str, Any]:
    try:
        return {} if source is None else read_toml(locate(source))
    except ConfigError:  # a name that is not whole yet, perhaps
        return {}
