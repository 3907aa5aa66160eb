"""One index with everything the page derives from it: pictures, a tree, metrics of queries, the analysis."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from happier.data.class_tree import ClassNode, ClassTree
from happier.errors import ImageError, SearchError
from happier.evaluation import evaluate_ranking
from happier.search.index import Index
from happier.taxonomy import UNKNOWN, shared_levels
from happier.web import images
from happier.web.analysis import Analysis, analyse
from happier.web.catalogue_map import CatalogueMap
from happier.web.embedder import Embedder
from happier.web.search_query import QueryMetrics, SearchQuery
from happier.web.thumbnails import ThumbnailStore, picture_key

NO_CLASS = 0xFFFFFFFF
MAX_METRICS = 4096  # queries whose metrics are kept
_SEVERITY_KS = (1, 10)


class IndexedModel:
    """One index with everything that is derived from it."""

    def __init__(
        self,
        key: str,
        index: Index,
        *,
        name: str,
        images: Sequence[Path] = (),
        thumbnails: ThumbnailStore | None = None,
        root_path: str = "",
    ) -> None:
        self.key, self.index, self.name, self.root_path = key, index, name, root_path
        self.stop = threading.Event()
        self._thumbnails = thumbnails or ThumbnailStore(None)
        self.tree = ClassTree(index.items)
        self.map = CatalogueMap(index, self._thumbnails, self.stop)
        self.version = index.version
        self._images = tuple(images)
        roots = [Path(index.head.root), *images]
        self._roots = [root.resolve() for root in roots if root.exists()]
        self._files = index.items.files()
        self._embedder: Embedder | None = None
        self._embedder_lock = threading.Lock()
        self._analysis: Analysis | None = None
        self._analysis_lock = threading.Lock()
        self._analysed = threading.Event()
        self._h_ap = np.zeros(0)
        self._metrics_lock = threading.Lock()
        self._metrics: LRUCache[tuple[str, str], QueryMetrics | None] = LRUCache(MAX_METRICS)

    @cached_property
    def class_numbers(self) -> tuple[list[str], npt.NDArray[np.uint32]]:
        """The classes that images have, and the place of each image's class among them."""
        number_of: dict[str, int] = {}
        numbers = [
            number_of.setdefault(path, len(number_of)) if path else NO_CLASS
            for path in self.index.class_paths
        ]
        return list(number_of), np.asarray(numbers, dtype=np.uint32)

    @property
    def embeds(self) -> bool:
        """Whether new images can be searched with."""
        return self.index.head.model is not None

    @property
    def embedder(self) -> Embedder:
        """What embeds new images, loaded when first asked for.

        Raises:
            SearchError: the index keeps no model, or a damaged one.
        """
        with self._embedder_lock:
            if self._embedder is None:
                self._embedder = Embedder(self.index.encoder())
        return self._embedder

    def succeeded_by(self, index: Index) -> IndexedModel:
        """The same for a newer state of the index; what is loaded and still fits is kept."""
        new = IndexedModel(
            self.key,
            index,
            name=self.name,
            images=self._images,
            thumbnails=self._thumbnails,
            root_path=self.root_path,
        )
        if index.head.fingerprint == self.index.head.fingerprint:
            new._embedder = self._embedder
        return new

    def retire(self) -> None:
        """Stop its analysis; close its index when the last request that uses it has ended."""
        self.stop.set()
        weakref.finalize(self, self.index.close)

    def unreadable_images(self, tried: int = 20) -> tuple[int, int, str]:
        """Try a few images all over the index: how many cannot be shown, of how many, and one reason."""
        rows = np.unique(np.linspace(0, len(self.index) - 1, tried).astype(int)).tolist()
        reasons = []
        for row in rows:
            try:
                images.file_inside(self._files[row], self._roots)
            except ImageError as error:
                reasons.append(str(error))
        return len(reasons), len(rows), reasons[0] if reasons else ""

    def picture(self, row: int, size: int) -> bytes:
        """An image of the index as WebP.

        Raises:
            SearchError: there is no such row.
            ImageError: the file is gone, damaged, or outside the image folders.
        """
        path = images.file_inside(self._files[row], self._roots)
        try:
            key = picture_key(path, size)
        except OSError as error:
            raise ImageError(f"the image {path.name} is gone or cannot be read: {error.strerror}") from error
        made = self._thumbnails.get(key)
        if made is None:
            data = images.read_inside(path, self._roots)
            made = images.encode(images.decode(data, name=path.name, about=size), size)
            self._thumbnails.put(key, made)
        return made

    def row_of(self, row: int, item_id: str | None) -> int:
        """The row of an image that was at ``row`` in this state of the index or in another.

        Raises:
            SearchError: there is no such image.
        """
        there = 0 <= row < len(self.index)
        if item_id is None:
            if not there:
                raise SearchError(f"the index has {len(self.index)} images, none with the number {row}")
            return row
        return row if there and self.index.ids[row] == item_id else self.index.row(item_id)

    def picture_version(self, row: int) -> str:
        """Names the image of a row in every state of the index that has it."""
        head = self.index.head
        return f"{head.uid[:8]}-{head.vectors[8:-4]}-{self.index.position(row)}"

    def labels_of(self, class_path: str) -> npt.NDArray[np.int64]:
        """Label row of a class of the tree, -1 below it.

        Raises:
            SearchError: there is no such class.
        """
        node = self.tree.node(class_path)
        labels = np.array(self.index.labels[node.rows[0]], dtype=np.int64)
        labels[len(node.names) :] = UNKNOWN
        return labels

    def levels(self, labels: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """The level each row shares with a label row."""
        return np.asarray(shared_levels(labels[None], self.index.labels[rows])[0], dtype=np.int8)

    def metrics(
        self, query: SearchQuery, vector: npt.NDArray[np.float32], what: str = ""
    ) -> QueryMetrics | None:
        """H-AP and severity of a query over the whole index; None where its class is unknown.

        Args:
            query: whose class counts, and whose images are left out.
            vector: what to rank by.
            what: distinguishes several vectors of one query.
        """
        if query.labels is None or query.labels[0] == UNKNOWN:
            return None
        key = (f"{query.key} {what}", query.class_path)
        with self._metrics_lock:
            if key in self._metrics:
                return self._metrics[key]
        metrics = self._ranked_metrics(query, vector)
        with self._metrics_lock:
            self._metrics[key] = metrics
        return metrics

    def _ranked_metrics(self, query: SearchQuery, vector: npt.NDArray[np.float32]) -> QueryMetrics | None:
        assert query.labels is not None
        index = self.index
        scores = index.scores(vector)
        levels = np.asarray(shared_levels(query.labels[None], index.labels)[0], dtype=np.int8)
        if query.rows:
            scores, levels = np.delete(scores, query.rows), np.delete(levels, query.rows)
        if not len(scores):
            return None
        ranked = _ranked_levels(scores, levels)
        counts = np.bincount(levels, minlength=len(index.levels) + 1)
        result = evaluate_ranking(ranked[None], counts[None], ks=_SEVERITY_KS, level_names=index.levels)
        values = {name: float(column[0]) for name, column in result.per_query.items()}
        return QueryMetrics(
            h_ap=values["H-AP"],
            severity={k: values[f"severity@{k}"] for k in _SEVERITY_KS},
            average_precision={level: values[f"AP/{level}"] for level in index.levels},
            counts=tuple(int(count) for count in counts),
        )

    def analysis(self) -> Analysis | None:
        """Every image as a query, computed on first use; None without labels, or when stopped."""
        with self._analysis_lock:
            if not self._analysed.is_set():
                self._analysis = analyse(self.index, stop=self.stop)
                if self.stop.is_set():
                    return None
                if self._analysis is not None:
                    self._h_ap = self._analysis.by_row(len(self.index))
                self._analysed.set()
        return self._analysis

    @property
    def analysed(self) -> bool:
        """Whether `analysis` returns at once."""
        return self._analysed.is_set()

    def mean_h_ap(self, node: ClassNode) -> float | None:
        """Mean H-AP of the images of a class; None where it is not known, or not yet."""
        if not self.analysed or self._analysis is None:
            return None
        values = self._h_ap[node.rows]
        values = values[~np.isnan(values)]
        return float(values.mean()) if len(values) else None


def _ranked_levels(scores: npt.NDArray[np.float32], levels: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Levels by falling score; equal scores worst first, as in `happier.evaluate`.

    A score and its level are sorted as one integer, which takes less than half the time of `numpy.lexsort`.
    """
    bits = (0.0 - scores).view(np.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # the floats as integers of the same order
    return np.sort((rising.astype(np.int64) << 8) | levels).astype(np.int8)
