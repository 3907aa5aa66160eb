"""Which rows of an unfinished file of vectors are done: what a killed pass had computed is used again.

One line of JSON per batch, with a checksum of its vectors; a line that was cut off, or whose vectors did not
reach the disk, does not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from happier.arrays import Float32Array, IntArray
from happier.errors import CheckpointError
from happier.storage.checksum import checksum
from happier.vectors.image_content import ImageContent, ImageTable
from happier.vectors.npy import map_vectors

__all__ = ["Journal", "unfinished_rows"]


class Journal:
    """The rows that one rank has written into an unfinished file.

    Args:
        part: the file of vectors.
        rank: of this process.
        model: what makes the vectors, as text.
    """

    def __init__(self, part: Path, rank: int, model: str) -> None:
        self._file = part.with_name(f"{part.name}.{rank}.journal").open("w", encoding="utf-8")
        self._file.write(json.dumps(model) + "\n")
        self._file.flush()

    def add(
        self,
        rows: IntArray,
        paths: list[str],
        contents: list[ImageContent],
        vectors: Float32Array,
    ) -> None:
        """Note rows that were written."""
        line = {
            "rows": rows.tolist(),
            "paths": paths,
            "contents": contents,
            "checksum": checksum(np.ascontiguousarray(vectors, dtype=np.float32)),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def unfinished_rows(part: Path, model: str) -> tuple[ImageTable, Float32Array]:
    """The images and vectors that an interrupted pass of the same model had finished."""
    images, rows = ImageTable(), list[int]()
    nothing = images, np.empty((0, 1), dtype=np.float32)
    try:
        vectors = map_vectors(part)
    except (OSError, CheckpointError):
        return nothing
    for journal in sorted(part.parent.glob(f"{part.name}.*.journal")):
        try:
            first, *lines = journal.read_text(encoding="utf-8").splitlines()
            if json.loads(first) != model:
                continue
        except (OSError, ValueError):
            continue
        for line in lines:
            _add_line(line, vectors, images, rows)
    return (images, vectors[rows]) if rows else nothing


def _add_line(line: str, vectors: Float32Array, images: ImageTable, rows: list[int]) -> None:
    try:
        entry: dict[str, Any] = json.loads(line)
        contents = [ImageContent(*content) for content in entry["contents"]]
        done = [int(row) for row in entry["rows"]]
        whole = checksum(vectors[done]) == entry["checksum"]
    except (ValueError, KeyError, TypeError, IndexError):
        return
    if whole and len(done) == len(contents) == len(entry["paths"]):
        images.paths.extend(entry["paths"])
        images.contents.extend(contents)
        rows.extend(done)
