"""Settings on the command line: ``table.key=value``, and lists of alternatives for sweeps."""

import tomllib
from collections.abc import Sequence
from typing import Any

from swarmbo.errors import ConfigError
from swarmbo.registry import SLOTS
from swarmbo.runs.limits import DEEPEST
from swarmbo.runs.world import default_kinds


def apply_overrides(data: dict[str, Any], overrides: Sequence[str], trust: bool = False) -> dict[str, Any]:
    """Replace settings of a scenario.

    An override of a table's ``kind`` that changes it (from the world's default, where the table states none) starts the
    table afresh: what the file said of the other kind does not carry over. Such overrides come first, so that ``kind``
    and settings of the new kind may be given in any order.

    Args:
        data: The tables of a scenario; left as they are.
        overrides: ``table.key=value``. The value is TOML; what is not TOML is taken as a string.
        trust: Whether a world of a user's own may be loaded, to see which kinds suit it.

    Returns:
        New tables.

    Raises:
        ConfigError: If an override is malformed, or runs through something that is not a table.

    Example:
        >>> apply_overrides({"rounds": 25}, ["rounds=5", "coordination.kind=max-sum"])
        {'rounds': 5, 'coordination': {'kind': 'max-sum'}}
    """
    parsed = [parse_override(text) for text in overrides]
    out = _copy(data)
    for path, value in sorted(parsed, key=lambda item: item[0][-1] != "kind"):
        table = out
        for depth, key in enumerate(path[:-1]):
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                at = ".".join(("$", *path[: depth + 1]))
                raise ConfigError(f"got {table!r}; wanted a table, for the override of {'.'.join(path)}", at=at)
        if path[-1] == "kind":
            before = table["kind"] if "kind" in table else _default_kind(path[0], data, parsed, trust)
            if before != value:
                table.clear()
        table[path[-1]] = value
    return out


def _default_kind(
    table: str, data: dict[str, Any], parsed: list[tuple[tuple[str, ...], Any]], trust: bool
) -> str | None:
    """The kind of a table that states none, in the world that the scenario will have."""
    environment = data.get("environment")
    stated = environment.get("id") if isinstance(environment, dict) else None
    overridden = [value for path, value in parsed if path == ("environment", "id")]
    return default_kinds(overridden[-1] if overridden else stated, trust).get(table)


def parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    """The key, as the tables to go through, and the value of one override.

    Raises:
        ConfigError: If there is no ``=``, a part of the key is empty, or a value that starts as TOML is not.
    """
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError(f"got {text!r}; wanted table.key=value", at="--set")
    if path[-1] in SLOTS and len(path) == 1 and value.strip()[:1] != "{":
        path += ("kind",)  # as Python takes it
    if len(path) > DEEPEST:
        raise ConfigError(f"got a key of {len(path)} parts; wanted table.key=value", at="--set")
    return path, _parse_value(".".join(path), value.strip())


def split_alternatives(text: str) -> tuple[str, list[str]]:
    """The key and the alternatives of ``table.key=a,b``; commas inside quotes, brackets or braces do not separate.

    Example:
        >>> split_alternatives("acquisition.markov_order=1,2")
        ('acquisition.markov_order', ['1', '2'])
        >>> split_alternatives("environment.start=[[0, 0], [1, 1]]")
        ('environment.start', ['[[0, 0], [1, 1]]'])
    """
    path, _ = parse_override(text.partition("=")[0] + "=" + "0" if "=" in text else text)
    alternatives, depth, quote, part = list[str](), 0, "", ""
    for character in text.partition("=")[2]:
        if character == "," and depth == 0 and not quote:
            alternatives.append(part.strip())
            part = ""
            continue
        part += character
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
    alternatives.append(part.strip())
    if not all(alternatives):
        raise ConfigError(f"got {text!r}; wanted alternatives separated by single commas", at="--set")
    return ".".join(path), alternatives


def _parse_value(key: str, text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as error:
        if text[:1] in {'"', "'", "[", "{"}:
            raise ConfigError(f"got {text}, which is not TOML: {error}", at=f"$.{key}") from error
        return text
    value = parsed["value"]
    is_plain = len(parsed) == 1 and isinstance(value, bool | int | float | str | list | dict)
    return value if is_plain else text


def _copy(value: Any) -> Any:
    return {key: _copy(part) for key, part in value.items()} if isinstance(value, dict) else value
