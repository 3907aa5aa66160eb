"""Checksums of what is large: a flipped bit is an error, never another figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from happier.storage.regular_file import open_regular

__all__ = ["checksum", "file_checksum"]

_PIECE = 16 << 20


def checksum(array: npt.NDArray[Any]) -> str:
    """xxh3 of an array's bytes; an array mapped from disk is read piece by piece."""
    digest = xxhash.xxh3_128()
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, len(flat), _PIECE):
        digest.update(flat[start : start + _PIECE].data)
    return digest.hexdigest()


def file_checksum(path: Path) -> str:
    """xxh3 of a file's bytes.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    digest = xxhash.xxh3_128()
    with open_regular(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
