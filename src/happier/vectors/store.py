"""A directory of vectors of images, which one writer at a time changes and any number of readers open.

    <kind>.json             the head: which model made the vectors, and the files of the current generation
    <kind>-<n>.npy          float32 [N, D], memory-mapped
    images-<n>.parquet      the file each row was computed from: path, size, times, hash of its content
    items-<n>.parquet       the manifest that was embedded
    rows-<n>.npy            the row of the vectors of each of its rows, where that is not its own number
    .<kind>-<n>.npy.part    a generation being written; beside it each rank's journal of the rows done

``<kind>`` is ``embeddings`` or ``features``. A file is never changed once the head names it: a writer makes
the next generation and replaces the head, so a reader keeps what it opened, and a kill leaves the old state
or the new. The next writer uses what an interrupted one had finished.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from happier.arrays import Float32Array
from happier.data import Manifest
from happier.distributed import on_all_ranks, on_first_rank, rank
from happier.errors import CheckpointError, DataError, HappierError, UnreadableImagesError
from happier.storage.atomic import remove_leftovers
from happier.storage.disk_errors import disk_errors
from happier.storage.lock import LOCK_FILE, locked
from happier.storage.records import read_json, read_record
from happier.vectors.generation import (
    FILE_PATTERN,
    FORMAT,
    Generation,
    GenerationHead,
    ModelKey,
    OldGenerationHead,
    open_generation,
)
from happier.vectors.image_content import ImageContent
from happier.vectors.image_pass import PassOptions
from happier.vectors.npy import map_vectors
from happier.vectors.writer import PendingRows, VectorModel, VectorWriter, remove_unfinished

if TYPE_CHECKING:
    from happier.progress import Progress

__all__ = ["StoredVectors", "VectorStore"]

log = logging.getLogger(__name__)
_AGAIN: Final = "embed again"


@dataclass(frozen=True)
class StoredVectors:
    """The vectors of a manifest's rows.

    Attributes:
        fingerprint: of the model that made them.
        vectors: float32 ``[N, D]``; mapped from disk where they are stored in the manifest's order.
        manifest: the rows.
        key: all that the vectors depend on; None in old directories, which do not say.
        contents: what the rows' images held when they were embedded; empty in old directories.
    """

    fingerprint: str
    vectors: Float32Array
    manifest: Manifest
    key: ModelKey | None
    contents: tuple[ImageContent, ...] = ()


class VectorStore:
    """The owner of a directory of vectors.

    Args:
        directory: where it is, or will be.
        kind: what the files are called.
    """

    def __init__(self, directory: Path | str, kind: Literal["embeddings", "features"] = "embeddings") -> None:
        self.directory: Final = Path(directory)
        self.kind: Final = kind
        self.head_file: Final = self.directory / f"{kind}.json"

    def exists(self) -> bool:
        """Whether there is a finished generation."""
        return self.head_file.is_file()

    def read(self) -> StoredVectors:
        """Open the current generation; checksums are compared, the vectors stay on disk.

        Raises:
            CheckpointError: there is none, or a file is damaged.
        """
        if not self.exists():
            raise CheckpointError(
                f"{self.directory} is not a directory of {self.kind}: there is no {self.head_file.name}; "
                "make one with `happier embed`"
            )
        if self._format() == 1:
            return self._read_format_1()
        current = self._open()
        key, vectors, contents = current.head.model, current.vectors, tuple(current.images.contents)
        if current.rows is not None:
            vectors, contents = vectors[current.rows], tuple(contents[row] for row in current.rows)
        return StoredVectors(key.fingerprint, vectors, current.manifest, key, contents)

    def read_key(self) -> ModelKey | None:
        """What the vectors depend on; None in old directories, and where the head is damaged."""
        try:
            return (
                None
                if self._format() == 1
                else read_record(self.head_file, GenerationHead, hint=_AGAIN).model
            )
        except CheckpointError:
            return None

    def update(
        self,
        model: VectorModel,
        manifest: Manifest,
        *,
        options: PassOptions,
        keep: bool = False,
        progress: Progress | None = None,
    ) -> StoredVectors:
        """The vectors of a manifest's rows; only images that are new or changed go through the model.

        Under ``torch.distributed`` every rank calls this and computes its part.

        Args:
            model: what makes them.
            manifest: the rows.
            options: how images are read.
            keep: the directory is a cache: the vectors of other images of this model stay, too.
            progress: called with this rank's images done and their number.

        Raises:
            ImageError: an image cannot be read; the directory stays as it was. After a pass to the end it is
                `UnreadableImagesError`, and the next pass uses what this one computed.
            DataError: the directory holds something else, or cannot be written to.
        """
        writer = VectorWriter(self.directory, self.kind, model, manifest)

        def prepare() -> PendingRows | None:
            self._check_place()
            return writer.prepare(self._current(model.key), keep=keep)

        # Nothing to do needs no lock, and no place that can be written to.
        if on_first_rank(lambda: self._is_up_to_date(writer, keep=keep)):
            return self._read_rows(manifest)
        with self._writing(to_the_end=options.to_the_end) if rank() == 0 else nullcontext():
            pending = on_first_rank(prepare)
            if pending is not None:
                contents = on_all_ranks(lambda: writer.compute(pending, options, progress))
                on_first_rank(lambda: writer.publish(contents))
            # Every rank has opened the vectors before another writer may start.
            found = self._read_rows(manifest)
            on_all_ranks(lambda: None)
        return found

    def _is_up_to_date(self, writer: VectorWriter, *, keep: bool) -> bool:
        try:
            if not self.exists() or self._format() == 1:
                return False
            current = self._open()
        except HappierError:
            return False  # `_current` says so when it is made anew
        return current.head.model == writer.model.key and writer.changes_nothing(current, keep=keep)

    def _read_rows(self, manifest: Manifest) -> StoredVectors:
        """The current vectors with the labels of this manifest, whose rows they are."""
        return replace(self.read(), manifest=manifest)

    @contextmanager
    def _writing(self, *, to_the_end: bool) -> Iterator[None]:
        """Hold the lock. What is unfinished stays after an interruption, and after a pass to the end."""
        existed = self.directory.exists()
        if existed and not self.directory.is_dir():
            raise DataError(f"{self.directory} is a file; choose a directory")
        with locked(self.directory), disk_errors(self.directory):
            try:
                yield
            except Exception as error:
                if to_the_end and isinstance(error, UnreadableImagesError):
                    raise
                with suppress(OSError):  # the first error says more; the next command removes the rest
                    self._remove_unfinished(existed=existed)
                raise

    def _remove_unfinished(self, *, existed: bool) -> None:
        remove_unfinished(self.directory)
        if not existed and {entry.name for entry in self.directory.iterdir()} <= {LOCK_FILE}:
            (self.directory / LOCK_FILE).unlink(missing_ok=True)
            self.directory.rmdir()

    def _check_place(self) -> None:
        """Fail on a directory of something else: nothing in it may be taken for ours and removed."""
        ours = rf"{FILE_PATTERN}|^\..*\.(part|journal)$|^{re.escape(LOCK_FILE)}$"
        if not self.exists() and any(not re.search(ours, path.name) for path in self.directory.iterdir()):
            raise DataError(f"{self.directory} exists and holds no {self.kind}; choose another directory")
        remove_leftovers(self.head_file)

    def _current(self, key: ModelKey) -> Generation | None:
        """The current generation, where it is whole and of this model."""
        if not self.exists():
            return None
        try:
            if self._format() == 1:
                log.warning("%s does not record its images' content; they are embedded again", self.directory)
                return None
            current = self._open()
        except HappierError as error:
            log.warning("%s; its images are embedded again", str(error).removesuffix(f"; {_AGAIN}"))
            return None
        return current if current.head.model == key else None

    def _format(self) -> int:
        head = read_json(self.head_file, hint=_AGAIN)
        return 1 if isinstance(head, dict) and head.get("format") == 1 else FORMAT

    def _read_format_1(self) -> StoredVectors:
        head = read_record(self.head_file, OldGenerationHead, hint=_AGAIN)
        try:
            manifest = Manifest.read(self.directory / "items.parquet")
            vectors = map_vectors(self.directory / "embeddings.npy", (len(manifest), head.dim))
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.directory} is damaged: {error.filename} is missing") from error
        return StoredVectors(head.fingerprint, vectors, manifest, None)

    def _open(self) -> Generation:
        head = read_record(self.head_file, GenerationHead, hint=_AGAIN)
        while True:
            try:
                return open_generation(self.directory, head)
            except FileNotFoundError as error:
                # A writer may have replaced the generation since its head was read.
                newest = read_record(self.head_file, GenerationHead, hint=_AGAIN)
                if newest == head:
                    name = Path(error.filename or "a file").name
                    raise CheckpointError(
                        f"{self.directory} is damaged: {name} is missing; {_AGAIN}"
                    ) from error
                head = newest
