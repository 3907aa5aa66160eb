"""The next generation of a directory of vectors: what exists is copied, the rest is computed."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from torch import Tensor

from happier import distributed
from happier.arrays import Float32Array, IntArray
from happier.data import Manifest
from happier.data.manifest import RESERVED
from happier.errors import UnreadableImagesError
from happier.storage.atomic import atomic_file, remove, sync
from happier.storage.checksum import checksum, file_checksum
from happier.storage.disk_errors import disk_errors
from happier.storage.records import write_record
from happier.vectors.generation import FILE_PATTERN, FORMAT, Generation, GenerationHead, ModelKey, StoredFile
from happier.vectors.image_content import ImageContent
from happier.vectors.image_pass import PassOptions, VectorBatch, run_pass
from happier.vectors.journal import Journal, unfinished_rows
from happier.vectors.npy import create_vectors, map_vectors, write_rows
from happier.vectors.reuse import Plan, Source, plan_rows

if TYPE_CHECKING:
    from happier.data import ImageTransform
    from happier.progress import Progress
    from happier.vectors.fixed_views import ViewTransform

__all__ = ["VectorModel", "VectorWriter", "remove_unfinished"]

log = logging.getLogger(__name__)
_UNFINISHED_PATTERN: Final = r"^\..*\.(part|journal)$"
_PART_PATTERN: Final = r"^\.(embeddings|features)-([0-9]+)\.npy\.part$"


@dataclass(frozen=True)
class VectorModel:
    """What makes vectors of images.

    Attributes:
        key: see `ModelKey`.
        transform: pixels of one image -> a tensor ``[3, H, W]``.
        running: number of images -> a context in which batches ``[B, 3, H, W]`` become vectors ``[B, D]``.
        ready: files -> their vectors by a shorter way, where there is one.
    """

    key: ModelKey
    transform: ImageTransform | ViewTransform
    running: Callable[[int], AbstractContextManager[Callable[[Tensor], Float32Array]]]
    ready: Callable[[list[str], PassOptions], Iterable[VectorBatch]] | None = None


@dataclass(frozen=True)
class PendingRows:
    """What every rank is given: the file to write into, and all rows to compute with their images."""

    part: Path
    rows: IntArray
    paths: list[str]


class VectorWriter:
    """Writes one generation: `prepare` and `publish` on the first rank, `compute` on every rank.

    Args:
        directory: the directory, whose lock the first rank holds.
        kind: ``embeddings`` or ``features``.
        model: what makes the vectors.
        manifest: the rows that are wanted.
    """

    def __init__(self, directory: Path, kind: str, model: VectorModel, manifest: Manifest) -> None:
        self.directory, self.kind = directory, kind
        self.model, self.manifest = model, manifest
        self._model_text: Final = model.key.model_dump_json()
        self._generation = 0
        self._plan: Plan | None = None

    def prepare(self, current: Generation | None, *, keep: bool) -> PendingRows | None:
        """Plan the generation and copy what exists; None where nothing needs to be computed or moved.

        Args:
            current: the generation before it, where it is of this model.
            keep: keep its other images, too.

        Raises:
            ImageError: an image is missing.
            OSError: there is not enough space.
        """
        sources = [] if current is None else [Source(current.images, current.vectors)]
        numbers = [0] if current is None else [current.head.generation]
        for entry in sorted(self.directory.iterdir()):
            if found := re.match(_PART_PATTERN, entry.name):
                sources.append(Source(*unfinished_rows(entry, self._model_text)))
            if found := found or re.match(FILE_PATTERN, entry.name):
                numbers.append(int(found[2]))
        self._generation = max(numbers) + 1
        plan = self._plan_rows([source for source in sources if len(source.images)], current, keep=keep)
        self._plan = plan
        if current is not None and plan.only_repeats(sources[0]):
            # The vectors stay: other labels, another selection, or new times of the same content.
            if self._is_same(plan, current):
                self._remove_leftovers(current.head)
            else:
                self._write_head(current.head.vectors, plan)
            return None
        create_vectors(self._part, len(plan.images), self.model.key.dim)
        for copy in plan.copies:
            write_rows(self._part, copy.ours, copy.source.vectors[copy.theirs])
        return PendingRows(self._part, plan.missing, [plan.images.paths[row] for row in plan.missing])

    def compute(
        self, pending: PendingRows, options: PassOptions, progress: Progress | None
    ) -> list[ImageContent]:
        """Compute this rank's part of the rows; return what its files held, in their order.

        Raises:
            ImageError: an image cannot be read; `UnreadableImagesError` after a pass to the end.
            DataError: the disk is full.
        """
        first, last = distributed.shard(len(pending.rows))
        contents: list[ImageContent] = []
        unreadable: dict[str, str] = {}
        if first == last:
            return contents
        paths, rows = pending.paths[first:last], pending.rows[first:last]
        with (
            disk_errors(self.directory),
            Journal(pending.part, distributed.rank(), self._model_text) as journal,
            self._batches(paths, options) as batches,
        ):
            for batch in batches:
                start = len(contents) + len(unreadable)
                places = np.arange(start, start + len(batch.contents) + len(batch.unreadable))
                for place, reason in batch.unreadable.items():
                    unreadable[paths[start + place]] = reason
                if len(batch.contents):
                    done = np.delete(places, list(batch.unreadable))
                    write_rows(pending.part, rows[done], batch.vectors)
                    journal.add(rows[done], [paths[place] for place in done], batch.contents, batch.vectors)
                contents.extend(batch.contents)
                if progress is not None:
                    progress(len(contents) + len(unreadable), len(paths))
        if unreadable:
            raise UnreadableImagesError(unreadable)
        assert len(contents) == len(paths)
        return contents

    @contextmanager
    def _batches(self, paths: list[str], options: PassOptions) -> Iterator[Iterable[VectorBatch]]:
        if self.model.ready is not None:
            yield self.model.ready(paths, options)
            return
        with self.model.running(len(paths)) as compute:
            yield run_pass(paths, self.model.transform, compute, options)

    def publish(self, contents: list[list[ImageContent]]) -> None:
        """Make the generation current; ``contents`` are those of every rank."""
        plan = self._plan
        assert plan is not None
        computed = [content for share in contents for content in share]
        for row, content in zip(plan.missing, computed, strict=True):
            plan.images.contents[row] = content
        sync(self._part)
        vectors = map_vectors(self._part, (len(plan.images), self.model.key.dim))
        file = StoredFile(name=f"{self.kind}-{self._generation}.npy", checksum=checksum(vectors))
        self._part.rename(self.directory / file.name)
        self._write_head(file, plan)

    def changes_nothing(self, current: Generation, *, keep: bool) -> bool:
        """Whether the current generation is what `publish` would make.

        Raises:
            ImageError: an image is missing.
        """
        if self._leftovers(current.head):
            return False  # an interrupted writer left something to use or to remove
        source = Source(current.images, current.vectors)
        plan = self._plan_rows([source], current, keep=keep)
        return plan.only_repeats(source) and self._is_same(plan, current)

    def _plan_rows(self, sources: list[Source], current: Generation | None, *, keep: bool) -> Plan:
        paths = [str(path) for path in self.manifest.files()]
        return plan_rows(paths, sources, kept=current.images if keep and current is not None else None)

    def _is_same(self, plan: Plan, current: Generation) -> bool:
        return (
            plan.images == current.images
            and np.array_equal(_or_empty(plan.rows), _or_empty(current.rows))
            and _same_manifest(self.manifest, current.manifest)
        )

    @property
    def _part(self) -> Path:
        return self.directory / f".{self.kind}-{self._generation}.npy.part"

    def _write_head(self, vectors: StoredFile, plan: Plan) -> None:
        number, rows = self._generation, plan.rows
        head = GenerationHead(
            format=FORMAT,
            generation=number,
            model=self.model.key,
            vectors=vectors,
            images=self._write(f"images-{number}.parquet", plan.images.write),
            items=self._write(f"items-{number}.parquet", self.manifest.write),
            rows=None if rows is None else self._write(f"rows-{number}.npy", lambda path: _save(path, rows)),
        )
        sync(self.directory)
        write_record(head, self.directory / f"{self.kind}.json")
        self._remove_leftovers(head)

    def _write(self, name: str, write: Callable[[Path], Any]) -> StoredFile:
        path = self.directory / name
        write(path)
        sync(path)
        return StoredFile(name=name, checksum=file_checksum(path))

    def _leftovers(self, head: GenerationHead) -> list[Path]:
        """Other generations, and what an interrupted writer left."""
        current = {file.name for file in head.files()}
        ours = rf"{FILE_PATTERN}|{_UNFINISHED_PATTERN}|^(embeddings\.npy|items\.parquet)$"
        return [
            entry
            for entry in self.directory.iterdir()
            if re.search(ours, entry.name) and entry.name not in current
        ]

    def _remove_leftovers(self, head: GenerationHead) -> None:
        for entry in self._leftovers(head):
            remove(entry)


def remove_unfinished(directory: Path) -> None:
    """Remove what was not finished: the holder of the directory's lock is the only writer there."""
    for entry in directory.iterdir():
        if re.match(_UNFINISHED_PATTERN, entry.name):
            remove(entry)


def _save(path: Path, rows: IntArray) -> None:
    with atomic_file(path) as part, part.open("wb") as file:
        np.save(file, rows)


def _same_manifest(one: Manifest, other: Manifest) -> bool:
    """Whether paths, splits, ids and labels are the same; further columns do not count."""

    def facts(rows: Manifest) -> tuple[Any, ...]:
        columns = [name for name in (*RESERVED, *rows.levels) if name in rows.table and name != "path"]
        texts = [rows.table[name].astype(object).tolist() for name in columns]
        return rows.levels, rows.name, rows.credits, rows.files(), columns, texts

    return facts(one) == facts(other)


def _or_empty(rows: IntArray | None) -> IntArray:
    return np.empty(0, dtype=np.int64) if rows is None else rows
