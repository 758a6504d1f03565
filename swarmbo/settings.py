"""Settings: frozen objects that are also the schema of a scenario file.

A table of a scenario is the settings object that it names. ``convert`` turns plain data into settings; its one-line
errors have the path, the value and the wanted range.
"""

import difflib
import functools
import math
import numbers
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from swarmbo.boundary.values import exact, plain, short
from swarmbo.errors import ConfigError


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all settings. Unknown keys, and numbers outside the range of their field, are refused.

    A range is declared once, as ``msgspec.Meta`` in the annotation (see ``within``), and holds for tables of a scenario
    and for settings made in Python. A float that is not finite is in no range. A subclass's ``__post_init__``, for
    conditions on several fields (``require``), calls the base's first.

    Example:
        >>> class Kettle(Settings, frozen=True):
        ...     litres: Positive = 1.0
        ...     cups: Annotated[int, within(1, 12)] = 4
        >>> convert({"cups": 13}, Kettle)
        Traceback (most recent call last):
            ...
        swarmbo.errors.ConfigError: $.cups: got 13; wanted an integer from 1 to 12
    """

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if type(value := getattr(self, field)) not in (int, float):
                msgspec.structs.force_setattr(self, field, exact(value))
        for field, kind in _settings_fields(type(self)).items():
            value = getattr(self, field)
            if _is_unconverted(value, kind):
                msgspec.structs.force_setattr(self, field, convert(value, kind, field))
        for field, number in _number_fields(type(self)).items():
            if not number.accepts(value := getattr(self, field)):
                raise ConfigError(f"got {short(value)}; wanted {number.wanted}", at=field)
        for field, kind in _plain_fields(type(self)).items():
            msgspec.structs.force_setattr(self, field, convert(plain(getattr(self, field)), kind, field))


def _is_unconverted(value: object, kind: Any) -> bool:
    """True if the value of a field that holds settings is plain data, or not of the field's form."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    is_table = isinstance(value, Mapping) and not any(isinstance(part, Settings) for part in parts)
    is_single = isinstance(value, Settings) and get_origin(kind) in (tuple, dict)  # where several are wanted
    is_plain = isinstance(value, str | int | float) or any(isinstance(part, _PLAIN) for part in parts)
    is_no_list = get_origin(kind) is tuple and not isinstance(value, list | tuple)
    return is_table or is_single or is_plain or is_no_list


def within(
    lowest: float | None = None, highest: float | None = None, noun: str | None = None, unit: str | None = None
) -> msgspec.Meta:
    """Range of a number, ends included, for the annotation of a field.

    ``noun`` describes it for messages, such as ``"a speed"``; ``unit`` is its unit. None leaves an end open.
    """
    return msgspec.Meta(ge=lowest, le=highest, title=noun, extra=None if unit is None else {"unit": unit})


Positive = Annotated[float, msgspec.Meta(gt=0)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]
ProperFraction = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Probability = Annotated[float, within(0, 1, "a probability")]
NoiseStd = Annotated[float, within(0, 1e12, "a standard deviation")]
Distance = Annotated[float, msgspec.Meta(gt=0, title="a distance", extra={"unit": "m"})]
Count = Annotated[int, msgspec.Meta(ge=1)]
AtOnce = Annotated[int, within(1, 2**20)]  # points that are held in memory together
Whole = Annotated[int, msgspec.Meta(ge=0)]
Even = Annotated[int, msgspec.Meta(ge=2, multiple_of=2, title="an even number")]


T = TypeVar("T")
_PLAIN = (Mapping, str, int, float, list, tuple)
_RENAMED = {"beta": "exploration"}  # name of a key in papers, and its name here


def require(settings: object, field: str, holds: Callable[[Any], bool], wanted: str) -> None:
    """Refuse a field for a condition other than a range; call it from ``__post_init__``.

    ``wanted`` has the condition in words: ``"a number > 0"``. A float that is not finite never satisfies it.
    """
    value = getattr(settings, field)
    finite = not isinstance(value, float) or math.isfinite(value)
    if not (finite and holds(value)):
        raise ConfigError(f"got {short(value)}; wanted {wanted}", at=field)


def convert(data: object, kind: type[T] | Any, at: str = "$") -> T:
    """Turn plain data (from TOML, JSON or keyword arguments) into settings of a kind.

    Args:
        data: Mappings, lists, strings and numbers.
        kind: A Settings class, or a union of tagged classes.
        at: Path of ``data`` in the user's input, for messages.

    Raises:
        ConfigError: With the path of the wrong key, its value and the wanted range.
    """
    try:
        return msgspec.convert(exact(data), kind)
    except msgspec.ValidationError as error:
        raise _explain(error, data, kind, at) from None


_RANGE_TEXTS: dict[tuple[str, ...], str] = {
    (): "",
    ("ge",): ">= {}",
    ("gt",): "> {}",
    ("le",): "<= {}",
    ("lt",): "< {}",
    ("ge", "le"): "from {} to {}",
    ("gt", "lt"): "between {} and {}",
    ("ge", "lt"): "in [{}, {})",
    ("gt", "le"): "in ({}, {}]",
}
_HUGE = 2**1023  # integers of about this size or more are too large for a float


class _NumberField:
    """Accepted values of a field of type ``int`` or ``float``, perhaps in a range, or ``None``, or a list of these."""

    def __init__(self, kind: Any) -> None:
        parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        lists = [part for part in parts if get_origin(part) is list]
        numeric = [part for part in parts if part is not type(None) and part not in lists] or lists
        base, *metas = get_args(numeric[0]) if get_origin(numeric[0]) is Annotated else (numeric[0],)
        self.may_be_list = bool(lists)
        self.is_number = len(numeric) == 1 and base in (int, float) and lists in ([], [list[numeric[0]]])
        self.is_optional, self.is_whole = type(None) in parts, base is int
        self.meta = next((meta for meta in metas if isinstance(meta, msgspec.Meta)), msgspec.Meta())
        ends = {name: getattr(self.meta, name) for name in ("ge", "gt", "le", "lt")}
        self.ends: dict[str, float] = {name: end for name, end in ends.items() if end is not None}
        self._conditions = [(getattr(operator, name), end) for name, end in self.ends.items()]

    def accepts(self, value: Any) -> bool:
        if value is None:
            return self.is_optional
        if isinstance(value, list) and self.may_be_list:
            parts = cast(list[Any], value)
            return all(part is not None and not isinstance(part, list) and self.accepts(part) for part in parts)
        if type(value) is not (int if self.is_whole else float):  # a quick answer for the usual types
            wanted = numbers.Integral if self.is_whole else numbers.Real
            if isinstance(value, bool) or not isinstance(value, wanted):
                return False
        if not (abs(value) < _HUGE if isinstance(value, int) else math.isfinite(value)):
            return False
        is_multiple = self.meta.multiple_of is None or value % self.meta.multiple_of == 0
        return is_multiple and all(holds(value, end) for holds, end in self._conditions)

    @property
    def wanted(self) -> str:
        """Description of the range: ``"a number > 0"``."""
        plain = "an integer" if self.is_whole else "a number" if self.ends else "a finite number"
        span = _RANGE_TEXTS[tuple(self.ends)].format(*map(_end_text, self.ends.values()))
        words = [self.meta.title or plain, span, (self.meta.extra or {}).get("unit")]
        others = (", or a list of these" if self.may_be_list else "") + (", or nothing" if self.is_optional else "")
        return " ".join(filter(None, words)) + others


def _end_text(end: float) -> str:
    """End of a range as text: 1e-6 and 1e12, not 1e-06 and 1e+12."""
    return str(end) if isinstance(end, int) else re.sub(r"e\+?(-?)0*", r"e\1", f"{end:g}")


@functools.cache
def _number_fields(kind: type[msgspec.Struct]) -> dict[str, _NumberField]:
    found = {field.name: _NumberField(field.type) for field in msgspec.structs.fields(kind)}
    return {name: number for name, number in found.items() if number.is_number}


@functools.cache
def _settings_fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Types of the fields of a struct that hold other settings, which may be given as tables."""

    def holds_settings(part: Any) -> bool:
        return (isinstance(part, type) and issubclass(part, Settings)) or any(map(holds_settings, get_args(part)))

    return {field.name: field.type for field in msgspec.structs.fields(kind) if holds_settings(field.type)}


@functools.cache
def _plain_fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Types of the fields of a struct that hold one of a few words, true or false, or lists or tables of plain data."""

    def fits(allowed: tuple[Any, ...], part: Any) -> bool:
        origin, parts = get_origin(part), get_args(part)
        if origin in (tuple, list, dict):
            allowed = (*allowed, int, float, str, Ellipsis)
        if origin is Literal:
            return int not in allowed
        inner = parts[:1] if origin is Annotated else parts
        return part in allowed or (bool(inner) and all(fits(allowed, each) for each in inner))

    return {field.name: field.type for field in msgspec.structs.fields(kind) if fits((bool, type(None)), field.type)}


def _explain(error: msgspec.ValidationError, data: object, kind: Any, at: str) -> ConfigError:
    """ConfigError for an error of msgspec, with the path, the value and what is wanted."""
    pattern = r"\A(.*?)(?: - at (`key` in )?`\$([^`]*)`)?\Z"
    ((text, of_key, path),) = re.findall(pattern, str(error), flags=re.DOTALL)
    place, in_table, _ = path.partition("[...]")  # [...] is an entry of a table, whose key msgspec leaves out
    (field, got), at = _field_at(kind, data, place), at + place
    if (of_key or in_table) and isinstance(got, Mapping):
        kinds = next(get_args(part) for part in (field, *get_args(field)) if get_origin(part) in (dict, Mapping))
        for key, value in cast(Mapping[Any, Any], got).items():
            part, inner, where = (key, kinds[0], at) if of_key else (value, kinds[1], f"{at}.{key}")
            try:
                msgspec.convert(exact(part), inner)
            except msgspec.ValidationError as wrong:
                return _explain(wrong, part, inner, where)
    if isinstance(cause := error.__cause__, ConfigError):
        return ConfigError(cause.message, at=f"{at}.{cause.at.removeprefix('$.')}")
    if (match := re.fullmatch(r"Object contains unknown field `(.*)`", text, flags=re.DOTALL)) is not None:
        table, name = _table_type(field, got), match.group(1)
        others = [part.__struct_config__.tag for part in _struct_members(field) if name in part.__struct_fields__]
        tag = None if table is None else table.__struct_config__.tag
        return ConfigError(unknown_key_message(name, _known_fields(field, got), tag, others), at=at)
    if (match := re.fullmatch(r"Object missing required field `(.*)`", text)) is not None:
        choices = " or ".join(map(repr, _choices(kind, data, f"{place}.{match.group(1)}")))
        wanted = f"wanted {choices}" if choices else f"known keys: {', '.join(_known_fields(field, got))}"
        return ConfigError(f"got no {match.group(1)!r}; {wanted}", at=at)
    if choices := _choices(kind, data, place):
        hint = name_hint(str(got), choices)
        return ConfigError(f"got {short(got)}; wanted one of {', '.join(map(repr, choices))}{hint}", at=at)
    number = _NumberField(field)
    wanted = f"wanted {number.wanted}" if number.is_number else _plain_message(text)
    return ConfigError(f"got {short(got)}; {wanted}", at=at)


def unknown_key_message(key: str, known: Sequence[str], kind: object = None, others: Sequence[object] = ()) -> str:
    """Message about an unknown key: a similar key, or the keys of the table (of a kind) and other kinds with it."""
    if near := name_hint(key, known):
        return f"unknown key {short(key)}{near}"
    of_kind = f" of kind {kind!r}" if kind else ""
    keys = f"; known keys{of_kind}: {', '.join(known) or 'none'}" if known or of_kind else ""
    has_it = f"; kinds with this key: {', '.join(map(repr, others))}" if others else ""
    return f"unknown key {short(key)}{keys}{has_it}"


def name_hint(name: str, known: Sequence[str]) -> str:
    """Hint of an error for an unknown name: a similar known name; empty if there is none."""
    near = [new for new in known if new == _RENAMED.get(name)] or difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


_TYPE_TEXTS = {"object": "a table", "array": "a list", "str": "text", "int": "an integer", "float": "a number"}
_TYPE_TEXTS |= {"bool": "true or false", "null": "nothing"}


def _plain_message(text: str) -> str:
    """A message of msgspec without the value; messages about a type are put in the words of other errors."""
    if (match := re.fullmatch(r"Expected `([^`]*)`(.*?)(, got [^,]*)?", text, flags=re.DOTALL)) is not None:
        types = (_TYPE_TEXTS.get(word, word) for word in match.group(1).split(" | "))
        return f"wanted {' or '.join(types)}{match.group(2)}"
    text = text.replace("`", "'").strip()
    return " ".join((text[0].lower() + text[1:]).split()) if text else "not accepted"


def _field_at(kind: Any, data: Any, path: str) -> tuple[Any, Any]:
    """Type (None if unknown) and value at a path: walks the schema along it, choosing union members by tag."""
    for step, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", path):
        if index:
            lists = [get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) in (list, tuple)]
            at = int(index) if lists and len(lists[0]) > int(index) and Ellipsis not in lists[0] else 0
            kind = lists[0][at] if lists else None
            data = data[int(index)] if isinstance(data, list | tuple) and int(index) < len(data) else data
        else:
            table = _table_type(kind, data)
            fields = () if table is None else msgspec.structs.fields(table)
            kind = next((field.type for field in fields if field.encode_name == step), None)
            data = data.get(step) if isinstance(data, Mapping) else data
    return kind, data


def _struct_members(kind: Any) -> list[type[msgspec.Struct]]:
    parts = getattr(kind, "__args__", (kind,))
    return [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]


def _table_type(kind: Any, data: object) -> type[msgspec.Struct] | None:
    structs = _struct_members(kind)
    if isinstance(data, Mapping) and len(structs) > 1:
        structs = [part for part in structs if data.get(part.__struct_config__.tag_field) == part.__struct_config__.tag]
    return structs[0] if len(structs) == 1 else None


def _known_fields(kind: Any, data: object) -> list[str]:
    table = _table_type(kind, data)
    if table is None:
        return []
    tag = table.__struct_config__.tag_field
    return [*([tag] if tag else []), *table.__struct_fields__]


def _choices(kind: Any, data: object, path: str) -> list[str]:
    """Words accepted at a path, if it takes one of a few: a tag, or a literal."""
    parent, _, key = path.rpartition(".")
    members = _struct_members(_field_at(kind, data, parent)[0]) if key else []
    if tags := [part.__struct_config__.tag for part in members if part.__struct_config__.tag_field == key]:
        return [tag for tag in tags if isinstance(tag, str)]
    found = _field_at(kind, data, path)[0]
    parts = [found, *getattr(found, "__args__", ())]
    return [word for part in parts if get_origin(part) is Literal for word in get_args(part) if isinstance(word, str)]


def resolve(given: object, kinds: type[T] | Any, at: str) -> T:
    """Settings from a user's argument: the settings object, the name of a kind, or a table with ``kind``."""
    if isinstance(given, str):
        given = {"kind": given}
    if isinstance(given, Settings):
        members = getattr(kinds, "__args__", (kinds,))
        if not isinstance(given, members):
            names = ", ".join(member.__name__ for member in members)
            raise ConfigError(f"got {type(given).__name__} settings; wanted {names}", at=at)
        return given  # pyright: ignore[reportReturnType]
    return convert(given, kinds, at)
