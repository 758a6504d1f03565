"""Compiled code cached on disk for the next process. Import it late: numba is slow to load.

Numba's own cache notices changes of a function's file only, not of files with inlined functions or constants. This
cache notices changes of all these files.
"""

import inspect
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Callable
from functools import cache, partial, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, typeinfer, types
from numba.core.caching import InTreeCacheLocator, UserProvidedCacheLocator, UserWideCacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from swarmbo.errors import CompilingWarning

LANES: Any = {"contract", "reassoc", "nsz"}  # for ``fastmath``: sums may be reordered into SIMD lanes
_njit: Any = numba.njit
# reference counts of arrays and checks of divisors are left out: they double the time to compile
_LEAN: Any = {"nogil": True, "_nrt": False, "error_model": "numpy"}


def read_only(n_dims: int, of: Any = types.float64) -> Any:
    """Numba type of read-only arrays in C order; it accepts writable arrays, too."""
    return types.Array(of, n_dims, "C", readonly=True)


def compiled(signature: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile as ``numba.njit`` does, with a cache on disk.

    A function with a signature is compiled for that signature only, at its first call, since many runs never call it.
    Like ``inner`` functions it may not create arrays; it releases Python's global lock.

    The cache is in the first writable folder of: ``NUMBA_CACHE_DIR``, the source's folder, the user's cache, a private
    temporary folder (with a warning). If none is writable, each process compiles again.
    """

    def decorated(function: Callable[..., Any]) -> Any:
        lean = {} if signature is None else _LEAN
        dispatcher: Any = _njit(**{"no_cfunc_wrapper": True, **lean, **options})(function)
        if dispatcher is function:  # an environment variable disables compilation
            return dispatcher
        try:
            dispatcher._cache = _DiskCache(function)
        except RuntimeError:  # no folder is writable
            _warn("in memory, and compiled again in each process")
        if signature is not None:
            _defer(dispatcher, signature)
        return dispatcher

    return decorated


def inner(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile as ``numba.njit`` does, for calls from compiled code only; the function may not create arrays."""
    return _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_LEAN, **options)


def instructions(result: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic for compiled code: LLVM instructions that return a ``result`` (a numba type).

    The decorated function emits the instructions. It receives an LLVM builder and the arguments' values, of any types.
    """

    def decorated(write: Callable[..., Any]) -> Any:
        @wraps(write)
        def typed(_typing: Any, *arguments: Any) -> Any:
            def emit(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
                found = write(builder, *values)
                return context.get_dummy_value() if found is None else found

            return result(*arguments), emit

        return intrinsic(typed)

    return decorated


def _defer(dispatcher: Any, signature: Any) -> None:
    """Replace a dispatcher's two entry points by wrappers that compile on the first call, then remove themselves."""

    def compile_first(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with global_compiler_lock, typeinfer.register_dispatcher(dispatcher):
                if not dispatcher.overloads:  # else another thread has compiled it
                    dispatcher.compile(signature)
                    dispatcher.disable_compile()
                for method in ("_compile_for_args", "get_call_template"):
                    vars(dispatcher).pop(method, None)  # last: while there is no code, threads must find this
            # numba calls what ``_compile_for_args`` returns with the arguments
            return dispatcher if name == "_compile_for_args" else dispatcher.get_call_template(*arguments, **named)

        return call

    dispatcher._compile_for_args = compile_first("_compile_for_args")
    dispatcher.get_call_template = compile_first("get_call_template")


@cache
def stamp(path: str) -> bytes:
    """Digest of a source file, and of all files of its package that its compiled code may inline."""
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


class _Temporary(InTreeCacheLocator):
    """Private folder among temporary files, where others may write: its content is executed."""

    def get_cache_path(self) -> str:
        return os.path.join(_temporary_folder(), self.get_suitable_cache_subpath(self._py_file))

    def ensure_cache_path(self) -> None:
        folder = _temporary_folder()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        there = os.lstat(folder)
        is_own = os.name == "nt" or (there.st_uid, there.st_mode & 0o77) == (_user(), 0)
        if not (stat.S_ISDIR(there.st_mode) and is_own):
            raise PermissionError(f"{folder}: belongs to another user")
        super().ensure_cache_path()
        _warn(f"in {folder}")


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = (UserProvidedCacheLocator, InTreeCacheLocator, UserWideCacheLocator, _Temporary)

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator: Any = self.locator
        locator.get_source_stamp = partial(stamp, inspect.getfile(function))


class _DiskCache(caching.FunctionCache):
    _impl_class = _Implementation


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _temporary_folder() -> str:
    return os.path.join(tempfile.gettempdir(), f"swarmbo-compiled-{_user()}")


@cache
def _warn(where: str) -> None:
    fix = "set NUMBA_CACHE_DIR to a writable folder"
    warnings.warn(f"no folder for compiled code is writable, so it is kept {where}; {fix}", CompilingWarning, 2)
