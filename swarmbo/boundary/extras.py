"""Packages of extras, imported on use, with a clear one-line error if missing."""

import importlib
from typing import Any

from swarmbo.errors import MissingPackageError


def needed(module: str, extra: str, what: str, at: str = "$") -> Any:
    """Import a module of an extra, untyped, as type checks must not depend on installed packages.

    ``what`` names the feature that needs it, and ``extra`` the argument of ``pip install swarmbo[extra]``.

    Raises:
        MissingPackageError: If it, or a package that it needs, is not installed.

    Example:
        >>> try:
        ...     needed("no_such_package.part", "pandas", "to_dataframe()")
        ... except MissingPackageError as error:
        ...     print(error)
        to_dataframe() needs the package 'no_such_package', which is not installed; pip install swarmbo[pandas]
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).split(".")[0]
        raise MissingPackageError(
            f"{what} needs the package {missing!r}, which is not installed; pip install swarmbo[{extra}]", at=at
        ) from None
