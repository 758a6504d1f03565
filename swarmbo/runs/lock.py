"""One process at a time writes to a run folder."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from swarmbo.errors import RunFolderError

if sys.platform == "win32":
    import msvcrt

    def _acquire(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _acquire(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold a folder for the length of a ``with`` block.

    The operating system keeps the lock and gives it back when the process ends, however it ends; so a killed run
    leaves no stale lock behind.

    Raises:
        RunFolderError: If another process holds it, or nothing can be written there.
    """
    try:
        file = (folder / ".lock").open("ab")
    except OSError as error:
        raise RunFolderError(f"{folder / '.lock'}: cannot be written: {error.strerror}") from error
    with file:
        try:
            _acquire(file)
        except OSError as error:
            raise RunFolderError(
                f"{folder}: another process is writing to this run; wait for it, or stop it"
            ) from error
        yield
