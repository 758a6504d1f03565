"""Files on disk: only regular files, written atomically; arrays, cells of CSV files, and digests that detect damage.

A pipe or a device may never end, so only regular files are read. A JSON text has its digest as its last key,
``"digest"``, over all text before it. In a log, it also covers the digest of the previous line, or in the first line
a start value, such as the digest of a run's settings. It is not a signature.
"""

import csv
import errno
import json
import math
import os
import re
import secrets
import stat
import zipfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar, get_args

import msgspec
import numpy as np

from swarmbo.boundary.values import is_plain
from swarmbo.errors import ConfigError, RunFolderError, typed

PARTIAL = ".partial"  # suffix of an incomplete file
# the same as patterns: a second writer, or one after a killed one, takes a random name
PARTIALS = (PARTIAL, f".{'[0-9a-f]' * 8}{PARTIAL}")
FigureFormat = Literal["png", "pdf", "svg"]
AnimationFormat = Literal["gif", "mp4"]
FIGURE_FORMATS: tuple[FigureFormat, ...] = get_args(FigureFormat)
ANIMATION_FORMATS: tuple[AnimationFormat, ...] = get_args(AnimationFormat)

# A system without O_NONBLOCK has no named pipes in the file system either.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_SPACE_AFTER_QUOTE = re.compile(r'"[ \t]+(?=[,\r\n]|$)')  # the CSV reader would take it for a part of the cell
_SEAL = re.compile(rb',\s*"digest":\s*"([0-9a-f]{32})"\s*\}\s*')
SEAL_LENGTH = 64  # bytes at the end of a line that contain its digest


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading bytes; links are followed. Otherwise, the OSError's ``strerror`` has the kind."""
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
    kinds = {stat.S_ISLNK: "a link", stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    kinds |= dict.fromkeys((stat.S_ISCHR, stat.S_ISBLK), "a device")
    return next((kind for is_kind, kind in kinds.items() if is_kind(mode)), "not a regular file")


def regular_file(path: Path) -> bool:
    """True if a path is a regular file, and not a link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@contextmanager
def naming(path: Path, what: str, fix: str = "", kind: type[RunFolderError] = RunFolderError) -> Generator[None]:
    """Turn an OSError in the block into a ``kind`` with path, ``what`` failed (``cannot be read``), and fix."""
    try:
        yield
    except RunFolderError:
        raise
    except OSError as error:
        raise kind(f"{path}: {what}: {error.strerror or error}{fix}") from error


@contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """File that replaces another, or a link, once it is complete on the disk; if writing fails, the old file stays."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    partial = path.parent / (path.name + PARTIAL)
    try:
        try:
            file = partial.open("xb")
        except FileExistsError:  # of another writer, or of a killed one
            partial = path.parent / f"{path.name}.{secrets.token_hex(4)}{PARTIAL}"
            file = partial.open("xb")
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(partial)):
            error.filename = str(path)
        with suppress(OSError):  # the first error is the one to be raised
            partial.unlink()
        raise


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file that ``numpy.savez`` wrote; memory is allocated for the numbers in the file only."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            size = os.fstat(file.fileno()).st_size
            return {member.filename.removesuffix(".npy"): _read(archive, member, size) for member in archive.infolist()}
    except (zipfile.BadZipFile, EOFError, KeyError, RuntimeError, NotImplementedError, OverflowError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays of numbers into one file, atomically."""
    if objects := [key for key, array in arrays.items() if array.dtype.hasobject]:
        raise ValueError(f"{path.name}: arrays {objects} hold objects; wanted numbers")
    with replacing(path) as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> np.ndarray:
    if member.file_size > most:
        raise ValueError(f"{member.filename} claims {member.file_size} bytes in a file of {most}")
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise ValueError(f"{member.filename} is compressed; wanted plain arrays")
    with archive.open(member) as stream:
        size = _claimed_size(stream)
        if size != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} claims {size} bytes and has {member.file_size - stream.tell()}")
    with archive.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _claimed_size(stream: IO[bytes]) -> int:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"got arrays of format {version}; wanted 1.0 or 2.0")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("got objects; wanted numbers")
    return math.prod(shape) * dtype.itemsize


class CsvRows(NamedTuple):
    """Content of a CSV file: column names, and for each row its line number and its cells, one per column."""

    header: list[str]
    rows: list[tuple[int, list[str]]]


def read_csv(path: str | os.PathLike[str]) -> CsvRows:
    """Read the cells of a file, without surrounding space, empty rows, and empty columns without a name at the end.

    Raises:
        ValueError: If it is not a CSV file in UTF-8, a quote is open, or the column of a cell is ambiguous.
    """
    with open_regular(path) as raw, TextIOWrapper(raw, newline="", encoding="utf-8-sig") as file:
        text = [_SPACE_AFTER_QUOTE.sub('"', line) for line in file]
    reader, rows, begin = csv.reader(text, skipinitialspace=True, strict=True), list[tuple[int, list[str]]](), 1
    try:
        for row in reader:
            within = [line.split(",") for line in text[begin : reader.line_num]]  # no line in quotes may be like a row
            if any(len(cells) == len(row) and sum(finite(cell) < math.inf for cell in cells) > 1 for cells in within):
                raise csv.Error("further rows within quotes")
            if any(cells := [cell.strip() for cell in row]):
                rows.append((begin, cells))
            begin = reader.line_num + 1
    except csv.Error as error:
        if begin > 1 or not any(mark in text[0] for mark in ";\t|"):
            raise ValueError(f"the row that begins in line {begin} has an open or wrong quote ({error})") from error
        rows = [(1, [text[0].strip()])]  # probably with these separators, which are named below
    header = rows.pop(0)[1] if rows else []
    while header and not header[-1]:
        header.pop()
    if len(header) == 1 and (marks := [mark for mark in ";\t|" if mark in header[0]]):
        raise ValueError(f"its columns are separated by {marks[0]!r}")
    if twice := [name for name in header if name and header.count(name) > 1]:
        raise ValueError(f"it has the column {twice[0]!r} twice")
    for number, row in rows:
        if any(row[len(header) :]):
            raise ValueError(f"line {number} has {len(row)} cells, and the header {len(header)}")
    return CsvRows(header, [(number, [*row, *[""] * len(header)][: len(header)]) for number, row in rows])


def write_rows(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file, completely or not at all."""
    with replacing(path) as raw:
        text = TextIOWrapper(raw, encoding="utf-8", newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        text.flush()
        text.detach()


def read_table(path: str | os.PathLike[str], at: str | None = None) -> CsvRows:
    """Read the cells of a file that the setting ``at`` names; without a setting, an OSError is passed on unchanged."""
    try:
        table = read_csv(path)
    except (OSError, ValueError) as error:
        if at is None and isinstance(error, OSError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        wanted = "a CSV file in UTF-8, with commas between columns, points in numbers, and quotes in pairs"
        raise ConfigError(f"cannot read {path!r}: {reason}; wanted {wanted}", at=at or "$") from None
    if not table.header:
        raise ConfigError(f"{path!r} is empty; wanted a header line and rows of numbers", at=at or "$")
    return table


def finite(cell: str) -> float:
    """Finite number in a cell; NaN if the cell holds anything else."""
    try:
        number = float(cell) if is_plain(cell) else math.nan
    except ValueError:
        number = math.nan
    return number if math.isfinite(number) else math.nan


class Sealed(NamedTuple):
    """Parts of a JSON text with a digest: the text without it, the stored digest, and True if the digest fits."""

    text: bytes
    digest: str
    fits: bool


def seal(text: bytes, after: str = "") -> bytes:
    """Append a digest to a JSON object as its last key, chained to the digest ``after``."""
    body = text.rstrip().removesuffix(b"}").rstrip()
    form = b'%s,\n  "digest": "%s"\n}\n' if b"\n" in body else b'%s,"digest":"%s"}'
    return form % (body, _digest(body, after).encode())


def read_seal(text: bytes, after: str = "") -> Sealed | None:
    """Split a sealed text; None if it has no digest. ``after`` is the digest of the previous text."""
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


Record = TypeVar("Record", bound=msgspec.Struct)


class LoggedLines(NamedTuple):
    """Intact lines of a log, their records, their length in bytes, the last digest, and a text on damage after them."""

    lines: list[bytes]
    records: list[Any]
    length: int
    digest: str
    damage: str | None


def logged_lines(
    text: bytes, start: str, path: Path, of: type[Record], is_at: Callable[[Record, int], bool], noun: str = "round"
) -> LoggedLines:
    """Lines of a log, up to the first damaged or changed one; an incomplete last line is left out.

    ``is_at(record, number)`` is True if a record can have this number in the log, from 0.
    """
    rows = text.split(b"\n")[:-1]
    lines, records, length, last, damage = list[bytes](), list[Record](), 0, start, None
    for number, row in enumerate(rows):
        sealed = read_seal(row, last)
        if sealed is not None and not sealed.fits:
            damage = (
                f"{path}: line {number + 1} was changed or damaged: its digest does not fit; delete it and what "
                f"follows it, and `swarmbo resume {typed(path.parent)}`, or `swarmbo serve`, makes these {noun}s again"
            )
            break
        try:
            record = None if sealed is None else msgspec.json.decode(sealed.text, type=of)
        except msgspec.DecodeError:  # also a ValidationError
            record = None
        if sealed is None or record is None or not is_at(record, number):
            # else the last line is incomplete, as after a power failure: the round will be measured again
            if sealed is not None or number < len(rows) - 1:
                damage = f"{path}: line {number + 1} is not the record of {noun} {number}"
            break
        lines.append(sealed.text)
        records.append(record)
        length, last = length + len(row) + 1, sealed.digest
    return LoggedLines(lines, records, length, last, damage)


def append_line(path: Path, line: bytes, *, durable: bool = True) -> None:
    """Append a line to a log; on return it is on the disk, if ``durable``.

    If writing fails, the OSError is raised, and the log is cut back to its previous length. If that fails, too, a part
    of the line, or all of it, stays until the log is next opened, when incomplete lines are cut off.
    """
    with path.open("ab", buffering=0) as log:
        length = log.seek(0, os.SEEK_END)
        try:
            rest = line + b"\n"
            while rest:  # on a full disk, a call writes a part of the line, and only the next call raises
                rest = rest[log.write(rest) :]
            if durable:
                os.fsync(log.fileno())
        except OSError:
            with suppress(OSError):  # the first error is the one to be raised
                log.truncate(length)
            raise
