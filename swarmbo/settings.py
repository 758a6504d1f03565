"""Settings: frozen, and at the same time the schema of a scenario file.

A table of a scenario *is* the settings object it names. ``convert`` turns plain data into one and says in one line
where a value is wrong, what was got and what is wanted.
"""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from swarmbo.errors import ConfigError


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all settings. Unknown keys are refused."""


class _FieldError(ValueError):
    """One field holds a value of the right type but outside its range."""

    def __init__(self, field: str, got: object, wanted: str) -> None:
        super().__init__(f"{field}: got {_short(got)}; wanted {wanted}")
        self.field, self.got, self.wanted = field, got, wanted


T = TypeVar("T")


def require(settings: object, field: str, holds: Callable[[Any], bool], wanted: str) -> None:
    """Refuse a field whose value is out of range; call it from ``__post_init__``.

    Args:
        settings: The object under construction.
        field: Name of the field.
        holds: The claim its value must satisfy; a float that is not finite never does.
        wanted: The claim in words: ``"a number > 0"``.
    """
    value = getattr(settings, field)
    finite = not isinstance(value, float) or math.isfinite(value)
    if not (finite and holds(value)):
        raise _FieldError(field, value, wanted)


def convert(data: object, kind: type[T] | Any, at: str = "$") -> T:
    """Turn plain data (from TOML, JSON or keyword arguments) into settings of a kind.

    Args:
        data: Mappings, lists, strings and numbers.
        kind: A Settings class, or a union of tagged ones.
        at: Path of ``data`` in what the user wrote, for messages.

    Returns:
        The settings, checked.

    Raises:
        ConfigError: With the path of the offending key, the value got and what is wanted.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _explain(error, data, kind, at) from None


def _explain(error: msgspec.ValidationError, data: object, kind: Any, at: str) -> ConfigError:
    text, path = str(error), "$"
    if (match := re.search(r" - at `(?:key in )?(\$[^`]*)`$", text)) is not None:
        text, path = text[: match.start()], match.group(1)
    got = _value_at(data, path)
    if isinstance(cause := error.__cause__, _FieldError):
        return ConfigError(f"got {_short(cause.got)}; wanted {cause.wanted}", at=at + path[1:] + "." + cause.field)
    if (match := re.fullmatch(r"Object contains unknown field `(.*)`", text, flags=re.DOTALL)) is not None:
        known = _known_fields(kind, got)
        near = difflib.get_close_matches(match.group(1), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else (f"; known keys: {', '.join(known)}" if known else "")
        return ConfigError(f"unknown key {_short(match.group(1))}{hint}", at=at + path[1:])
    if text.startswith("Object missing required field") or path == "$...":
        return ConfigError(_plain(text), at=at + path[1:])
    return ConfigError(f"got {_short(got)}; {_plain(text)}", at=at + path[1:])


def _plain(text: str) -> str:
    text = text.replace("`", "'").strip()
    return " ".join((text[0].lower() + text[1:]).split()) if text else "not accepted"


def _value_at(data: object, path: str) -> object:
    value: Any = data
    for step in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", path):
        key, index = step
        if key and isinstance(value, Mapping):
            value = value.get(key)
        elif index and isinstance(value, list | tuple) and int(index) < len(value):
            value = value[int(index)]
    return value


def _known_fields(kind: Any, got: object) -> list[str]:
    """The keys that the innermost Settings class on the way to the bad table accepts."""
    found: list[type[msgspec.Struct]] = []

    def collect(part: Any) -> None:
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            found.append(part)
            for field in msgspec.structs.fields(part):
                collect(field.type)
        for argument in getattr(part, "__args__", ()):
            collect(argument)

    collect(kind)
    keys = {key for key in got if isinstance(key, str)} if isinstance(got, Mapping) else set[str]()
    best = max(found, key=lambda struct: len(keys & set(struct.__struct_fields__)), default=None)
    return [] if best is None else list(best.__struct_fields__)


def _short(value: object, limit: int = 60) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
