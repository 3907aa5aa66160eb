"""One index with everything the page derives from it: pictures, a tree, metrics of queries, the analysis."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache
from PIL.Image import Image

from happier.data.class_tree import ClassNode, ClassTree
from happier.errors import SearchError
from happier.evaluation import evaluate_ranking
from happier.search.index import Index
from happier.taxonomy import UNKNOWN, shared_levels
from happier.web import images
from happier.web.analysis import Analysis, analyse
from happier.web.search_query import QueryMetrics, SearchQuery

MAX_METRICS = 4096  # queries whose metrics are kept
_SEVERITY_KS = (1, 10)


class IndexedModel:
    """One index with everything that is derived from it."""

    def __init__(self, key: str, index: Index, *, name: str, images: Sequence[Path] = ()) -> None:
        self.key, self.index, self.name = key, index, name
        self.tree = ClassTree(index.items)
        self.version = f"{index.head.uid[:12]}-{index.head.generation}"
        roots = [Path(index.head.root), *images]
        self._roots = [root.resolve() for root in roots if root.exists()]
        self._files = index.items.files()
        self._embedding = threading.Lock()
        self._analysis: Analysis | None = None
        self._analysis_lock = threading.Lock()
        self._analysed = threading.Event()
        self._h_ap = np.zeros(0)
        self._metrics_lock = threading.Lock()
        self._metrics: LRUCache[tuple[str, str], QueryMetrics | None] = LRUCache(MAX_METRICS)

    @property
    def embeds(self) -> bool:
        """Whether new images can be searched with."""
        return self.index.head.model is not None

    def embed(self, image: Image) -> npt.NDArray[np.float32]:
        """The vector of a new image."""
        # The encoder switches its mode while it runs: one call at a time.
        with self._embedding:
            vector: npt.NDArray[np.float32] = self.index.encoder().embed([image])[0]
        return vector

    def picture(self, row: int, size: int) -> bytes:
        """An image of the index as WebP.

        Raises:
            SearchError: there is no such row.
            ImageError: the file is gone, damaged, or outside the image folders.
        """
        if not 0 <= row < len(self.index):
            raise SearchError(f"the index has {len(self.index)} images, none with the number {row}")
        path = self._files[row]
        data = images.read_inside(path, self._roots)
        return images.encode(images.decode(data, name=path.name, about=size), size)

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

    def metrics(self, query: SearchQuery, vector: npt.NDArray[np.float32]) -> QueryMetrics | None:
        """H-AP and severity of a query over the whole index; None where its class is unknown."""
        if query.labels is None or query.labels[0] == UNKNOWN:
            return None
        key = (query.key, query.class_path)
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
        levels = self.levels(query.labels, np.arange(len(index)))
        if query.row is not None:
            scores, levels = np.delete(scores, query.row), np.delete(levels, query.row)
        if not len(scores):
            return None
        # Equal scores worst first, as in `happier.evaluate`.
        ranked = levels[np.lexsort((levels, -scores))]
        counts = np.bincount(levels, minlength=len(index.levels) + 1)
        result = evaluate_ranking(ranked[None], counts[None], ks=_SEVERITY_KS, level_names=index.levels)
        values = {name: float(column[0]) for name, column in result.per_query.items()}
        return QueryMetrics(
            h_ap=values["H-AP"],
            severity={k: values[f"severity@{k}"] for k in _SEVERITY_KS},
            average_precision={level: values[f"AP/{level}"] for level in index.levels},
            counts=tuple(int(count) for count in counts),
        )

    def analysis(self, stop: threading.Event | None = None) -> Analysis | None:
        """Every image as a query, computed on first use; None without labels, or when stopped."""
        with self._analysis_lock:
            if not self._analysed.is_set():
                self._analysis = analyse(self.index, stop=stop)
                if stop is not None and stop.is_set():
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
