"""A float32 ``.npy`` file that is written row by row, without a mapping that a full disk could break."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from happier.arrays import Float32Array, IntArray
from happier.errors import CheckpointError, InputError
from happier.storage.atomic import reserve
from happier.storage.regular_file import open_regular

__all__ = ["create_vectors", "map_array", "map_vectors", "write_rows"]

Mapped = np.memmap[tuple[int, int], np.dtype[np.float32]]


def create_vectors(path: Path, rows: int, dim: int) -> None:
    """Make a file for vectors ``[rows, dim]`` whose space is reserved.

    Raises:
        OSError: there is not enough space.
    """
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)}
    )
    reserve(path, header.tell() + 4 * rows * dim)
    with path.open("r+b") as file:
        file.write(header.getvalue())


def write_rows(path: Path, rows: IntArray, vectors: Float32Array) -> None:
    """Write vectors ``[R, dim]`` into these rows of the file."""
    if not len(rows):
        return
    vectors = np.ascontiguousarray(vectors, dtype="<f4")
    start = map_vectors(path).offset
    # Rows that follow one another are written at once.
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    with path.open("r+b") as file:
        for positions, part in zip(np.split(rows, breaks), np.split(vectors, breaks), strict=True):
            file.seek(start + 4 * vectors.shape[1] * int(positions[0]))
            file.write(part.data)


def map_vectors(path: Path, shape: tuple[int, int] | None = None) -> Mapped:
    """Vectors of a file, mapped for reading.

    Raises:
        CheckpointError: it does not hold float32 vectors, or not of this shape.
        FileNotFoundError: there is no such file.
    """
    try:
        vectors = _map(path)
    except _ArrayError as error:
        raise CheckpointError(f"{path} is damaged: {error}; embed again") from error
    if not isinstance(vectors, np.memmap) or vectors.ndim != 2 or vectors.dtype != np.float32:
        raise CheckpointError(f"{path} does not hold float32 vectors [N, D]; embed again")
    if shape is not None and vectors.shape != shape:
        raise CheckpointError(f"{path} holds vectors of shape {vectors.shape}, not {shape}; embed again")
    return vectors


def map_array(path: Path) -> npt.NDArray[np.floating[Any]]:
    """Vectors ``[N, D]`` that come from elsewhere, any kind of floats, mapped for reading.

    Raises:
        InputError: there is no such file, or it does not hold such an array.
    """
    try:
        vectors = _map(path)
    except (FileNotFoundError, _ArrayError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise InputError(f"cannot read {path} as an array: {reason}") from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise InputError(f"{path} must hold floats [N, D], got {vectors.dtype} {list(vectors.shape)}")
    return vectors


class _ArrayError(Exception):
    """What is wrong with a file, in one line."""


def _map(path: Path) -> npt.NDArray[Any]:
    try:
        open_regular(path).close()  # numpy would wait for the writer of a pipe
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise
    # A damaged header makes numpy's parser raise whatever its bytes happen to mean.
    except Exception as error:
        raise _ArrayError(" ".join(str(error).split())[:200]) from error
    if not isinstance(found, np.ndarray):
        raise _ArrayError("it holds several arrays")
    return found
