"""Packages of extras, imported on use, with a clear one-line error if missing."""

import importlib
from typing import Any

from swarmbo.errors import MissingPackageError


def needed(module: str, extra: str, what: str, at: str = "$") -> Any:
    """Import a module of an extra, untyped, as type checks must not depend on installed packages.

    ``what`` names the feature that needs it, and ``extra`` the argument of ``pip install swarmbo[extra]``.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).split(".")[0]
        raise MissingPackageError(
            f"{what} needs the package {missing!r}, which is not installed; pip install swarmbo[{extra}]", at=at
        ) from None
