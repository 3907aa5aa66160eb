"""Which vectors exist already: every image is looked up by its content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from happier.arrays import Float32Array, IntArray
from happier.vectors.image_content import ImageContent, ImageTable, image_contents

__all__ = ["Plan", "Source", "plan_rows"]

_NOT_READ: Final = ImageContent(-1, -1, -1, -1, "")


class Source(NamedTuple):
    """Vectors of some images, from which others may be taken."""

    images: ImageTable
    vectors: Float32Array


class Copy(NamedTuple):
    """Rows ``theirs`` of a source become our rows ``ours``."""

    source: Source
    theirs: IntArray
    ours: IntArray


@dataclass(frozen=True)
class Plan:
    """The rows of the next generation.

    Attributes:
        images: their files; the contents of missing ones are not known yet.
        rows: the row of each wanted image; None where they are the same.
        copies: rows whose vectors exist.
        missing: rows that are to be computed.
    """

    images: ImageTable
    rows: IntArray | None
    copies: list[Copy]
    missing: IntArray

    def only_repeats(self, source: Source) -> bool:
        """Whether the rows are those of one source, in its order."""
        if len(self.missing) or len(self.copies) != 1 or len(self.images) != len(source.images):
            return False
        copy = self.copies[0]
        return copy.source is source and np.array_equal(copy.theirs, copy.ours)


def plan_rows(paths: Sequence[str], sources: Sequence[Source], *, kept: ImageTable | None) -> Plan:
    """Find a vector for every image.

    Args:
        paths: the images that are wanted.
        sources: where vectors are; the first that has an image's content gives its vector.
        kept: images of the first source that stay, wanted or not, unless their content changed.

    Raises:
        ImageError: a file is missing or cannot be read.
    """
    known = {
        path: content
        for images, _ in reversed(sources)
        for path, content in zip(images.paths, images.contents, strict=True)
    }
    contents = image_contents(paths, known) if sources else [_NOT_READ] * len(paths)
    table = _unchanged(kept, dict(zip(paths, contents, strict=True))) if kept else ImageTable()
    place = {path: row for row, path in enumerate(table.paths)}
    rows = np.empty(len(paths), dtype=np.int64)
    for wanted, (path, content) in enumerate(zip(paths, contents, strict=True)):
        if not kept or path not in place:
            place[path] = len(table)
            table.paths.append(path)
            table.contents.append(content)
        rows[wanted] = place[path]
    in_order = len(rows) == len(table) and np.array_equal(rows, np.arange(len(rows)))
    copies, missing = _find_vectors(table, sources)
    return Plan(table, None if in_order else rows, copies, missing)


def _unchanged(kept: ImageTable, now: dict[str, ImageContent]) -> ImageTable:
    table = ImageTable()
    for path, content in zip(kept.paths, kept.contents, strict=True):
        current = now.get(path, content)
        if current.hash == content.hash:
            table.paths.append(path)
            table.contents.append(current)
    return table


def _find_vectors(table: ImageTable, sources: Sequence[Source]) -> tuple[list[Copy], IntArray]:
    found = np.zeros(len(table), dtype=bool)
    copies = []
    for source in sources:
        known = source.images.contents
        by_hash = {content.hash: row for row, content in enumerate(known)}
        ours, theirs = [], []
        for row, content in enumerate(table.contents):
            if not found[row] and content.hash in by_hash:
                # Equal content may be in several rows: prefer the same row, so that nothing moves.
                same = row < len(known) and known[row].hash == content.hash
                ours.append(row)
                theirs.append(row if same else by_hash[content.hash])
        if ours:
            found[ours] = True
            copies.append(Copy(source, np.array(theirs), np.array(ours)))
    return copies, np.flatnonzero(~found)
