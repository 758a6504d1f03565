"""Files of a run: their names, their digests, and writing each whole or not at all, by one process at a time.

By its digest a run notices that one of its files was changed, or damaged, after it was written. A JSON text carries its
digest as its last key, ``"digest"``, over all that stands before it. Lines of the log are chained: the digest of a line
covers that of the line before, and the first one's covers the settings of the run. It is a checksum against accidents
and edits, not a signature: whoever wants to can write a new one.
"""

import json
import re
import stat
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from swarmbo.boundary.files import PARTIAL, kind_of
from swarmbo.errors import RunFolderError
from swarmbo.records import RoundRecord

SCENARIO = "scenario.toml"
LOCK = ".lock"
NETWORK = "network.jsonl"  # what a fleet's network took in each round
ELSEWHERE = "elsewhere.json"  # agents of a fleet that measured by themselves, in a world that is not the scenario's
CHECKPOINTS = f"checkpoint-{'[0-9]' * 6}.npz"
_FILES = (
    *("rounds.jsonl", "timings.jsonl", "summary.json", "world.json", "world.npz", "checkpoint.json", "figures.json"),
    ELSEWHERE,
    NETWORK,
)
_EXPORTS = ("measurements.csv", "measurements.parquet")
_FIGURES = ("belief", "regret", "traffic", "faults", "variables", "factor_graph", "agents", "error_traffic")
_DRAWN = (*(f"{name}.{end}" for name in _FIGURES for end in ("png", "pdf", "svg")), "run.gif", "run.mp4")


def own_files(run: Path) -> Iterator[Path]:
    """Every file that a run may have written into its folder but for its scenario and lock, be it there or not."""
    for end in ("", PARTIAL):
        yield from (run / f"{name}{end}" for name in (*_FILES, *_EXPORTS))
        yield from run.glob(CHECKPOINTS + end)
        yield from (run / "figures" / f"{name}{end}" for name in _DRAWN)
    yield run / (SCENARIO + PARTIAL)


def stale_files(run: Path) -> Iterator[Path]:
    """Files that a process began to write and did not live to put in their places."""
    return (file for file in own_files(run) if file.name.endswith(PARTIAL) and file.is_file())


def require_own(run: Path) -> None:
    """Refuse a folder in which something else than a regular file has the name of a file of a run.

    A link would lead out of the folder, and what is written through it would overwrite something that is not the run's;
    a pipe would be waited for, and a device never ends.

    Raises:
        RunFolderError: With the name of the first one.
    """
    figures = run / "figures"
    _require(figures, stat.S_ISDIR, "a folder")
    for file in (run / SCENARIO, run / LOCK, *own_files(run)):
        _require(file, stat.S_ISREG, "a file")


def _require(path: Path, is_wanted: Callable[[int], bool], wanted: str) -> None:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from error
    if not is_wanted(mode):
        got = "a file" if stat.S_ISREG(mode) else kind_of(mode)
        raise RunFolderError(f"{path}: got {got}; wanted {wanted} of the run's own: move it away")


_SEAL = re.compile(rb',\s*"digest":\s*"([0-9a-f]{32})"\s*\}\s*')
SEAL_LENGTH = 64  # bytes at the end of a line in which its digest lies, and more


class Sealed(NamedTuple):
    """A JSON text with a digest.

    Args:
        text: The text as it was before it was sealed, but for white space at its end.
        digest: What stands in it.
        fits: Whether it is that of the text.
    """

    text: bytes
    digest: str
    fits: bool


def seal(text: bytes, after: str = "") -> bytes:
    """A JSON object with a digest as its last key.

    Args:
        text: An object with at least one key, in one line or in several.
        after: The digest of what comes before it.

    Example:
        >>> seal(b'{"round":0}')
        b'{"round":0,"digest":"efa18770e384470fc8c1b9dc3a9b3f9e"}'
    """
    body = text.rstrip().removesuffix(b"}").rstrip()
    form = b'%s,\n  "digest": "%s"\n}\n' if b"\n" in body else b'%s,"digest":"%s"}'
    return form % (body, _digest(body, after).encode())


def read_seal(text: bytes, after: str = "") -> Sealed | None:
    """Parts of a sealed text; None if it has no digest.

    Args:
        text: As it was read.
        after: The digest of what came before it.

    Example:
        >>> read_seal(seal(b'{"round":0}')).fits, read_seal(seal(b'{"round":0}').replace(b"0", b"1", 1)).fits
        (True, False)
        >>> read_seal(b'{"round":0}') is None
        True
    """
    end = text.rfind(b",")
    found = None if end < 0 else _SEAL.fullmatch(text, end)
    if found is None:
        return None
    body, digest = text[:end], found.group(1).decode()
    return Sealed(body + b"}", digest, digest == _digest(body, after))


def digest_of_table(table: Mapping[str, Any]) -> str:
    """The digest of plain data, however they were formatted."""
    return _digest(json.dumps(table, sort_keys=True, default=str).encode())


def digest_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """The digest of arrays by name: their types, shapes and numbers."""
    found = blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(repr((name, array.dtype.str, arrays[name].shape)).encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _digest(body: bytes, after: str = "") -> str:
    return blake2b(after.encode() + b"\0" + body, digest_size=16).hexdigest()


class Timing(msgspec.Struct, frozen=True):
    """Seconds that one round took, by the wall clock.

    Args:
        round: Which one.
        decide: To choose the next locations; 0 in round 0.
        measure: For the world to step.
        learn: For the belief to take the measurements in.
        record: To score and write the round down.
    """

    round: int
    decide: float
    measure: float
    learn: float
    record: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.decide + self.measure + self.learn + self.record


class LoggedLines(msgspec.Struct, frozen=True):
    """The whole lines of ``rounds.jsonl``.

    Args:
        lines: Without their line ends and digests.
        length: Bytes that they take in the file; what follows was torn.
        digest: Of the last one, which that of the next goes on from; None in a log without digests.
        damage: What is wrong with the line after them; None where they are all that was written.
    """

    lines: list[bytes]
    length: int
    digest: str | None
    damage: str | None = None


def logged_lines(text: bytes, start: str | None, path: Path) -> LoggedLines:
    """The rounds of a log, up to a line that was damaged or changed. A last line that was torn is left out.

    Args:
        text: Of the file.
        start: What the digests go on from; None for a run of an earlier version, whose lines have none.
        path: Of the file, for messages.
    """
    rows = text.split(b"\n")[:-1]
    lines, length, last, damage = list[bytes](), 0, start, None
    for number, row in enumerate(rows):
        sealed = read_seal(row, last or "")
        if sealed is not None and last is not None and not sealed.fits:
            damage = (
                f"{path}: line {number + 1} was changed or damaged: its digest does not fit; delete it and what "
                f"follows it, and `swarmbo resume {path.parent}` measures these rounds again"
            )
            break
        line = row if sealed is None else sealed.text
        if (sealed is None) is not (last is None) or not _is_record(line, number):
            if sealed is not None or number < len(rows) - 1:  # else torn, as by a power cut: it will be measured again
                damage = f"{path}: line {number + 1} is not the record of round {number}"
            break
        lines.append(line)
        length += len(row) + 1
        last = None if sealed is None else sealed.digest
    return LoggedLines(lines, length, last, damage)


def logged_timings(text: bytes, *, sealed: bool, path: Path) -> Iterator[Timing]:
    """Rows of ``timings.jsonl``; lines that were torn are left out: they only say how long something took.

    Args:
        text: Of the file.
        sealed: Whether its lines have digests.
        path: Of the file, for messages.

    Raises:
        RunFolderError: If a line was changed.
    """
    for number, row in enumerate(text.split(b"\n")):
        found = read_seal(row)
        if sealed and found is not None and not found.fits:
            raise RunFolderError(
                f"{path}: line {number + 1} was changed or damaged: its digest does not fit; delete it, it only says "
                "how long a round took"
            )
        if sealed and found is None:
            continue
        try:
            yield msgspec.json.decode(row, type=Timing)
        except msgspec.DecodeError:
            continue


def _is_record(line: bytes, number: int) -> bool:
    try:
        return msgspec.json.decode(line, type=RoundRecord).round == number
    except msgspec.DecodeError:  # also a ValidationError
        return False


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
