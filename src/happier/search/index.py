"""A searchable catalogue of images: vectors, their labels, and the model that made them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from happier.data import Manifest
from happier.errors import HappierError, SearchError
from happier.identification.calibration import Calibration
from happier.search.change import NewIndex, add_images, delete_images, write_index
from happier.search.engine import Positions, SearchScope, VectorArray, choose_engine
from happier.search.identify import SURE, Identification, check_sure
from happier.search.index_json import IndexHead
from happier.search.items import check_vectors
from happier.search.loaded_state import Hit, LoadedState, load_state
from happier.search.recall import whole_probe
from happier.search.settings import EFFORTS
from happier.search.store import IndexStore

if TYPE_CHECKING:
    from happier.encoder import Encoder

__all__ = ["Hit", "Index"]


class Index:
    """A catalogue that can be searched by image, extended and thinned out.

    `build` makes one, `open` reads one. It shows the state of the index when it was opened or last changed
    through this object. A change applies to the newest state, waits for other writers, and shows when it is
    complete. An index takes vectors of the model it was built with only.

    Attributes:
        directory: where it is.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._store = IndexStore(directory)
        self._encoder: Encoder | None = None
        self._encoder_lock = threading.Lock()
        self._kept_open: LoadedState | None = None
        self._stamp = self._store.stamp()
        self._now = load_state(self._store)

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
        vectors: VectorArray,
        *,
        fingerprint: str,
        encoder: Encoder | None = None,
        engine: str = "flat",
        options: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> Index:
        """Write a new index.

        Args:
            directory: where to.
            manifest: the images, one row for each vector. Of rows with one id the first is kept.
            vectors: float ``[N, D]``, unit length.
            fingerprint: of the model that made the vectors.
            encoder: that model; a copy is kept so that `search_images` works.
            engine: ``flat`` (exact), ``hnsw``, ``ivfpq``, ``milvus`` or ``pgvector``.
            options: of the engine; ``recall`` (0.95) is the share of the exact answer that a search must
                give: the effort is raised until it is reached, see `IndexHead.recall`.
            overwrite: replace an existing index, which stays in use until the new one is complete.

        Raises:
            InputError: the vectors do not fit the manifest or are not unit vectors.
            OptionError: an unknown engine or option.
            SearchError: the place is taken or cannot be written to.
        """
        chosen = dict(options or {})
        vectors = check_vectors(vectors, rows=len(manifest))
        choose_engine(engine, dim=vectors.shape[1], rows=len(vectors), options=chosen)
        new = NewIndex(manifest, vectors, fingerprint, encoder, engine, chosen)
        write_index(IndexStore(directory), new, overwrite=overwrite)
        return cls(directory)

    def newest(self) -> Index:
        """The index as it is on disk now: this object where nothing changed, else another one beside it.

        Raises:
            SearchError: it is gone or damaged.
        """
        stamp = self._store.stamp()
        if stamp == self._stamp:
            return self
        if self._store.head() == self.head:
            self._stamp = stamp
            return self
        other = self.beside()
        other._stamp = stamp
        other._now, other._kept_open = load_state(self._store, trusted=self.head), None
        if other.head.fingerprint != self.head.fingerprint:
            other._encoder = None
        return other

    def __len__(self) -> int:
        return len(self._now.ids)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._now

    def __repr__(self) -> str:
        return f"Index({str(self.directory)!r}, {len(self)} images, engine {self.head.engine!r})"

    @property
    def head(self) -> IndexHead:
        """What ``index.json`` says."""
        return self._now.head

    @property
    def version(self) -> str:
        """Names this state of this index."""
        return f"{self.head.uid[:12]}-{self.head.generation}"

    @property
    def items(self) -> Manifest:
        """Manifest of the images, one row each."""
        return self._now.items

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """Class numbers ``[N, L]`` of the items."""
        return self._now.labels

    @property
    def levels(self) -> tuple[str, ...]:
        """Level names, coarse first."""
        return self._now.items.levels

    @property
    def ids(self) -> list[str]:
        """What identifies the image of each row."""
        return self._now.ids

    @property
    def class_paths(self) -> list[str]:
        """The class of each row as ``coarse/.../fine``."""
        return self._now.class_paths

    @property
    def exact(self) -> bool:
        """Whether the engine compares with every vector."""
        return self._now.engine.exact

    @property
    def effort(self) -> dict[str, int]:
        """How far the engine looks, by the names of its options; empty for exact search."""
        settings = self.head.settings
        found = settings.get("search_options", settings)
        return {name: found[name] for name in EFFORTS if name in found}

    @property
    def vectors(self) -> VectorArray:
        """The vectors of the items, in their order; the file itself where no image was ever deleted."""
        now = self._now
        return now.vectors if now.whole else now.vectors[now.positions]

    def row(self, item_id: str) -> int:
        """Row of an image by its id.

        Raises:
            SearchError: there is no such image.
        """
        return self._now.row(item_id)

    def position(self, row: int) -> int:
        """Where the vector of a row is in the vector file."""
        return int(self._now.positions[row])

    def vector(self, row: int) -> VectorArray:
        """The vector ``[D]`` of one row."""
        now = self._now
        return np.array(now.vectors[now.positions[row]])

    def scores(self, query: VectorArray) -> VectorArray:
        """Inner products ``[N]`` of one query with the vectors of all items."""
        now = self._now
        scores: VectorArray = now.vectors @ query
        # Not the product with `vectors`, which is a copy of them all where an image was ever deleted.
        return scores if now.whole else scores[now.positions]

    def search(
        self,
        queries: VectorArray,
        *,
        k: int = 10,
        within: str | None = None,
        exclude: Sequence[int | None] = (),
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
        return self._now.search(queries, k=k, within=within, exclude=exclude)

    def search_id(self, item_id: str, *, k: int = 10, within: str | None = None) -> list[Hit]:
        """The images nearest to one of the index, itself left out.

        Raises:
            SearchError: there is no such image or branch.
        """
        now = self._now
        row = now.row(item_id)
        query = np.array(now.vectors[now.positions[row]])[None]
        return now.search(query, k=k, within=within, exclude=[row])[0]

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

    def identify(
        self,
        queries: VectorArray,
        *,
        sure: float = SURE,
        within: str | None = None,
        exclude: Sequence[int | None] = (),
    ) -> list[Identification]:
        """What each query vector is: the deepest class whose probability reaches ``sure``.

        Args:
            queries: unit vectors ``[Q, D]`` of the index's model.
            sure: how probable the answer must be.
            within: a branch that the images are known to be of; None or empty for all classes.
            exclude: for each query a row that must not vote (the query itself), or None.

        Raises:
            InputError: the queries are not unit vectors of the right length.
            OptionError: ``sure`` is not a probability.
            SearchError: there is no such branch, or the index has no labels or one class only.
        """
        return self._now.identifier.identify(queries, sure=sure, within=within, exclude=exclude)

    def identify_id(self, item_id: str, *, sure: float = SURE, within: str | None = None) -> Identification:
        """What an image of the index is, by the others.

        Raises:
            SearchError: there is no such image or branch.
        """
        row = self.row(item_id)
        return self.identify(self.vector(row)[None], sure=sure, within=within, exclude=[row])[0]

    def identify_images(
        self, images: Sequence[Any], *, sure: float = SURE, within: str | None = None
    ) -> list[Identification]:
        """What new images are (paths or PIL images), embedded with the index's own model.

        Raises:
            SearchError: the index keeps no model, or there is no such branch.
            ImageError: an image cannot be read.
        """
        check_sure(sure)  # mistakes are found before the slow part
        self.scope(within)
        _ = self.calibration
        return self.identify(self.encoder().embed(images), sure=sure, within=within)

    @property
    def calibration(self) -> Calibration:
        """How neighbours' votes become probabilities.

        Raises:
            SearchError: the index has no labels or one class only.
        """
        return self._now.identifier.calibration

    def encoder(self) -> Encoder:
        """The model of the index, loaded when first asked for.

        Raises:
            SearchError: the index keeps no model, a damaged one, or another one than it was built with.
        """
        with self._encoder_lock:
            if self._encoder is None:
                from happier.encoder import Encoder

                try:
                    encoder = Encoder.from_pretrained(self._store.model(self.head))
                except HappierError:
                    if self.head.model is not None and self._store.head().model != self.head.model:
                        raise SearchError(
                            f"{self.directory} has been replaced since it was opened: open it again"
                        ) from None
                    raise
                self.check_model(encoder.fingerprint)
                self._encoder = encoder
        return self._encoder

    def check_model(self, fingerprint: str) -> None:
        """Check that vectors come from the model the index was built with.

        Raises:
            SearchError: they do not.
        """
        self._now.check_model(fingerprint)

    def rows_at(self, positions: Positions) -> Positions:
        """Rows of the items at these positions of the vector file; -1 for deleted ones."""
        return self._now.rows_at(positions)

    def hit(self, row: int, score: float) -> Hit:
        """One row as a `Hit`."""
        return self._now.hit(row, score)

    def scope(self, within: str | None = None) -> SearchScope:
        """The rows of a branch, in the engines' terms.

        Raises:
            SearchError: there is no such branch.
        """
        return self._now.scope(within)

    def measure_recall(self, *, k: int, queries: int, seed: int) -> float:
        """See `happier.search.measure_recall`."""
        now = self._now
        if now.engine.exact or len(now.ids) < 2:
            return 1.0
        probe = whole_probe(now.positions, now.scope(), k=k, queries=queries, seed=seed)
        return probe.recall(now.engine)

    def add(
        self, manifest: Manifest, vectors: VectorArray, *, fingerprint: str, skip_known: bool = False
    ) -> int:
        """Add images; the change shows when it is complete.

        Args:
            manifest: the new images with the index's levels.
            vectors: unit vectors ``[N, D]``.
            fingerprint: of the model that made them; it must be the index's own.
            skip_known: skip images whose id the index already has; else they are an error.

        Returns:
            The number of images added.

        Raises:
            InputError: the vectors do not fit.
            SearchError: another model, other levels, or an id that the index already has.
        """
        before = self._now
        self._now, added = add_images(
            self._store,
            manifest,
            vectors,
            fingerprint=fingerprint,
            skip_known=skip_known,
            opened=before,
        )
        self._close_old(before)
        return added

    def delete(self, ids: Sequence[str]) -> int:
        """Remove images by id; the change shows when it is complete.

        Returns:
            The number of images removed.

        Raises:
            SearchError: an id is not there, or nothing would be left.
        """
        before = self._now
        self._now, removed = delete_images(self._store, ids, opened=before)
        self._close_old(before)
        return removed

    def beside(self) -> Index:
        """Another object for the same state: a change through it leaves this one as it is."""
        other = copy.copy(self)
        other._encoder_lock = threading.Lock()
        other._kept_open = self._now
        return other

    def _close_old(self, before: LoadedState) -> None:
        if self._now is not before:
            if before is not self._kept_open:
                before.engine.close()
            self._kept_open = None
            if before.head.fingerprint != self.head.fingerprint:
                self._encoder = None

    def close(self) -> None:
        """Close the engine's files and connections."""
        self._now.engine.close()
