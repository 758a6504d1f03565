"""Packages that only peers need: imported when one is used, and missed in one clear line."""

from typing import Any

from swarmbo.boundary.extras import needed


def peer_package(name: str, kind: str) -> Any:
    """Import a module of the extra ``peers``.

    Args:
        name: Of the module.
        kind: The kind of coordination that needs it.

    Returns:
        The module, untyped: type checks must not depend on what is installed.

    Raises:
        ConfigError: If it, or a package that it needs, is not installed.
    """
    return needed(name, "peers", repr(kind), at="$.coordination.kind")
