"""Kinds by name: what ``kind = "…"`` in a table of a scenario may say, and the settings class that it stands for.

A kind is a settings class with a tag, and ``@kind(slot, team, …)`` above it makes it known. Adding one is a file with
that line, and the class among the public names of ``swarmbo/__init__.pyi``, which say where kinds are found. The schema
of a table is the union of the kinds of its slot.
"""

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeVar, Union

import swarmbo
from swarmbo.errors import ConfigError
from swarmbo.settings import Settings, resolve

Slot = Literal["belief", "acquisition", "coordination", "transport"]
Team = Literal["field", "function"]

SLOTS: tuple[Slot, ...] = ("belief", "acquisition", "coordination", "transport")
FIELD: Team = "field"
FUNCTION: Team = "function"
TEAMS: Mapping[Team, str] = {
    FIELD: "agents that each measure a place of their own in one field",
    FUNCTION: "agents that set the variables of one function together",
}


class _Kind(NamedTuple):
    settings: type[Settings]
    teams: tuple[Team, ...]


Class = TypeVar("Class", bound=type[Settings])

_KINDS: dict[Slot, dict[str, _Kind]] = {slot: {} for slot in SLOTS}


def kind(slot: Slot, *teams: Team) -> Callable[[Class], Class]:
    """Make the class below known by its tag.

    Args:
        slot: The table of a scenario, and the argument of a team, that may name it.
        teams: The kinds of team that it suits, at least one.

    Raises:
        ValueError: If the class has no tag, or another class is known by it.
    """

    def register(settings: Class) -> Class:
        name = name_of(settings)
        known = _KINDS[slot].setdefault(name, _Kind(settings, teams))
        if not name or known.settings.__qualname__ != settings.__qualname__:
            raise ValueError(f"{settings.__name__}: wanted a tag of its own, not {name!r}")
        return settings

    return register


def name_of(settings: Settings | type[Settings]) -> str:
    """The name that a kind is known by."""
    return str(settings.__struct_config__.tag or "")


def summary_of(settings: type[Settings]) -> str:
    """What a kind says of itself: the first line of its docstring, as plain text."""
    return (settings.__doc__ or "").strip().partition("\n")[0].replace("``", "")


def kinds(slot: Slot, team: Team | None = None) -> dict[str, type[Settings]]:
    """The kinds of a slot by name, sorted.

    Args:
        slot: A table of a scenario.
        team: Only those that suit this kind of team; by default all.

    Example:
        >>> list(kinds("belief", FIELD))
        ['exact', 'fused']
    """
    _load()
    known = sorted(_KINDS[slot].items())
    return {name: entry.settings for name, entry in known if team is None or team in entry.teams}


def is_kind(thing: object) -> bool:
    """Whether an object is the settings of a kind, not of a class that is derived from one."""
    return any(type(thing) in kinds(slot).values() for slot in SLOTS)


@functools.cache
def schema(slot: Slot) -> Any:
    """What a table of a scenario is converted to: the union of the kinds of its slot."""
    return Union[tuple(kinds(slot).values())]  # noqa: UP007  of classes that are only known now


def settings_of(slot: Slot, given: object, at: str, team: Team | None = None) -> Any:
    """The settings of a kind, from what a user gave for them.

    Args:
        slot: What is wanted.
        given: A Settings instance, a kind's name, or a table.
        at: Path for messages.
        team: What it must suit; by default any.

    Raises:
        ConfigError: If there is no such kind, it does not suit the team, or a setting of it is refused.

    Example:
        >>> settings_of("coordination", "max-sum", "$.coordination", FIELD).rounds
        50
    """
    settings: Settings = resolve(given, schema(slot), at)
    fitting = kinds(slot, team)
    if not isinstance(settings, tuple(fitting.values())):
        names = ", ".join(map(repr, fitting))
        wanted = f"one of {names}" if len(fitting) > 1 else names
        got = f"got {name_of(settings)!r}, which is not for {TEAMS[team] if team else 'any team'}"
        raise ConfigError(f"{got}; wanted {wanted}", at=f"{at}.kind")
    return settings


@functools.cache
def _load() -> None:
    """Import every module that public names come from, so that the decorators in them have run."""
    for module in sorted(set(swarmbo.homes().values())):
        import_module(module)
