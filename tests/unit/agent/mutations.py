"""Messages with valid checksums and invalid content: real messages, changed at random."""

import struct
import zlib
from typing import Any

import msgspec
import numpy as np

_HEAD = 12  # bytes before the content: checksum, decision, turn
_TAGS = ("variable", "factor", "report", "verdict", "tally", "ruling", "reports", "note", "copy", "consensus", "bundle")
_NUMBERS = (np.nan, np.inf, -np.inf, 1e308, -1e308, -1.0, 0.5, 1e17)
_OTHERS: tuple[Any, ...] = (None, True, -1, 2**63, 10**6, 1e308, float("nan"), "zzz", "", b"", b"abc", [], {}, [[1]])
Drawn = np.random.Generator


def sealed(decision: int, turn: int, content: bytes) -> bytes:
    """A payload with the right checksum."""
    labelled = struct.pack("<II", decision, turn) + content
    return struct.pack("<I", zlib.crc32(labelled)) + labelled


def mutated(payload: bytes, rng: Drawn) -> bytes:
    """A message with a random change: names, kinds, numbers, lengths, types, nesting, decision or turn."""
    decision, turn = struct.unpack_from("<II", payload, 4)
    how = rng.integers(12)
    if how == 0:
        return sealed(int(decision + rng.choice([1, 2, 999, 2**31])) % 2**32, turn, payload[_HEAD:])
    if how == 1:
        return sealed(decision, int(rng.choice([1, 7, 2**32 - 1])), payload[_HEAD:])
    if how == 2:
        return sealed(decision, turn, payload[_HEAD : _HEAD + int(rng.integers(len(payload) - _HEAD))])
    if how == 3:
        return sealed(decision, turn, b"\x91" * int(rng.choice([100, 100_000])))
    return sealed(decision, turn, packed(_mutated(msgspec.msgpack.decode(payload[_HEAD:]), rng)))


def packed(content: Any) -> bytes:
    """Content in MessagePack, which may be nested."""
    return msgspec.msgpack.encode(content)


def unfit(payload: bytes, rng: Drawn) -> bytes:
    """A message that no agent can send: some numbers are NaN, or their count is wrong."""
    decision, turn = struct.unpack_from("<II", payload, 4)
    content = msgspec.msgpack.decode(payload[_HEAD:])
    places = [i for i, part in enumerate(content) if isinstance(part, bytes | dict)]
    if not places:
        return sealed(decision, turn, packed([*content[:-1], "zzz"]))
    i = int(rng.choice(places))
    if isinstance(content[i], dict):
        content[i] = dict.fromkeys(content[i], b"\xc1") | {"zzz": b""}
    else:
        odd = [content[i] + b"\0" * 8, content[i] + b"\0", np.full(1 + len(content[i]) // 8, np.nan).tobytes()]
        content[i] = odd[int(rng.integers(len(odd)))]
    return sealed(decision, turn, packed(content))


def _mutated(content: Any, rng: Drawn) -> Any:
    """The same content with a random change at any depth."""
    if isinstance(content, bytes) and len(content) >= 2 and rng.random() < 0.7:
        return _bytes(content, rng)
    if isinstance(content, list | dict) and content and rng.random() < 0.85:
        keys = list(range(len(content))) if isinstance(content, list) else list(content)
        key = keys[int(rng.integers(len(keys)))]
        out = content.copy()
        how = rng.integers(8)
        if how == 0:
            del out[key]
        elif how == 1 and isinstance(out, dict):
            out["zzz"] = out.pop(key)
        elif how == 2 and isinstance(out, list):
            out.insert(key, out[key])
        elif how == 3 and key == 0 and isinstance(out[key], str):
            out[key] = str(rng.choice(_TAGS))
        else:
            out[key] = _mutated(content[key], rng)
        return out
    return _OTHERS[int(rng.integers(len(_OTHERS)))]


def _bytes(content: bytes, rng: Drawn) -> bytes:
    """Change bytes within a message: MessagePack or numbers."""
    if len(content) % 8:
        try:
            return packed(_mutated(msgspec.msgpack.decode(content), rng))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return content[: len(content) // 2]
    if rng.random() < 0.3:
        return content[:-8] if rng.random() < 0.5 else content * 2
    numbers = np.frombuffer(content, "<f8").copy()
    numbers[int(rng.integers(len(numbers)))] = rng.choice(_NUMBERS)
    return numbers.tobytes()
