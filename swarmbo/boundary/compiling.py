"""Compiled code that is kept on disk for the next process. Import it late: numba is slow to load.

Numba keeps what it compiled, and sees when the file of a function changes, but not when another one does whose
functions or constants were taken in. Here what is kept goes by all of them.
"""

import os
import re
import stat
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, typeinfer

from swarmbo.errors import CompilingWarning


def compiled(signature: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function as ``numba.njit`` does, and keep what becomes of it on disk.

    The folder is the first of these that can be written to: ``NUMBA_CACHE_DIR``, that of the source, the user's cache,
    one of the user's own among temporary files. Without any it is compiled anew in each process.

    Args:
        signature: What it is compiled for at once; None: when it is called.
        **options: Of ``numba.njit``.

    Warns:
        CompilingWarning: Once, where the first three folders cannot be written to.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        made: Any = numba.njit(**options)(function)
        if made is function:  # where the environment says that nothing is to be compiled
            return made
        try:
            made._cache = _Kept(function)
        except RuntimeError:  # there is no folder for it
            _warn("in memory, and again in each process")
        if signature is not None:
            with typeinfer.register_dispatcher(made):
                made.compile(signature)
            made.disable_compile()
        return made

    return decorated


@cache
def stamp(path: str) -> bytes:
    """The digest of a source file, and of all of its package that its compiled code may take in.

    These are the files that it imports names from, those that they do if they compile as well, and so on.

    Args:
        path: Of the file.
    """
    package = Path(path).parent
    while (package.parent / "__init__.py").is_file():
        package = package.parent
    imported = re.compile(rf"^ *from ({re.escape(package.name)}[\w.]*) import", re.MULTILINE)
    texts, left = dict[Path, str](), [Path(path)]
    while left:
        if (file := left.pop()) not in texts:
            texts[file] = file.read_text(encoding="utf-8")
            if "numba" in texts[file] or "compiling" in texts[file]:
                modules = [package.parent.joinpath(*name.split(".")) for name in imported.findall(texts[file])]
                files = [module.with_suffix(".py") for module in modules]
                left += [f if f.is_file() else m / "__init__.py" for f, m in zip(files, modules, strict=True)]
    return sha256(repr([texts[file] for file in sorted(texts)]).encode()).digest()


class _Stamped:
    """Stamp by which compiled code is kept."""

    _py_file: str

    def get_source_stamp(self) -> bytes:
        return stamp(self._py_file)


class _Given(_Stamped, caching.UserProvidedCacheLocator):
    pass


class _BesideSource(_Stamped, caching.InTreeCacheLocator):
    pass


class _OfUser(_Stamped, caching.UserWideCacheLocator):
    pass


class _Temporary(_Stamped, caching.InTreeCacheLocator):
    """A folder that is the user's own: what lies in it is run, and others may write among temporary files."""

    def get_cache_path(self) -> str:
        return os.path.join(_temporary_folder(), self.get_suitable_cache_subpath(self._py_file))

    def ensure_cache_path(self) -> None:
        folder = _temporary_folder()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        there = os.lstat(folder)
        if not stat.S_ISDIR(there.st_mode) or (
            os.name != "nt" and (there.st_uid, there.st_mode & 0o77) != (_user(), 0)
        ):
            raise PermissionError(f"{folder}: belongs to another user")
        super().ensure_cache_path()
        _warn(f"in {folder}")


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Given, _BesideSource, _OfUser, _Temporary]  # noqa: RUF012


class _Kept(caching.FunctionCache):
    _impl_class = _Implementation


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _temporary_folder() -> str:
    return os.path.join(tempfile.gettempdir(), f"swarmbo-compiled-{_user()}")


@cache
def _warn(where: str) -> None:
    warnings.warn(
        f"no folder for compiled code can be written to: it is kept {where}; set NUMBA_CACHE_DIR to one that can",
        CompilingWarning,
        stacklevel=2,
    )
