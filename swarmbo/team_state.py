"""Which saved states a team can go on from: those of this version that a team like it wrote."""

from collections.abc import Iterable, Mapping
from typing import Any

from swarmbo.errors import StateVersionError

STATE_VERSION = 4  # 4: one logbook for teams of either kind


def require_version(plain: Mapping[str, Any]) -> None:
    """Refuse the state of another version.

    Args:
        plain: The plain data of a saved state.

    Raises:
        StateVersionError: If another version of swarmbo wrote it.
    """
    if plain.get("version") != STATE_VERSION:
        raise StateVersionError(f"got team state version {plain.get('version')}; wanted {STATE_VERSION}")


def require_same(plain: Mapping[str, Any], own: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Refuse the state of a team that is another in something that no state can change.

    Args:
        plain: A table of the saved state.
        own: The same table of the team that is to go on from it.
        keys: What must be equal.

    Raises:
        StateVersionError: If something is not.

    Example:
        >>> require_same({"agents": ["a"], "seed": 0}, {"agents": ["a"], "seed": 1}, ["agents"])
    """
    for key in keys:
        if plain.get(key) != own[key]:
            raise StateVersionError(f"got the state of a team with {key} {plain.get(key)}; wanted {own[key]}")
