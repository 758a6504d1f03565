"""Code of a user's own that a scenario names: loaded only where somebody says that they trust it, and told by name."""

import os
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from importlib.machinery import PathFinder
from typing import Any

import msgspec

from swarmbo.errors import ConfigError, OwnCodeError, SwarmboError
from swarmbo.kernels import named_kernels
from swarmbo.registry import SLOTS
from swarmbo.registry.own_code import find_in, is_own, load, source_of


def own_names(tables: Mapping[str, Any]) -> dict[str, str]:
    """The code that a scenario names, by the path of the name; empty for most.

    Args:
        tables: Of a scenario, checked or not.

    Example:
        >>> own_names({"environment": {"id": "my_worlds:Pond"}, "belief": {"kind": "exact"}})
        {'$.environment.id': 'my_worlds:Pond'}
    """
    keys = [("environment", "id"), *((slot, "kind") for slot in SLOTS)]
    there = {f"$.{table}.{key}": (tables.get(table), key) for table, key in keys}
    names = {at: part.get(key) for at, (part, key) in there.items() if isinstance(part, Mapping)}
    return {at: name for at, name in names.items() if is_own(name)} | named_kernels(tables.get("belief"))


def require_trust(scenario: msgspec.Struct | Mapping[str, Any], trust: bool) -> None:
    """Refuse code that nobody said they trust; let Python find the rest. Nothing is imported here.

    Args:
        scenario: A scenario, or its tables.
        trust: Whether the code that it names may be run.

    Raises:
        ConfigError: If it names code without being trusted, or in a module that another one hides.
    """
    tables = scenario if isinstance(scenario, Mapping) else msgspec.structs.asdict(scenario)
    for at, name in own_names(tables).items():
        if not trust:
            raise ConfigError(
                f"got {name!r}, code that swarmbo does not bring; wanted --trust (trust=True), which runs it",
                at=at,
            )
        find_in(tables.get("modules") or (), name, at)


def folders_of(tables: Mapping[str, Any], *folders: str | os.PathLike[str]) -> list[str]:
    """Those folders that hold a module which a scenario names, by their absolute paths; nothing is imported."""
    modules = {name.partition(":")[0].partition(".")[0] for name in own_names(tables).values()}
    absolute = dict.fromkeys(os.path.abspath(folder) for folder in folders)
    return [folder for folder in absolute if any(PathFinder.find_spec(module, [folder]) for module in modules)]


def digests(scenario: msgspec.Struct) -> dict[str, str]:
    """For the code that a trusted scenario names, what tells whether its file was changed.

    Raises:
        ConfigError: If it cannot be loaded.
    """
    told: dict[str, str] = {}
    for at, name in own_names(msgspec.structs.asdict(scenario)).items():
        find_in(getattr(scenario, "modules", None) or (), name, at)
        file = source_of(load(name, at))
        told[name] = "" if file is None else blake2b(file.read_bytes(), digest_size=16).hexdigest()
    return told


@contextmanager
def told_by_name(scenario: msgspec.Struct) -> Generator[None]:
    """What code of a user's own raises ends a run in one line, which says which method of it did.

    Raises:
        OwnCodeError: Instead of what was raised there.
    """
    try:
        yield
    except SwarmboError:
        raise
    except (Exception, SystemExit) as error:
        if (line := _blamed(scenario, error)) is None:
            raise
        raise OwnCodeError(line) from error


def _blamed(scenario: msgspec.Struct, error: BaseException) -> str | None:
    """The innermost function of a user's own that an exception came through; None where there is none."""
    modules: dict[str, str] = {}
    for at, name in own_names(msgspec.structs.asdict(scenario)).items():
        if (file := source_of(load(name, at))) is not None:
            modules[str(file)] = name.partition(":")[0]
    within = [(f, line) for f, line in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename in modules]
    if not within:
        return None
    code, line = within[-1][0].f_code, within[-1][1]
    what = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"{modules[code.co_filename]}:{code.co_qualname} raised {what} ({os.path.basename(code.co_filename)}:{line})"
