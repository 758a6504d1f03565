"""Kinds by name: values of ``kind = "…"`` in a table of a scenario, and their settings classes.

A kind is a settings class with a tag, registered by ``@kind(slot, team, …)`` above it. To add one, write a file with
that line, and list the class among the public names of ``swarmbo/__init__.pyi``, where kinds are found. The schema of a
table is the union of the kinds of its slot.
"""

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar, Union

import swarmbo
from swarmbo.boundary.values import short
from swarmbo.errors import ConfigError
from swarmbo.settings import Settings, hint_for, resolve

Slot = Literal["belief", "acquisition", "coordination", "transport"]
Team = Literal["field", "function"]

SLOTS: tuple[Slot, ...] = ("belief", "acquisition", "coordination", "transport")
FIELD: Team = "field"
FUNCTION: Team = "function"
TEAMS: Mapping[Team, str] = {
    FIELD: "agents that each measure a place of their own in one field",
    FUNCTION: "agents that set the variables of one function together",
}


_ALSO_CALLED = {"dpop": "exact", "variableelimination": "exact", "ei": "expected-improvement", "ts": "thompson"}


class _Kind(NamedTuple):
    settings: type[Settings]
    teams: tuple[Team, ...]


Class = TypeVar("Class", bound=type[Settings])

_KINDS: dict[Slot, dict[str, _Kind]] = {slot: {} for slot in SLOTS}


def kind(slot: Slot, *teams: Team) -> Callable[[Class], Class]:
    """Register the class below by its tag, as a value of a table (and argument of a team) for kinds of team."""

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


def kinds(slot: Slot, team: Team | None = None) -> dict[str, type[Settings]]:
    """Kinds of a slot by name, sorted; all, or those that suit a kind of team."""
    _load()
    known = sorted(_KINDS[slot].items())
    return {name: entry.settings for name, entry in known if team is None or team in entry.teams}


def is_kind(thing: object) -> bool:
    """True if an object is the settings of a kind, not of a derived class."""
    return any(type(thing) in kinds(slot).values() for slot in SLOTS)


@functools.cache
def schema(slot: Slot) -> Any:
    """Type of a table of a scenario: the union of the kinds of its slot."""
    return Union[tuple(kinds(slot).values())]  # noqa: UP007  of classes that are only known now


def settings_of(slot: Slot, given: object, at: str, team: Team | None = None) -> Any:
    """Settings of a kind from a user's argument: a Settings instance, a kind's name, or a table."""
    require_known(slot, given.get("kind") if isinstance(given, Mapping) else given, at, team)
    settings: Settings = resolve(given, schema(slot), at)
    fitting = kinds(slot, team)
    if not isinstance(settings, tuple(fitting.values())):
        names = ", ".join(map(repr, fitting))
        wanted = f"one of {names}" if len(fitting) > 1 else names
        got = f"got {name_of(settings)!r}, which is not for {TEAMS[team] if team else 'any team'}"
        raise ConfigError(f"{got}; wanted {wanted}", at=f"{at}.kind")
    return settings


def require_known(slot: Slot, name: object, at: str, team: Team | None = None) -> None:
    """Refuse an unknown name of a kind; arguments that are no name are left to the schema."""
    if not isinstance(name, str) or name in kinds(slot):
        return
    fitting = list(kinds(slot, team))
    hint = hint_for(name, nearest_kind(name, fitting))
    wanted = f"one of {', '.join(map(repr, fitting))}" if len(fitting) > 1 else repr(fitting[0])
    raise ConfigError(f"got {short(name)}; wanted {wanted}{hint}", at=f"{at}.kind")


def nearest_kind(name: str, known: Sequence[str]) -> str | None:
    """Kind nearest to a name: by another name for it, spelling, initials, or one of its words.

    Example:
        >>> known = ["db-gp-ucb", "expected-improvement", "max-sum", "exact"]
        >>> [nearest_kind(name, known) for name in ("ei", "ucb", "MaxSum", "dpop", "votes")]
        ['expected-improvement', 'db-gp-ucb', 'max-sum', 'exact', None]
    """
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    also = _ALSO_CALLED.get(bare)
    spelled = {re.sub(r"[^a-z0-9]", "", kind): kind for kind in known}
    if also in known or bare in spelled:
        return also if also in known else spelled[bare]
    alike = [kind for kind in known if bare in ("".join(word[0] for word in kind.split("-")), *kind.split("-"))]
    near = alike or [spelled[key] for key in difflib.get_close_matches(bare, list(spelled), n=1)]
    return near[0] if near else None


@functools.cache
def _load() -> None:
    """Import every module of public names, so that their decorators have run."""
    for module in sorted(set(swarmbo.homes().values())):
        import_module(module)
