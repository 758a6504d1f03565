"""Files on disk: only regular ones are read, as a pipe or a device may never end; writes are atomic."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PARTIAL = ".partial"  # suffix of an incomplete file

# A system without the first flag has no named pipes in the file system either.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading bytes; links are followed.

    A pipe without a writer would block for ever, and a device such as ``/dev/zero`` never ends.

    Raises:
        OSError: If it cannot be opened, or is a folder, a pipe, a socket or a device; ``strerror`` says which.
    """
    number = os.open(path, _FLAGS)
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, f"it is {kind_of(mode)}", os.fspath(path))
    return os.fdopen(number, "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read all bytes of a regular file; links are followed.

    Raises:
        OSError: As for ``open_regular``.

    Example:
        >>> try:
        ...     read_regular(os.devnull)
        ... except OSError as error:
        ...     print(error.strerror)
        it is a device
    """
    with open_regular(path) as file:
        return file.read()


def kind_of(mode: int) -> str:
    """Name of the kind of a file that is not regular, by its ``stat`` mode."""
    kinds = {
        stat.S_ISLNK: "a link",
        stat.S_ISDIR: "a folder",
        stat.S_ISFIFO: "a pipe",
        stat.S_ISSOCK: "a socket",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
    }
    return next((kind for is_kind, kind in kinds.items() if is_kind(mode)), "no regular file")


def regular_file(path: Path) -> bool:
    """True if a path is a regular file, and no link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """File that replaces another once it is complete on the disk.

    The path itself is replaced, also a link, and not written into. If writing fails, the old file stays, and no partial
    file remains.
    """
    partial = path.with_name(path.name + PARTIAL)
    partial.unlink(missing_ok=True)
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
