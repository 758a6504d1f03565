"""BibTeX references of the methods, data and simulators of runs, from ``citations.toml``."""

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from swarmbo.boundary.values import flat
from swarmbo.errors import RunFolderError
from swarmbo.registry import SLOTS, is_user_code
from swarmbo.runs.reading import Run, read_each


class Citations(NamedTuple):
    """BibTeX entries by key, and notes on what was left out or has no known reference."""

    entries: dict[str, str]
    notes: list[str]


@cache
def table() -> dict[str, Any]:
    """Content of ``citations.toml``, whose comments describe it; methods in ``alone`` use no acquisition."""
    return tomllib.loads(Path(__file__).with_name("citations.toml").read_text(encoding="utf-8"))


def cite(paths: Iterable[Path]) -> Citations:
    """References of all that runs used: swarmbo, and the methods, data and simulators that their settings name.

    Args:
        paths: Run folders. Folders without a logged round and damaged folders are left out, with a note.

    Raises:
        RunFolderError: If no folder has a run with a round.
    """
    runs, left_out = read_each(paths, _begun)
    if not runs:
        raise RunFolderError(left_out[0] if left_out else "got no run; wanted one at least")
    keys, versions = set[str](), dict[str, None]()
    notes = dict.fromkeys(f"{why}; left out" for why in left_out)
    for path, made_by, settings, is_in_field in runs:
        versions[made_by["swarmbo"]] = None
        if settings.get("acquisition.kind") == "auto" and is_in_field:
            notes[f"{path}: not complete, so it is not known yet which acquisition 'auto' has chosen"] = None
        notes |= {f"{path}: {name} is code of yours": None for name in made_by if is_user_code(name)}
        for condition, references in table()["uses"].items():
            if all(_holds(part, settings) for part in condition.split(" & ")):
                keys.update(references)
    swarmbo = table()["swarmbo"] | {"version": " and ".join(versions), "year": "2026"}
    found, entries = {"swarmbo": swarmbo} | {key: table()["entries"][key] for key in sorted(keys)}, dict[str, str]()
    for key, fields in found.items():
        lines = [f"  {name} = {{{text}}}" for name, text in fields.items() if name != "type"]
        entries[key] = f"@{fields['type']}{{{key},\n" + ",\n".join(lines) + "\n}"
    return Citations(entries, list(notes))


def _begun(run: Run) -> tuple[Path, dict[str, str], dict[str, Any], bool]:
    """Folder, versions and settings of a run with a logged round, and whether it is in a field. Its log is left out."""
    if not run.records:
        raise RunFolderError(f"{run.path}: no round is logged")
    return run.path, run.folder.versions(), settings_of(run), not run.world.variables


def settings_of(run: Run) -> dict[str, Any]:
    """Settings in use by path, without an acquisition if the method uses none; the selected one replaces ``auto``."""
    scenario, world = run.scenario, run.world
    tables: dict[str, Any] = {slot: msgspec.to_builtins(getattr(scenario, slot)) for slot in SLOTS}
    if tables["coordination"].get("kind") in table()["alone"]:
        tables["acquisition"] = {}
    tables |= {"environment": scenario.environment, "workers": msgspec.to_builtins(scenario.workers)}
    tables |= {"coordinates": msgspec.to_builtins(world.coordinates), "goal": world.goal}
    settings = flat(tables)
    if run.summary is not None and isinstance(chosen := run.summary.acquisition, str) and tables["acquisition"]:
        settings["acquisition.kind"] = chosen.partition(" ")[0]
    return settings


def _holds(part: str, settings: Mapping[str, Any]) -> bool:
    path, has_value, wanted = part.partition(" = ")
    if has_value:
        value = settings.get(path)
        return (str(value).lower() if isinstance(value, bool) else value) == wanted
    return any(name == path or name.startswith(f"{path}.") for name, value in settings.items() if value is not None)
