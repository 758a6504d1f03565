"""Locations in a field in few bytes, bit-identical: as indices of common sites, or as columns of numbers."""

import zlib

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.errors import TransportError

_MOST = 2**22  # limit of unpacked bytes: more locations than a message of some megabytes can hold
_NUMBERS, _INDICES, _IS_PRESSED = 0, 1, 2  # bits of the first byte


def packed(places: Float[np.ndarray, "k d"], sites: Float[np.ndarray, "s d"] | None = None) -> bytes:
    """Pack locations in their order.

    Locations that are all sites become differences of indices, as most sites within an agent's reach are consecutive.
    Others are stored column by column, as numbers of a lattice repeat. Either is compressed if that is shorter.

    Example:
        >>> lattice = np.stack(np.meshgrid(np.arange(50.0), np.arange(50.0)), axis=-1).reshape(-1, 2)
        >>> near = lattice[np.hypot(*(lattice - 25.0).T) < 20.0]
        >>> content = packed(near, lattice)
        >>> near.nbytes > 50 * len(content), bool((unpacked(content, 2, lattice) == near).all())
        (True, True)
    """
    columns = np.ascontiguousarray(np.asarray(places, dtype="<f8").T).tobytes()
    contents = {_NUMBERS: columns}
    indices = None if sites is None else _indices(places, sites)
    if indices is not None:
        contents[_INDICES] = msgspec.msgpack.encode(np.diff(indices, prepend=0).tolist())
    contents |= {kind | _IS_PRESSED: zlib.compress(content, 9) for kind, content in contents.items()}
    if len(columns) > _MOST:
        contents = {_NUMBERS: columns}
    kind = min(contents, key=lambda kind: len(contents[kind]))
    return bytes([kind]) + contents[kind]


def unpacked(content: bytes, n_dims: int, sites: Float[np.ndarray, "s d"] | None = None) -> Float[np.ndarray, "k d"]:
    """Unpack locations, with the sites of packing."""
    kind, rest = content[:1], content[1:]
    try:
        if not kind or kind[0] > (_INDICES | _IS_PRESSED):
            raise ValueError(f"kind {kind!r}")
        if kind[0] & _IS_PRESSED:
            rest = _inflated(rest)
        if not kind[0] & _INDICES:
            return np.frombuffer(rest, dtype="<f8").reshape(n_dims, -1).T.copy()
        if sites is None:
            raise ValueError("indices without sites")
        differences = msgspec.msgpack.decode(rest, type=list[int])
        if 8 * n_dims * len(differences) > _MOST:
            raise ValueError("more bytes than locations take")
        indices = np.cumsum(np.array(differences, dtype=np.int64))
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(sites):
            raise ValueError("an index beyond the sites")
        return sites[indices]
    except (ValueError, OverflowError, zlib.error, msgspec.MsgspecError) as error:
        raise TransportError(f"got locations that can't be read: {error}; do agents know the same sites?") from error


def _inflated(content: bytes) -> bytes:
    """Decompress up to a limit: a few bytes could expand to millions."""
    reader = zlib.decompressobj()
    found = reader.decompress(content, _MOST)
    if not reader.eof:
        raise ValueError("more bytes than locations take, or cut off")
    return found


def _indices(places: Float[np.ndarray, "k d"], sites: Float[np.ndarray, "s d"]) -> "np.ndarray | None":
    """Indices of locations among the sites, compared bit by bit; None if one of them is no site."""
    of = {site: index for index, site in enumerate(_rows(sites))}
    found = [of.get(place, -1) for place in _rows(places)]
    return None if -1 in found else np.array(found, dtype=np.int64)


def _rows(places: Float[np.ndarray, "k d"]) -> list[bytes]:
    content, width = np.ascontiguousarray(places, dtype="<f8").tobytes(), 8 * places.shape[1]
    return [content[start : start + width] for start in range(0, len(content), width)]
