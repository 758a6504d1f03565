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
    """Open a regular file for reading bytes; links are followed. Else ``strerror`` of the OSError says what it is."""
    number = os.open(path, _FLAGS)
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, f"it is {kind_of(mode)}", os.fspath(path))
    return os.fdopen(number, "rb")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read all bytes of a regular file; links are followed."""
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
    """File that replaces another, or a link, once it is complete on the disk; if writing fails, the old file stays."""
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
