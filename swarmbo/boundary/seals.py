"""Lines and files with digests, to detect accidental changes and damage.

A JSON text has its digest as its last key, ``"digest"``, over all text before it. In a log it also covers the digest of
the previous line, and the first one a start, such as the settings of a run. It is no signature.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

_SEAL = re.compile(rb',\s*"digest":\s*"([0-9a-f]{32})"\s*\}\s*')
SEAL_LENGTH = 64  # bytes at the end of a line that contain its digest


class Sealed(NamedTuple):
    """Parts of a JSON text with a digest: the text without it, the stored digest, and True if it fits."""

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


class LoggedLines(msgspec.Struct, frozen=True):
    """Complete lines of a log, their length in the file (the rest was torn), the last digest, and damage after them."""

    lines: list[bytes]
    length: int
    digest: str
    damage: str | None = None


def logged_lines(
    text: bytes, start: str, path: Path, is_record: Callable[[bytes, int], bool], noun: str = "round"
) -> LoggedLines:
    """Lines of a log, up to a damaged or changed one; a torn last line is left out.

    ``start`` is the first digest of the chain.
    """
    rows = text.split(b"\n")[:-1]
    lines, length, last, damage = list[bytes](), 0, start, None
    for number, row in enumerate(rows):
        sealed = read_seal(row, last)
        if sealed is not None and not sealed.fits:
            damage = (
                f"{path}: line {number + 1} was changed or damaged: its digest does not fit; delete it and what "
                f"follows it, and `swarmbo resume {path.parent}` measures these {noun}s again"
            )
            break
        if sealed is None or not is_record(sealed.text, number):
            # else torn, as by a power failure: the round will be measured again
            if sealed is not None or number < len(rows) - 1:
                damage = f"{path}: line {number + 1} is not the record of {noun} {number}"
            break
        lines.append(sealed.text)
        length, last = length + len(row) + 1, sealed.digest
    return LoggedLines(lines, length, last, damage)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a log; it is on the disk on return."""
    with path.open("ab") as log:
        log.write(line + b"\n")
        log.flush()
        os.fsync(log.fileno())
