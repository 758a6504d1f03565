"""Files of a run: names, digests, and writing each completely or not at all, by one process at a time.

Digests detect accidental changes and damage. A JSON text has its digest as its last key, ``"digest"``, over all text
before it. Lines of the log are chained: the digest of a line covers that of the previous line, and the first one's
covers the settings of the run. It is a checksum, not a signature.
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
NETWORK = "network.jsonl"  # network traffic of a fleet in each round
# agents of a fleet that took their own measurements, in another world than the scenario's
ELSEWHERE = "elsewhere.json"
CHECKPOINTS = f"checkpoint-{'[0-9]' * 6}.npz"
_FILES = (
    *("rounds.jsonl", "timings.jsonl", "summary.json", "world.json", "world.npz", "checkpoint.json", "figures.json"),
    ELSEWHERE,
    NETWORK,
)
_EXPORTS = ("measurements.csv", "measurements.parquet")
# of callbacks
ROUNDS, MLFLOW_RUN, EVENTS, EVENT_FILES = "rounds.csv", "mlflow.json", "tensorboard", "events.out.tfevents.*"
FOLDERS = ("figures", EVENTS)
_FIGURES = ("belief", "regret", "traffic", "faults", "variables", "factor_graph", "agents", "error_traffic")
_DRAWN = (*(f"{name}.{end}" for name in _FIGURES for end in ("png", "pdf", "svg")), "run.gif", "run.mp4")


def own_files(run: Path) -> Iterator[Path]:
    """All files that a run may write into its folder except its scenario and lock, existing or not."""
    for end in ("", PARTIAL):
        yield from (run / f"{name}{end}" for name in (*_FILES, *_EXPORTS, ROUNDS, MLFLOW_RUN))
        yield from run.glob(CHECKPOINTS + end)
        yield from (run / "figures" / f"{name}{end}" for name in _DRAWN)
    yield from (run / EVENTS).glob(EVENT_FILES)
    yield run / (SCENARIO + PARTIAL)


def stale_files(run: Path) -> Iterator[Path]:
    """Partial files of a killed process."""
    return (file for file in own_files(run) if file.name.endswith(PARTIAL) and file.is_file())


def require_own(run: Path) -> None:
    """Refuse a folder in which something else than a regular file has the name of a file of a run.

    A link would lead out of the folder, and writing through it would overwrite other data; a pipe or device may block.
    """
    for folder in FOLDERS:
        _require(run / folder, stat.S_ISDIR, "a folder")
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
SEAL_LENGTH = 64  # bytes at the end of a line that contain its digest


class Sealed(NamedTuple):
    """Parts of a JSON text with a digest: the text without it, the stored digest, and True if it fits."""

    text: bytes
    digest: str
    fits: bool


def seal(text: bytes, after: str = "") -> bytes:
    """Append a digest to a JSON object as its last key, chained to the digest ``after``.

    Example:
        >>> seal(b'{"round":0}')
        b'{"round":0,"digest":"efa18770e384470fc8c1b9dc3a9b3f9e"}'
    """
    body = text.rstrip().removesuffix(b"}").rstrip()
    form = b'%s,\n  "digest": "%s"\n}\n' if b"\n" in body else b'%s,"digest":"%s"}'
    return form % (body, _digest(body, after).encode())


def read_seal(text: bytes, after: str = "") -> Sealed | None:
    """Split a sealed text; None if it has no digest. ``after`` is the digest of the previous text.

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
    """Digest of plain data, independent of formatting."""
    return _digest(json.dumps(table, sort_keys=True, default=str).encode())


def digest_of_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Digest of arrays by name: their types, shapes and numbers."""
    found = blake2b(digest_size=16)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(repr((name, array.dtype.str, arrays[name].shape)).encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _digest(body: bytes, after: str = "") -> str:
    return blake2b(after.encode() + b"\0" + body, digest_size=16).hexdigest()


class Timing(msgspec.Struct, frozen=True):
    """Durations of one round by the wall clock, s."""

    round: int
    decide: float
    measure: float
    learn: float
    record: float

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return self.decide + self.measure + self.learn + self.record


class LoggedLines(msgspec.Struct, frozen=True):
    """Complete lines of ``rounds.jsonl``.

    Args:
        lines: Lines without line ends and digests.
        length: Their length in the file, bytes; the rest was torn.
        digest: Digest of the last one, continued by the next; None in a log without digests.
        damage: Error in the line after them; None without one.
    """

    lines: list[bytes]
    length: int
    digest: str | None
    damage: str | None = None


def logged_lines(text: bytes, start: str | None, path: Path) -> LoggedLines:
    """Rounds of a log, up to a damaged or changed line; a torn last line is left out.

    ``start`` is the first digest of the chain; None for a run of an earlier version without digests.
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
            # else torn, as by a power failure: the round will be measured again
            if sealed is not None or number < len(rows) - 1:
                damage = f"{path}: line {number + 1} is not the record of round {number}"
            break
        lines.append(line)
        length += len(row) + 1
        last = None if sealed is None else sealed.digest
    return LoggedLines(lines, length, last, damage)


def logged_timings(text: bytes, *, sealed: bool, path: Path) -> Iterator[Timing]:
    """Rows of ``timings.jsonl``; torn lines are left out, as they hold durations only."""
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
    """Hold a folder's lock for the length of a ``with`` block.

    The operating system releases the lock when the process ends in any way, so a killed run leaves no stale lock.

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
