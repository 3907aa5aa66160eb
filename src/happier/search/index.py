"""A searchable catalogue of images: vectors, their labels, and the model that made them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from happier.data import Manifest
from happier.errors import InputError, SearchError
from happier.search import store
from happier.search.branch import branches, rows_within, split_path
from happier.search.engine import Engine, Positions, Scope, Vectors, create_engine, open_engine
from happier.search.exact import rescore
from happier.search.items import POSITION, check_vectors, first_of_each_id, merge_items, write_items

if TYPE_CHECKING:
    from happier.encoder import Encoder

# Rebuild when more than this share of the rows belongs to deleted images.
MAX_DEAD_SHARE = 0.25


@dataclass(frozen=True)
class Hit:
    """One image found.

    Attributes:
        row: its row in `Index.items`.
        id: what identifies the image.
        path: of the file, as the manifest gives it.
        class_path: its class as ``coarse/.../fine``, down to what is known.
        score: cosine similarity with the query.
    """

    row: int
    id: str
    path: str
    class_path: str
    score: float


class Index:
    """A catalogue that can be searched by image, extended and thinned out.

    `build` makes one, `open` reads one. Each change is written as a whole before it shows; an index takes
    vectors of the model it was built with only.

    Attributes:
        directory: where it lives.
        head: what ``index.json`` says.
        items: manifest of the images, one row each.
        labels: int64 ``[N, L]`` class numbers of the items.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._encoder: Encoder | None = None
        self._encoder_lock = threading.Lock()
        self._load()

    @classmethod
    def open(cls, directory: Path | str) -> Index:
        """Read an index.

        Raises:
            SearchError: not an index, or a damaged one.
        """
        return cls(directory)

    @classmethod
    def build(
        cls,
        directory: Path | str,
        manifest: Manifest,
        vectors: Vectors,
        *,
        fingerprint: str,
        encoder: Encoder | None = None,
        engine: str = "flat",
        options: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> Index:
        """Write a new index.

        Args:
            directory: where to; it appears whole or not at all.
            manifest: the images, one row for each vector. Of rows with one id the first is kept.
            vectors: float ``[N, D]``, unit length.
            fingerprint: of the model that made the vectors.
            encoder: that model; a copy is kept so that `search_images` works.
            engine: ``flat`` (exact), ``hnsw``, ``ivfpq`` or ``milvus``.
            options: of the engine.
            overwrite: replace an index that is there.

        Raises:
            InputError: the vectors do not fit the manifest or are not unit vectors.
            OptionError: an unknown engine or option.
            SearchError: the place is taken or cannot be written to.
        """
        directory = Path(directory)
        store.check_target(directory, overwrite=overwrite)
        old = open_or_none(directory)
        manifest, vectors = first_of_each_id(manifest, check_vectors(vectors, rows=len(manifest)))
        if encoder is not None and encoder.fingerprint != fingerprint:
            raise SearchError("the encoder is not the model that made the vectors: their fingerprints differ")
        chosen = dict(options or {})
        built = create_engine(
            engine, dim=vectors.shape[1], depth=len(manifest.levels), rows=len(vectors), options=chosen
        )
        try:
            with store.new_directory(directory, overwrite=overwrite) as part:
                built.add(vectors, branches(manifest), start=0)
                if encoder is not None:
                    encoder.save_pretrained(part / "model")
                head = store.Head(
                    uid=uuid.uuid4().hex,
                    generation=1,
                    rows=len(vectors),
                    dim=int(vectors.shape[1]),
                    fingerprint=fingerprint,
                    root=str(manifest.root),
                    engine=engine,
                    options=chosen,
                    settings=built.write(part, "engine-1"),
                    items="items-1.parquet",
                    vectors="vectors-1.f32",
                    model="model" if encoder is not None else None,
                )
                store.append_vectors(part / head.vectors, vectors, after=0)
                write_items(part / head.items, manifest, np.arange(len(vectors)))
                store.write_head(part, head)
        except BaseException:
            built.discard()
            raise
        built.close()
        if old is not None:
            old._engine.discard()
        return cls(directory)

    def _load(self) -> None:
        # A change may remove the files between our reading of index.json and theirs: then read it again.
        for last_try in (False, True):
            self.head = store.read_head(self.directory)
            try:
                table = pd.read_parquet(self.directory / self.head.items)
                self.items = Manifest.read(self.directory / self.head.items, root=self.head.root)
                self._vectors = store.open_vectors(self.directory, self.head)
                self._engine: Engine = open_engine(self.head.engine, self.directory, self.head.settings)
                break
            except (SearchError, OSError):
                if last_try or store.read_head(self.directory).generation == self.head.generation:
                    raise
        self._positions: Positions = table[POSITION].to_numpy(dtype=np.int64)
        self.labels = self.items.labels()
        self._ids = [str(one) for one in self.items.ids()]
        self._row_of_id = {one: row for row, one in enumerate(self._ids)}
        self._row_of_position = np.full(self.head.rows, -1, dtype=np.int64)
        self._row_of_position[self._positions] = np.arange(len(self._positions))
        self._paths = self.items.table["path"].tolist()
        self._class_paths = self.items.class_paths()
        self._scopes: dict[str, Scope] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"Index({str(self.directory)!r}, {len(self)} images, engine {self.head.engine!r})"

    @property
    def levels(self) -> tuple[str, ...]:
        """Level names, coarse first."""
        return self.items.levels

    @property
    def ids(self) -> list[str]:
        """What identifies the image of each row."""
        return self._ids

    @property
    def class_paths(self) -> list[str]:
        """The class of each row as ``coarse/.../fine``."""
        return self._class_paths

    @property
    def exact(self) -> bool:
        """Whether the engine compares with every vector."""
        return self._engine.exact

    @property
    def vectors(self) -> Vectors:
        """The vectors of the items, in their order; the file itself where no image was ever deleted."""
        if len(self._positions) == self.head.rows:
            return self._vectors
        return self._vectors[self._positions]

    def row(self, item_id: str) -> int:
        """Row of an image by its id.

        Raises:
            SearchError: there is no such image.
        """
        try:
            return self._row_of_id[item_id]
        except KeyError:
            raise SearchError(f"the index has no image with the id {item_id!r}") from None

    def vector(self, row: int) -> Vectors:
        """The vector ``[D]`` of one row."""
        return np.array(self._vectors[self._positions[row]])

    def scores(self, query: Vectors) -> Vectors:
        """Inner products ``[N]`` of one query with the vectors of all items."""
        scores: Vectors = self._vectors @ query
        # Not the product with `vectors`, which is a copy of them all where an image was ever deleted.
        return scores if len(self._positions) == self.head.rows else scores[self._positions]

    def search(
        self, queries: Vectors, *, k: int = 10, within: str | None = None, exclude: Sequence[int | None] = ()
    ) -> list[list[Hit]]:
        """The nearest images of each query vector, best first.

        Args:
            queries: unit vectors ``[Q, D]`` of the index's model.
            k: how many.
            within: a branch of the taxonomy as ``coarse/.../finer``; None or empty for all.
            exclude: for each query a row that must not be returned (the query itself), or None.

        Raises:
            InputError: the queries are not unit vectors of the right length, or k is below 1.
            SearchError: there is no such branch.
        """
        queries = check_vectors(queries, dim=self.head.dim)
        if k < 1:
            raise InputError(f"k must be at least 1, got {k}")
        scope = self.scope(within)
        left_out = [*exclude, *[None] * (len(queries) - len(exclude))]
        extra = any(row is not None for row in left_out)
        available = len(scope.vectors) if scope.positions is None else len(scope.positions)
        positions, scores = self._engine.search(queries, min(k + extra, available), scope)
        if not self._engine.exact:
            positions, scores = rescore(queries, positions, self._vectors)
        results = []
        for found, found_scores, skip in zip(positions, scores, left_out, strict=True):
            rows = self.rows_at(found)
            keep = (rows >= 0) & (rows != (-1 if skip is None else skip))
            hits = zip(rows[keep][:k], found_scores[keep][:k], strict=True)
            results.append([self.hit(int(row), float(score)) for row, score in hits])
        return results

    def search_id(self, item_id: str, *, k: int = 10, within: str | None = None) -> list[Hit]:
        """The images nearest to one of the index, itself left out.

        Raises:
            SearchError: there is no such image or branch.
        """
        row = self.row(item_id)
        return self.search(self.vector(row)[None], k=k, within=within, exclude=[row])[0]

    def search_images(
        self, images: Sequence[Any], *, k: int = 10, within: str | None = None
    ) -> list[list[Hit]]:
        """The images nearest to new ones (paths or PIL images), embedded with the index's own model.

        Raises:
            SearchError: the index keeps no model, or there is no such branch.
            ImageError: an image cannot be read.
        """
        self.scope(within)  # a misspelt branch is found before the slow part
        return self.search(self.encoder().embed(images), k=k, within=within)

    def encoder(self) -> Encoder:
        """The model of the index, loaded when first asked for.

        Raises:
            SearchError: the index keeps no model, or another one than it was built with.
        """
        with self._encoder_lock:
            if self._encoder is None:
                if self.head.model is None:
                    raise SearchError("this index keeps no model: search by vector or by id")
                from happier.encoder import Encoder

                encoder = Encoder.from_pretrained(self.directory / self.head.model)
                self.check_model(encoder.fingerprint)
                self._encoder = encoder
        return self._encoder

    def check_model(self, fingerprint: str) -> None:
        """See that vectors come from the model the index was built with.

        Raises:
            SearchError: they do not.
        """
        if fingerprint != self.head.fingerprint:
            raise SearchError(
                f"this index is of the model {self.head.fingerprint[:12]}, not of {fingerprint[:12]}: "
                "vectors of two models cannot be compared; build a new index for this model"
            )

    def rows_at(self, positions: Positions) -> Positions:
        """Rows of the items that stand at these positions of the vector file; -1 for deleted ones."""
        return np.asarray(np.where(positions >= 0, self._row_of_position[positions], -1), dtype=np.int64)

    def hit(self, row: int, score: float) -> Hit:
        """One row as a `Hit`."""
        return Hit(row, self._ids[row], str(self._paths[row]), self._class_paths[row], score)

    def scope(self, within: str | None = None) -> Scope:
        """The rows of a branch, in the engines' terms.

        Raises:
            SearchError: there is no such branch.
        """
        key = (within or "").strip("/")
        if key not in self._scopes:
            if len(self._scopes) >= 1024:  # one entry per branch asked for, each a list of rows
                self._scopes.clear()
            self._scopes[key] = self._make_scope(key)
        return self._scopes[key]

    def _make_scope(self, key: str) -> Scope:
        if not key:
            whole = len(self._positions) == self.head.rows
            return Scope(self._vectors, None if whole else np.sort(self._positions))
        rows = rows_within(self.items, key)
        branch = branches(self.items.take(rows[:1]))[0][: len(split_path(key))]
        return Scope(self._vectors, np.sort(self._positions[rows]), branch)

    def add(self, manifest: Manifest, vectors: Vectors, *, fingerprint: str) -> int:
        """Add images; the change shows when it is complete.

        Args:
            manifest: the new images with the index's levels.
            vectors: unit vectors ``[N, D]``.
            fingerprint: of the model that made them; it must be the index's own.

        Returns:
            The number of images added.

        Raises:
            InputError: the vectors do not fit.
            SearchError: another model, other levels, or an id that is already there.
        """
        self.check_model(fingerprint)
        if manifest.levels != self.levels:
            raise SearchError(
                f"the index has the levels {list(self.levels)}, the manifest {list(manifest.levels)}"
            )
        new, vectors = first_of_each_id(
            manifest, check_vectors(vectors, rows=len(manifest), dim=self.head.dim)
        )
        known = [one for one in new.ids() if str(one) in self._row_of_id]
        if known:
            raise SearchError(
                f"{len(known)} of these images are already in the index, e.g. {known[0]!r}; delete them first"
            )
        merged = merge_items(self.items, new)
        start = self.head.rows
        self._engine.add(vectors, branches(new), start=start)
        store.append_vectors(self.directory / self.head.vectors, vectors, after=start)
        positions = np.concatenate([self._positions, start + np.arange(len(new))])
        self._commit(merged, positions, rows=start + len(new))
        return len(new)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove images by id; the change shows when it is complete.

        Returns:
            The number of images removed.

        Raises:
            SearchError: an id is not there, or nothing would be left.
        """
        rows = np.unique([self.row(str(one)) for one in ids]) if len(ids) else np.zeros(0, dtype=np.int64)
        if len(rows) == 0:
            return 0
        if len(rows) == len(self):
            raise SearchError("an index holds at least one image; remove its folder to remove it")
        keep = np.setdiff1d(np.arange(len(self)), rows)
        left = self.items.take(keep)
        if len(keep) < (1 - MAX_DEAD_SHARE) * self.head.rows:
            self._rebuild(left, keep)
        else:
            self._engine.delete(self._positions[rows])
            self._commit(left, self._positions[keep], rows=self.head.rows)
        return len(rows)

    def _rebuild(self, manifest: Manifest, keep: npt.NDArray[np.int64]) -> None:
        """Write all vectors anew, without the dead ones."""
        vectors = self._vectors[self._positions[keep]]
        old = self._engine
        name = f"vectors-{self.head.generation + 1}.f32"
        self._engine = create_engine(
            self.head.engine,
            dim=self.head.dim,
            depth=len(self.levels),
            rows=len(vectors),
            options=self.head.options,
        )
        try:
            self._engine.add(vectors, branches(manifest), start=0)
            store.append_vectors(self.directory / name, vectors, after=0)
            self._commit(manifest, np.arange(len(keep)), rows=len(keep), vectors=name)
        except BaseException:
            self._engine.discard()
            self._engine = old
            raise
        old.discard()

    def _commit(
        self, manifest: Manifest, positions: Positions, *, rows: int, vectors: str | None = None
    ) -> None:
        generation = self.head.generation + 1
        stem = f"engine-{generation}"
        settings = self._engine.write(self.directory, stem)
        items = f"items-{generation}.parquet"
        write_items(self.directory / items, manifest, positions)
        for name in (items, settings.get("file")):
            if name:
                store.sync(self.directory / name)
        head = replace(
            self.head,
            generation=generation,
            rows=rows,
            root=str(manifest.root),
            settings=settings,
            items=items,
            vectors=vectors or self.head.vectors,
        )
        store.write_head(self.directory, head)
        store.remove_stale(self.directory, head)
        self._engine.close()
        self._load()

    def close(self) -> None:
        """Let go of the engine's files and connections."""
        self._engine.close()


def open_or_none(directory: Path) -> Index | None:
    """The index that is about to be replaced, if it can still be read."""
    try:
        return Index(directory)
    except (SearchError, OSError):
        return None
