"""Packages that only peers need: imported when one is used, and missed in one clear line."""

import importlib
from typing import Any

from swarmbo.errors import ConfigError


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
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).split(".")[0]
        raise ConfigError(
            f"{kind!r} needs the package {missing!r}, which is not installed; pip install swarmbo[peers]",
            at="$.coordination.kind",
        ) from None
