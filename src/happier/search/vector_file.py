"""The vector file of an index: float32 rows, appended to, with a checksum for each block of rows.

Readers map the first rows of the file, as many as ``index.json`` counted when they opened it. So a row that
was ever counted is never written again, and the file never shrinks: an addition writes behind the counted
rows, over what an interrupted addition may have left there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from happier.errors import SearchError
from happier.search.engine import VectorArray
from happier.storage.checksum import checksum
from happier.storage.regular_file import open_regular

# An addition reads the last, incomplete block again; the others keep their checksums.
BLOCK_ROWS = 65_536


def write_vectors(path: Path, vectors: VectorArray, *, after: int) -> None:
    """Write rows behind the first ``after`` rows of a file, which is new where ``after`` is 0.

    Raises:
        SearchError: the file has fewer rows.
        OSError: it cannot be written.
    """
    start = after * vectors.shape[1] * 4
    with path.open("r+b" if after else "xb") as file:
        if os.fstat(file.fileno()).st_size < start:
            raise SearchError(f"{path} has fewer than {after} rows: build the index again")
        file.seek(start)
        step = max(1, (16 << 20) // (4 * vectors.shape[1]))
        for first in range(0, len(vectors), step):
            file.write(np.ascontiguousarray(vectors[first : first + step], dtype="<f4").data)
        file.flush()
        os.fsync(file.fileno())


def open_vectors(path: Path, *, rows: int, dim: int) -> VectorArray:
    """The file as a read-only array ``[rows, D]`` that is paged in as it is used.

    Raises:
        SearchError: it is missing, too short, or not a regular file.
    """
    try:
        with open_regular(path) as file:
            mapped = np.memmap(file, dtype=np.float32, mode="r", shape=(rows, dim))
    except (OSError, ValueError, OverflowError) as error:
        raise SearchError(f"{path} is missing or shorter than {rows} rows: build the index again") from error
    return mapped.view(np.ndarray)  # each slice of a memmap costs microseconds of Python


def block_checksums(vectors: VectorArray, *, known: Sequence[str] = (), known_rows: int = 0) -> list[str]:
    """The checksum of each block of rows.

    Args:
        vectors: all rows ``[N, D]``.
        known: checksums of the first ``known_rows`` rows; those of whole blocks are taken over.
        known_rows: how many rows they are of.
    """
    whole = known_rows // BLOCK_ROWS if known else 0
    blocks = range(whole * BLOCK_ROWS, len(vectors), BLOCK_ROWS)
    return [*known[:whole], *(checksum(vectors[first : first + BLOCK_ROWS]) for first in blocks)]


def check_vectors_on_disk(
    path: Path, vectors: VectorArray, expected: Sequence[str], *, trusted: Sequence[str] = ()
) -> None:
    """Compare the file with its checksums.

    Args:
        path: the file, for the error.
        vectors: its rows ``[N, D]``.
        expected: a checksum for each block.
        trusted: checksums of the same file's blocks that were compared already.

    Raises:
        SearchError: some rows are not those that were written.
    """
    count = -(-len(vectors) // BLOCK_ROWS)
    if len(expected) != count:
        raise SearchError(f"{path} has {count} blocks, index.json {len(expected)}: build the index again")
    for block, wanted in enumerate(expected):
        if block < len(trusted) and trusted[block] == wanted:
            continue
        first, last = block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, len(vectors))
        if checksum(vectors[first:last]) != wanted:
            raise SearchError(
                f"{path} is damaged: rows {first} to {last - 1} differ from their checksum; "
                "build the index again"
            )
