"""What a scenario may ask for at most: what lies beyond is a slip of the pen, or more than any machine can do.

Settings are free of such limits where they are used in scripts. Here they keep a file that somebody mistyped, or that a
program wrote, from running for years, or for want of memory into a traceback.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from swarmbo.errors import ConfigError
from swarmbo.registry import SLOTS

DEEPEST = 32
LARGEST_COUNT = 100_000
LARGEST_TABLE = 2**31  # entries
LARGEST_SIZE, SMALLEST_SIZE = 1e12, 1e-12


def require_within_reason(scenario: msgspec.Struct) -> None:
    """Refuse numbers that no run can work with in the tables of a scenario that make its team.

    Raises:
        ConfigError: If a count is above 100 000 (2^31 for what counts entries of tables), or another number is neither
            zero nor from 1e-12 to 1e12 in size.
    """
    for table in SLOTS:
        for path, key, value in _numbers(msgspec.to_builtins(getattr(scenario, table)), f"$.{table}"):
            _require(path, key, value)


def require_shallow(data: Mapping[str, Any], at: str) -> None:
    """Refuse tables within tables beyond any sense, which would exhaust the stack of whatever walks through them.

    Args:
        data: As read from a file.
        at: Where from, for the message.

    Raises:
        ConfigError: If tables and lists are nested more than 32 deep.
    """
    level: list[Any] = [data]
    for _ in range(DEEPEST):
        level = [part for value in level for part in _parts(value)]
    if level:
        raise ConfigError(f"is nested more than {DEEPEST} deep; wanted plain tables", at=at)


def _parts(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [part for part in parts if isinstance(part, Mapping | list | tuple)]


def _numbers(value: Any, path: str, key: str = "") -> list[tuple[str, str, float]]:
    if isinstance(value, Mapping):
        return [found for name, part in value.items() for found in _numbers(part, f"{path}.{name}", name)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [found for index, part in enumerate(value) for found in _numbers(part, f"{path}[{index}]", key)]
    return [(path, key, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _require(path: str, key: str, value: float) -> None:
    if isinstance(value, int):
        most = LARGEST_TABLE if key.endswith(("entries", "budget")) else LARGEST_COUNT
        if abs(value) > most and not key.endswith("seed"):
            raise ConfigError(f"got {value}; wanted an integer up to {most}", at=path)
    elif value != 0.0 and not SMALLEST_SIZE <= abs(value) <= LARGEST_SIZE:
        raise ConfigError(
            f"got {value}; wanted zero or a number from {SMALLEST_SIZE:g} to {LARGEST_SIZE:g} in size", at=path
        )
