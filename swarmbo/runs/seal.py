"""Digests by which a run notices that one of its files was changed, or damaged, after it was written.

A JSON text carries its digest as its last key, ``"digest"``, over all that stands before it. Lines of the log are
chained: the digest of a line covers that of the line before, and the first one's covers the settings of the run. It is
a checksum against accidents and edits, not a signature: whoever wants to can write a new one.
"""

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

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
    """What ``seal`` made, taken apart; None if the text has no digest.

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
