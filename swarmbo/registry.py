"""Kinds by name: values of ``kind = "…"`` in a table of a scenario, and their settings classes.

A kind is a settings class with a tag, registered by ``@kind(slot, team, …)`` above it. To add one, write a file with
that line, and list the class among the public names of ``swarmbo/__init__.pyi``, where kinds are found. The schema of a
table is the union of the kinds of its slot.
"""

import difflib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from importlib.util import find_spec
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard, TypeVar, Union

import msgspec

import swarmbo
from swarmbo.boundary.values import error_text, short
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.settings import Settings, convert, name_hint, resolve, unknown_key_message

Slot = Literal["belief", "acquisition", "coordination", "transport"]
TeamKind = Literal["field", "function"]

SLOTS: tuple[Slot, ...] = ("belief", "acquisition", "coordination", "transport")
FIELD: TeamKind = "field"
FUNCTION: TeamKind = "function"
TEAMS: Mapping[TeamKind, str] = {
    FIELD: "agents that each measure a place of their own in one field",
    FUNCTION: "agents that set the variables of one function together",
}

_OTHER_NAMES = {
    **{"variableelimination": "exact", "ei": "expected-improvement", "ts": "thompson"},
    **dict.fromkeys(("dpop", "syncbb", "ncbb"), "exact"),  # of pyDCOP
    **dict.fromkeys(("amaxsum", "maxsumdynamic"), "max-sum"),
    **dict.fromkeys(("mgm2", "dba", "gdba"), "mgm"),
    "adsa": "dsa",
}
Class = TypeVar("Class", bound=type[Settings])
Struct = TypeVar("Struct", bound=msgspec.Struct)
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class _Kind(NamedTuple):
    settings: type[Settings]
    teams: tuple[TeamKind, ...]


_KINDS: dict[Slot, dict[str, _Kind]] = {slot: {} for slot in SLOTS}


def kind(slot: Slot, *teams: TeamKind) -> Callable[[Class], Class]:
    """Register the decorated class under its tag, as a value of a table (and argument of a team) for ``teams``."""

    def register(settings: Class) -> Class:
        name = name_of(settings)
        known = _KINDS[slot].setdefault(name, _Kind(settings, teams))
        if not name or known.settings.__qualname__ != settings.__qualname__:
            raise ValueError(f"{settings.__name__}: wanted an unused tag, not {name!r}")
        return settings

    return register


def name_of(settings: Settings | type[Settings]) -> str:
    """Name of a kind."""
    return str(settings.__struct_config__.tag or "")


def summary_of(settings: type[Settings]) -> str:
    """Summary of a kind: the first line of its docstring, as plain text."""
    return (settings.__doc__ or "").strip().partition("\n")[0].replace("``", "")


def kinds(slot: Slot, team: TeamKind | None = None) -> dict[str, type[Settings]]:
    """Kinds of a slot by name, sorted; all, or those that suit a kind of team."""
    _load()
    suitable = {name: entry.settings for name, entry in _KINDS[slot].items() if team is None or team in entry.teams}
    return dict(sorted(suitable.items()))


def is_kind(thing: object) -> bool:
    """True if an object is the settings of a kind, not of a derived class."""
    return any(type(thing) in kinds(slot).values() for slot in SLOTS)


@functools.cache
def schema(slot: Slot) -> Any:
    """Type of a table of a scenario: the union of the kinds of its slot."""
    return Union[tuple(kinds(slot).values())]  # noqa: UP007  the classes are only known at run time


def settings_of(slot: Slot, given: object, at: str, team: TeamKind | None = None) -> Any:
    """Settings of a kind from a user's argument: a Settings instance, a kind's name, or a table."""
    require_known(slot, given.get("kind") if isinstance(given, Mapping) else given, at, team)
    settings: Settings = resolve(given, schema(slot), at)
    suitable = kinds(slot, team)
    if not isinstance(settings, tuple(suitable.values())):
        names = ", ".join(map(repr, suitable))
        wanted = f"one of {names}" if len(suitable) > 1 else names
        got = f"got {name_of(settings)!r}, which is not for {TEAMS[team] if team else 'any team'}"
        raise ConfigError(f"{got}; wanted {wanted}", at=f"{at}.kind")
    return settings


def require_known(slot: Slot, name: object, at: str, team: TeamKind | None = None) -> None:
    """Refuse an unknown name of a kind; arguments that are not names are left to the schema."""
    if not isinstance(name, str) or name in kinds(slot):
        return
    suitable = list(kinds(slot, team))
    hint = name_hint(name, ())
    if not hint and (near := nearest_kind(name, suitable)) is not None:
        hint = f"; did you mean {near!r}?"
    wanted = f"one of {', '.join(map(repr, suitable))}" if len(suitable) > 1 else repr(suitable[0])
    raise ConfigError(f"got {short(name)}; wanted {wanted}{hint}", at=f"{at}.kind")


def nearest_kind(name: str, known: Sequence[str]) -> str | None:
    """Kind nearest to a name: by another name for it, spelling, initials, or one of its words."""
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    synonym = _OTHER_NAMES.get(bare)
    if synonym in known:
        return synonym
    by_spelling = {re.sub(r"[^a-z0-9]", "", kind): kind for kind in known}
    if bare in by_spelling:
        return by_spelling[bare]
    words = {kind: kind.split("-") for kind in known}
    near = [kind for kind in known if bare in ("".join(word[0] for word in words[kind]), *words[kind])]
    near = near or [by_spelling[key] for key in difflib.get_close_matches(bare, list(by_spelling), n=1)]
    return near[0] if near else None


@functools.cache
def _load() -> None:
    for module in sorted(set(swarmbo.homes().values())):
        import_module(module)


def is_user_code(name: object) -> TypeGuard[str]:
    """True if a name is that of user code: kinds and ids of environments have no colon."""
    return isinstance(name, str) and ":" in name


def import_name(thing: object) -> str:
    """Name by which a class, or an object's class, can be loaded: ``my_methods:BestMean``."""
    named = thing if isinstance(thing, type) else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def add_module_folders(folders: Sequence[str], name: str, at: str) -> None:
    """Add folders to Python's path, after all others, so that they hide nothing; refuse a module that is hidden."""
    sys.path += [folder for folder in folders if folder not in sys.path]
    invalidate_caches()
    module = name.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(module, list(folders))
    if spec is None or spec.origin is None or module == "__main__":
        return
    imported = find_spec(module)
    if imported is None or imported.origin is None or not os.path.exists(imported.origin):
        other = "a module of Python itself"
    elif os.path.realpath(imported.origin) == os.path.realpath(spec.origin):
        return
    else:
        other = imported.origin
    raise ConfigError(f"got {name!r}, but {spec.origin} is hidden by {other}; wanted another name for it", at=at)


def load(name: str, at: str) -> Any:
    """Load the object that ``module:Class`` names; dots lead into packages and classes."""
    module, _, path = name.partition(":")
    if not (_NAME.fullmatch(module) and _NAME.fullmatch(path)):
        raise ConfigError(f"got {short(name)}; wanted 'module:Class'", at=at)
    try:
        thing: Any = import_module(module)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            wanted = "wanted one that is installed, in the present folder, or in the scenario's folder"
            raise ConfigError(f"got {name!r}, but there is no module {missing!r}; {wanted}", at=at) from error
        raise ConfigError(f"importing {module} failed: {error_text(error)}", at=at) from error
    for part in path.split("."):
        if not hasattr(thing, part):
            owner = getattr(thing, "__file__", None) or getattr(thing, "__name__", module)
            raise ConfigError(f"got {name!r}, but {owner} has no {part!r}{name_hint(part, dir(thing))}", at=at)
        thing = getattr(thing, part)
    return thing


def load_class(name: str, at: str) -> type:
    """Load the class that ``module:Class`` names."""
    found = load(name, at)
    if not isinstance(found, type):
        kind_of_object = f"a {type(found).__name__}" if callable(found) else short(found)
        raise ConfigError(f"got {name!r}, which is {kind_of_object}; wanted a class", at=at)
    return found


def make(maker: Any, name: str, settings: Mapping[str, Any], at: str) -> Any:
    """Make a user's own object from its table: the fields of a ``msgspec.Struct``, else keywords of the maker."""
    try:
        if isinstance(maker, type) and issubclass(maker, msgspec.Struct):
            return convert(dict(settings), maker, at)
        _require_keywords(maker, name, settings, at)
        return maker(**settings)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{name} refused its settings: {error_text(error)}", at=at) from error


def accepts(method: Any, *arguments: str) -> bool:
    """True if a function, or a method of a class, accepts these positional arguments."""
    try:
        inspect.signature(method).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # compiled code may have no signature
        return True
    return True


def parameters_of(maker: Any) -> Mapping[str, inspect.Parameter] | None:
    """Parameters of a function or a class; None if unknown, as compiled code may have no signature."""
    try:
        return inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return None


def checked_result(wanted: Any, result: Any, owner: object, method: str) -> Any:
    """Return a method's result if it is of the wanted class."""
    if isinstance(result, wanted):
        return result
    names = [part.__name__.removesuffix("Type") for part in getattr(wanted, "__args__", (wanted,))]
    raise invalid_result(result, f"a {' or '.join(names)}", owner, method)


def loggable_result(wanted: type[Struct], result: Any, owner: object, method: str) -> Struct:
    """Return a method's result, a struct, as if read from a log: with Python's numbers, in fields of their types."""
    found = checked_result(wanted, result, owner, method)
    try:
        return convert(msgspec.to_builtins(found, enc_hook=methodcaller("tolist")), wanted)
    except (AttributeError, TypeError, ValueError) as error:
        raise invalid_result(result, f"a valid {wanted.__name__}: {error}", owner, method) from error


def invalid_result(result: object, wanted: str, owner: object, method: str) -> ShapeError:
    """Error for an invalid result, which names the method and its class."""
    return ShapeError(f"{import_name(owner)}.{method}() returned {short(result)}; wanted {wanted}")


def source_file(thing: Any) -> Path | None:
    """File that a class or a function was loaded from, or None."""
    file = getattr(sys.modules.get(getattr(thing, "__module__", "")), "__file__", None)
    return None if file is None else Path(file)


def _require_keywords(maker: Any, name: str, settings: Mapping[str, Any], at: str) -> None:
    if (parameters := parameters_of(maker)) is None:
        return
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [key for key, parameter in parameters.items() if parameter.kind in by_keyword]
    for key in settings:
        if key not in known and not takes_all:
            raise ConfigError(unknown_key_message(key, known, name), at=at)
    for key in known:
        if parameters[key].default is inspect.Parameter.empty and key not in settings:
            raise ConfigError(f"missing key {key!r}, which {name} needs", at=at)
