"""The owner of an index directory: its file names, its lock, and how a change becomes visible all at once.

    INDEX/
      index.json              names the files below; replacing it is the moment a change takes place
      items-<n>.parquet       a manifest of the images, with the row of each in the vector file
      vectors-<n>.f32         float32 rows, appended to; rows past index.json's count are ignored
      engine-<n>.faiss        the engine's own file, where it has one
      model-<n>/              the model that made the vectors, so that new images can be embedded
      outside-<n>.json        what the engine keeps elsewhere: a Milvus collection, a PostgreSQL table
      .lock                   held while the index is changed

A change holds the lock, reads ``index.json`` as it is then, writes and flushes new files, replaces
``index.json``, and removes the old files. Readers take no lock: a reader that has the old files open can go
on reading them, because nothing that ``index.json`` ever counted is rewritten. A killed change leaves files
that nothing names; the next change removes them. Nothing here is a pickle.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from happier.data import Manifest
from happier.errors import HappierError, SearchError
from happier.search.engine import (
    Positions,
    SearchEngine,
    Settings,
    VectorArray,
    discard_outside,
    open_engine,
)
from happier.search.index_json import FORMAT, HEAD_FILE, IndexHead, read_head, write_head
from happier.search.items import read_items, write_items
from happier.search.settings import check_settings, outside_name
from happier.search.vector_file import block_checksums, check_vectors_on_disk, open_vectors, write_vectors
from happier.storage.atomic import remove_leftovers, sync
from happier.storage.checksum import file_checksum
from happier.storage.disk_errors import disk_errors
from happier.storage.lock import LOCK_FILE, locked
from happier.storage.records import Record, check_record, read_json, write_json

if TYPE_CHECKING:
    from happier.encoder import Encoder

log = logging.getLogger(__name__)
# "model" is that of format 1.
_OURS = re.compile(r"(?:items|vectors|engine|model|outside)-(\d+)(?:\.[a-z0-9]+)?|model")
_BEING_WRITTEN = re.compile(r"\.(.+)\.[^.]+\.part")
# What killed builds of earlier versions left beside an index.
_LEFT_BESIDE = re.compile(r"\.[a-z0-9_]{8}\.(?:old|vectors)")


class IndexStore:
    """An index directory.

    Attributes:
        directory: the place.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory).absolute()

    def exists(self) -> bool:
        """Whether there is an index."""
        return (self.directory / HEAD_FILE).is_file()

    def head(self) -> IndexHead:
        """What ``index.json`` says now.

        Raises:
            SearchError: not an index, or a damaged one.
        """
        return read_head(self.directory)

    def stamp(self) -> tuple[int, ...]:
        """Changes whenever ``index.json`` is replaced: what it takes to see that without reading it.

        Raises:
            SearchError: there is no index.
        """
        try:
            status = (self.directory / HEAD_FILE).stat()
        except OSError as error:
            raise SearchError(f"no index at {self.directory}: {error.strerror}") from error
        return status.st_ino, status.st_mtime_ns, status.st_size

    def vectors(self, head: IndexHead, *, trusted: IndexHead | None = None) -> VectorArray:
        """The vectors ``[rows, D]``, mapped and compared with their checksums.

        Args:
            head: which.
            trusted: a state whose blocks of the same file were compared already.

        Raises:
            SearchError: the file is missing, too short or damaged.
        """
        path = self.directory / head.vectors
        vectors = open_vectors(path, rows=head.rows, dim=head.dim)
        if head.vector_checksums or head.format > 1:
            same = trusted is not None and (trusted.uid, trusted.vectors) == (head.uid, head.vectors)
            known = trusted.vector_checksums if same and trusted is not None else ()
            check_vectors_on_disk(path, vectors, head.vector_checksums, trusted=known)
        return vectors

    def items(self, head: IndexHead) -> tuple[Manifest, Positions]:
        """The images and the row of each in the vector file.

        Raises:
            SearchError: the file is missing or damaged.
        """
        self._compare(head, head.items)
        return read_items(self.directory / head.items, root=head.root, rows=head.rows)

    def engine(self, head: IndexHead) -> SearchEngine:
        """The engine.

        Raises:
            SearchError: its file is missing or damaged, or its server does not answer.
        """
        if "file" in head.settings:
            self._compare(head, head.settings["file"])
        return open_engine(head.engine, self.directory, head.settings)

    def model(self, head: IndexHead) -> Path:
        """Folder of the model.

        Raises:
            SearchError: there is none, or its files are damaged.
        """
        if head.model is None:
            raise SearchError("this index has no model: search by vector or by id")
        for name in head.checksums:
            if name.startswith(f"{head.model}/"):
                self._compare(head, name)
        return self.directory / head.model

    def _compare(self, head: IndexHead, name: str) -> None:
        """Compare a file with its checksum, where there is one."""
        path = self.directory / name
        expected = head.checksums.get(name)
        if expected is None and head.format > 1:
            raise SearchError(f"{self.directory / HEAD_FILE} is damaged: it has no checksum of {name}")
        try:
            if expected is not None and file_checksum(path) != expected:
                raise SearchError(f"{path} is damaged: it differs from its checksum; build the index again")
        except OSError as error:
            raise SearchError(f"cannot read {path}: {error.strerror}; build the index again") from error

    def check_target(self, *, overwrite: bool) -> None:
        """Check that a new index may be written here.

        Raises:
            SearchError: something exists there and may not be replaced.
        """
        path = self.directory
        with disk_errors(path, error=SearchError):
            if not path.exists() and not path.is_symlink():
                return
            if (path / HEAD_FILE).is_file():
                if not overwrite:
                    raise SearchError(f"{path} already exists; use --overwrite to replace it")
                return
            # Only ever write into a folder of our own: a mistyped path must not cost anybody a file.
            if not path.is_dir() or not all(_unfinished(entry.name) for entry in path.iterdir()):
                raise SearchError(f"{path} already exists and is not an index")

    @contextmanager
    def changing(self, *, new: bool = False, overwrite: bool = False) -> Iterator[IndexChange]:
        """Hold the lock and prepare a change; what it wrote is removed where the block fails.

        Args:
            new: write a whole index; else the index must be there.
            overwrite: the new index may replace one.

        Raises:
            SearchError: there is no index to change, or the place is taken or cannot be written to.
        """
        if new:
            self.check_target(overwrite=overwrite)
        else:
            self.head()  # do not make a folder for the lock where there is no index
        made = not self.directory.exists()
        with disk_errors(self.directory, error=SearchError), locked(self.directory):
            base = None
            try:
                if new:
                    self.check_target(overwrite=overwrite)
                base = self._base(required=not new)
                change = IndexChange(self, base, 1 + (base.generation if base else self._last_number()))
                self._remove_leftovers(base)
                yield change
            except BaseException:
                self._remove_leftovers(base)
                if made and not (self.directory / HEAD_FILE).exists():
                    with suppress(OSError):
                        (self.directory / LOCK_FILE).unlink()
                        self.directory.rmdir()
                raise

    def clean_up(self) -> None:
        """Remove what killed changes left, where a command has nothing else to change.

        Raises:
            SearchError: there is no index, or it cannot be written to.
        """
        with self.changing():
            pass

    def _base(self, *, required: bool) -> IndexHead | None:
        try:
            return self.head()
        except SearchError:
            if required:
                raise
            return None  # nothing there, or a damaged index that is being replaced

    def _last_number(self) -> int:
        """The highest generation that any file is named after: readers may still have it open."""
        found = [_OURS.fullmatch(entry.name) for entry in self.directory.iterdir()]
        return max((int(match[1]) for match in found if match and match[1]), default=0)

    def _remove_leftovers(self, base: IndexHead | None) -> None:
        """Remove what killed or failed changes left; a damaged index keeps its files until it is replaced."""
        remove_leftovers(self.directory)
        for entry in list(self.directory.iterdir()):
            if being_written := _BEING_WRITTEN.fullmatch(entry.name):
                remove_leftovers(self.directory / being_written[1])
        there = (self.directory / HEAD_FILE).exists()
        if base is not None or not there:
            self.remove_stale()
        if there:
            start = f".{self.directory.name}"
            for entry in list(self.directory.parent.iterdir()):
                if entry.name.startswith(start) and _LEFT_BESIDE.fullmatch(entry.name[len(start) :]):
                    shutil.rmtree(entry, ignore_errors=True)

    def remove_stale(self) -> None:
        """Remove all files that ``index.json`` does not name, and what they say is kept elsewhere."""
        head = self.head() if (self.directory / HEAD_FILE).exists() else None
        keep = {head.items, head.vectors, head.model, head.settings.get("file")} if head else set()
        for path in list(self.directory.iterdir()):
            if not _OURS.fullmatch(path.name) or path.name in keep:
                continue
            if path.name.startswith("outside-"):
                self._discard_outside(path, head)
            elif path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _discard_outside(self, path: Path, head: IndexHead | None) -> None:
        """Remove an engine's data elsewhere unless it is in use; where that fails, leave it for next time."""
        try:
            note = _read_outside(path)
            if head is not None and outside_name(head.settings) == outside_name(note.settings):
                return
            check_settings(note.engine, note.settings, path)
            discard_outside(note.engine, note.settings)
        except HappierError as error:
            log.warning("%s: old data of the engine could not be removed yet: %s", self.directory, error)
            return
        path.unlink(missing_ok=True)

    def note_outside(self, engine: str, settings: Settings) -> None:
        """Remember what an engine keeps elsewhere, so that it is removed when nothing names it any more."""
        taken = {path.name for path in self.directory.glob("outside-*.json")}
        for name in taken:
            with suppress(SearchError):  # damaged: it stays for a person to look at
                if outside_name(_read_outside(self.directory / name).settings) == outside_name(settings):
                    return
        number = next(number for number in count(1) if f"outside-{number}.json" not in taken)
        note = _Outside(engine=engine, settings=settings)
        write_json(note.model_dump(), self.directory / f"outside-{number}.json")


class _Outside(Record):
    """What an engine keeps outside the index's directory."""

    engine: str
    settings: dict[str, Any]


def _read_outside(path: Path) -> _Outside:
    return check_record(read_json(path, error=SearchError), _Outside, path, error=SearchError)


class IndexChange:
    """A change of an index, made under its lock.

    Attributes:
        store: the index directory.
        base: the state that is changed; None for a new index, or where a damaged one is replaced.
        generation: the number of the state that is being made.
    """

    def __init__(self, store: IndexStore, base: IndexHead | None, generation: int) -> None:
        self.store = store
        self.base = base
        self.generation = generation

    def write_vectors(self, vectors: VectorArray) -> tuple[str, list[str]]:
        """Write a new vector file; its name and checksums."""
        name = f"vectors-{self.generation}.f32"
        write_vectors(self.store.directory / name, vectors, after=0)
        return name, block_checksums(vectors)

    def append_vectors(self, vectors: VectorArray) -> tuple[VectorArray, list[str]]:
        """Write rows behind those of the present vector file; all its rows and their checksums."""
        assert self.base is not None
        path = self.store.directory / self.base.vectors
        write_vectors(path, vectors, after=self.base.rows)
        rows = self.base.rows + len(vectors)
        everything = open_vectors(path, rows=rows, dim=self.base.dim)
        known = self.base.vector_checksums
        return everything, block_checksums(everything, known=known, known_rows=self.base.rows)

    def write_items(self, manifest: Manifest, positions: Positions) -> str:
        """Write the images; the name of their file."""
        name = f"items-{self.generation}.parquet"
        write_items(self.store.directory / name, manifest, positions)
        return name

    def write_model(self, encoder: Encoder) -> str:
        """Write a copy of a model; the name of its folder."""
        name = f"model-{self.generation}"
        encoder.save_pretrained(self.store.directory / name)
        return name

    def write_engine(self, engine: SearchEngine) -> None:
        """Write what the engine keeps in files."""
        engine.write(self.store.directory, f"engine-{self.generation}")

    def commit(self, head: IndexHead) -> IndexHead:
        """Replace ``index.json``, then remove what it no longer names."""
        directory = self.store.directory
        names = [head.items]
        if "file" in head.settings:
            names.append(head.settings["file"])
        if head.model is not None:
            names += [f"{head.model}/{path.name}" for path in sorted((directory / head.model).iterdir())]
        # A file of the present state keeps its checksum: computing it again would hide damage.
        known = self.base.checksums if self.base else {}
        checksums = {}
        for name in names:
            if name not in known:
                sync(directory / name)
            checksums[name] = known.get(name) or file_checksum(directory / name)
        head = head.model_copy(update={"format": FORMAT, "checksums": checksums})
        if self.base is not None and outside_name(self.base.settings):
            self.store.note_outside(self.base.engine, self.base.settings)
        sync(directory)
        write_head(directory, head)
        self.base = head
        self.store.remove_stale()
        return head


def _unfinished(name: str) -> bool:
    """Whether this is what a killed build leaves in a new folder."""
    part = _BEING_WRITTEN.fullmatch(name)
    inside = part[1] if part else name
    return inside in (LOCK_FILE, HEAD_FILE) or (inside != "model" and _OURS.fullmatch(inside) is not None)
