"""Arrays on disk: files of numbers that can be read without trust."""

import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from swarmbo.boundary.files import open_regular, replacing


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
