"""What the page shows, independent of HTTP: one or two indexes, queries, rankings, mistakes, classes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL.Image import Image

from happier.curation.corrections import CorrectionsFile
from happier.data.class_path import join as join_path
from happier.data.class_path import split as split_path
from happier.data.class_tree import ClassNode
from happier.errors import InputError, SearchError
from happier.search.identify import Identification
from happier.search.index import Hit, Index
from happier.taxonomy import UNKNOWN
from happier.web.analysis import Analysis
from happier.web.indexed_model import IndexedModel
from happier.web.search_query import QueryMetrics, SearchQuery
from happier.web.suspect_list import SuspectList
from happier.web.thumbnails import ThumbnailStore
from happier.web.uploads import Uploads, VectorsByModel
from happier.web.writer import CatalogueWriter

ONE_INDEX = "there is only one index; start the server with --against INDEX2 to compare"
Sort = Literal["severity", "h-ap", "gain", "loss"]


@dataclass(frozen=True)
class Mistake:
    """A query and its first result that is further away than necessary."""

    row: int
    result: int
    level: int
    score: float
    h_ap: float
    severity: float
    other_h_ap: float | None


@dataclass(frozen=True)
class ConfusedClass:
    """Another class that the images of a class are confused with."""

    class_path: str
    level: int
    share: float


class Explorer:
    """One index, or two over the same catalogue to compare their models.

    Args:
        index: the first.
        against: the second, where there is one.
        images: further folders that images may be in.
        corrections: where decisions about suspects go; None for a server that only reads.
        thumbnails: where small copies of the images are kept.
        uploads: folder in which processes that serve the same indexes share uploads; None keeps them here.
        writes: folder for images that are added over the network; None where none may be.
        root_path: path that the server's addresses begin with, e.g. ``/photos``.
    """

    def __init__(
        self,
        index: Index,
        against: Index | None = None,
        *,
        images: Sequence[Path] = (),
        corrections: CorrectionsFile | None = None,
        thumbnails: ThumbnailStore | None = None,
        uploads: Path | None = None,
        writes: Path | None = None,
        root_path: str = "",
    ) -> None:
        names = [
            one.directory.resolve().name.removesuffix(".index") for one in (index, against) if one is not None
        ]
        if len(set(names)) < len(names):
            names = [str(one.directory) for one in (index, against) if one is not None]
        if writes is not None:
            images = (*images, writes)
        opened = {key: one for key, one in (("a", index), ("b", against)) if one is not None}
        self.models = {
            key: IndexedModel(key, one, name=name, images=images, thumbnails=thumbnails, root_path=root_path)
            for (key, one), name in zip(opened.items(), names, strict=True)
        }
        _check_levels(self.models)
        self._corrections = corrections
        self.suspects = SuspectList(self.models["a"], corrections)
        self._refreshing = threading.Lock()
        self.root_path = root_path
        self.writer = None if writes is None else CatalogueWriter(self, writes)
        self.uploads = Uploads(self._embed, models=self._fingerprints, folder=uploads)
        self.started = time.monotonic()

    def _embed(self, image: Image) -> VectorsByModel:
        return {model.index.head.fingerprint: model.embedder.embed(image) for model in self.models.values()}

    def _fingerprints(self) -> list[str]:
        return [model.index.head.fingerprint for model in self.models.values()]

    def refresh(self) -> bool:
        """Open what changed on disk beside what is in use, then swap; returns whether anything changed.

        A request takes its model once, so it sees one state of the index from its beginning to its end.

        Raises:
            SearchError: an index is gone or damaged, or two no longer fit together; the old ones stay.
        """
        with self._refreshing:
            return self._swap({key: model.index.newest() for key, model in self.models.items()})

    def show(self, key: str, index: Index) -> None:
        """Show a state of an index that a change has just made, unless a newer one is shown already."""
        with self._refreshing:
            now = self.models[key].index.head
            if now.uid != index.head.uid or now.generation < index.head.generation:
                self._swap({key: index})

    def _swap(self, newest: Mapping[str, Index]) -> bool:
        before = self.models
        changed = [key for key, index in newest.items() if index is not before[key].index]
        if not changed:
            return False
        after = {**before, **{key: before[key].succeeded_by(newest[key]) for key in changed}}
        _check_levels(after)
        self.models = after
        if "a" in changed:
            self.suspects = SuspectList(after["a"], self._corrections)
        for key in changed:
            before[key].retire()
        return True

    @property
    def versions(self) -> tuple[str, ...]:
        """Names the present state of all indexes."""
        return tuple([model.version for model in self.models.values()])

    @property
    def analysed(self) -> bool:
        """Whether mistakes can be listed at once."""
        return all(model.analysed for model in self.models.values())

    def model(self, key: str) -> IndexedModel:
        """One of the indexes: ``a``, or ``b`` where there are two.

        Raises:
            SearchError: there is no second one.
        """
        model = self.models.get(key)
        if model is None:
            raise SearchError(ONE_INDEX)
        return model

    def query(
        self,
        model: IndexedModel,
        *,
        item: str | None = None,
        upload: str | None = None,
        label: str | None = None,
    ) -> SearchQuery:
        """A query from an image's id or an upload's key; ``label`` says the class of an upload.

        Raises:
            InputError: neither or both.
            SearchError: there is no such image, upload or class.
        """
        if (item is None) == (upload is None):
            raise InputError("give either the id of an image of the index or the key of an upload")
        if item is not None:
            row = model.index.row(item)
            return SearchQuery(row, None, model.index.labels[row], model.index.class_paths[row])
        assert upload is not None
        labels = model.labels_of(label) if label else None
        return SearchQuery(None, self.uploads.get(upload), labels, label or "")

    def search(
        self, model: IndexedModel, query: SearchQuery, *, k: int, within: str, metrics: bool = True
    ) -> tuple[list[Hit], list[int | None], QueryMetrics | None]:
        """The ranking of a query: its hits, the level each shares with it, and how good the whole ranking is.

        Args:
            model: the index to search.
            query: what to search with.
            k: how many hits.
            within: only this branch.
            metrics: whether to rank the whole index, which takes long where it is large.

        Raises:
            SearchError: there is no such branch.
        """
        vector = _vector_of(model, query)
        hits = model.index.search(vector[None], k=k, within=within, exclude=[query.row])[0]
        levels: list[int | None] = [None] * len(hits)
        if query.labels is not None and query.labels[0] != UNKNOWN and hits:
            rows = np.asarray([hit.row for hit in hits])
            levels = [int(level) for level in model.levels(query.labels, rows)]
        return hits, levels, model.metrics(query, vector) if metrics else None

    def identify(
        self, model: IndexedModel, query: SearchQuery, *, sure: float, within: str
    ) -> Identification:
        """What a query is, as deep as the index is sure; an image of the index by the others.

        Raises:
            OptionError: ``sure`` is not a probability.
            SearchError: there is no such branch, or the index has no labels or one class only.
        """
        vector = _vector_of(model, query)[None]
        return model.index.identify(vector, sure=sure, within=within, exclude=[query.row])[0]

    def mistakes(
        self, model: IndexedModel, *, sort: Sort, within: str, offset: int, limit: int
    ) -> tuple[list[Mistake], int]:
        """Queries that went wrong, the worst first, and how many there are in all.

        Args:
            model: the model that searched.
            sort: ``severity`` (the first result is furthest off, with the highest score), ``h-ap`` (lowest),
                ``gain`` or ``loss`` (this model is better or worse than the other by most).
            within: only queries of this branch.
            offset: how many to skip.
            limit: how many to return.

        Raises:
            SearchError: no such branch, or no second index to compare with.
        """
        analysis = model.analysis()
        if analysis is None:
            return [], 0
        allowed = np.ones(len(analysis.rows), dtype=bool)
        if within:
            allowed = np.isin(analysis.rows, model.tree.node(within).rows)
        other = self._other_h_ap(model, analysis)
        if sort == "severity":
            allowed &= analysis.too_far > 0
            order = np.lexsort((-analysis.scores[:, 0], -analysis.too_far))
        elif sort == "h-ap":
            allowed &= ~np.isnan(analysis.h_ap)
            order = np.argsort(analysis.h_ap, kind="stable")
        else:
            if other is None:
                raise SearchError(ONE_INDEX)
            difference = analysis.h_ap - other
            allowed &= (difference > 0) if sort == "gain" else (difference < 0)
            order = np.argsort(-difference if sort == "gain" else difference, kind="stable")
        chosen = order[allowed[order]]
        found = [self._mistake(analysis, int(at), other) for at in chosen[offset : offset + limit]]
        return found, len(chosen)

    def _other_h_ap(self, model: IndexedModel, analysis: Analysis) -> npt.NDArray[np.float64] | None:
        """H-AP of the same queries with the other model, NaN where it does not have them."""
        others = [other for other in self.models.values() if other is not model]
        theirs = others[0].analysis() if others and others[0].analysed else None
        if theirs is None:
            return None
        by_id = {others[0].index.ids[row]: value for row, value in zip(theirs.rows, theirs.h_ap, strict=True)}
        return np.asarray([by_id.get(model.index.ids[row], np.nan) for row in analysis.rows])

    def _mistake(self, analysis: Analysis, at: int, other: npt.NDArray[np.float64] | None) -> Mistake:
        # Where the first result is right, show the first that is not.
        wrong = np.flatnonzero((analysis.levels[at] < analysis.possible[at]) & (analysis.results[at] >= 0))
        place = int(wrong[0]) if len(wrong) else 0
        return Mistake(
            row=int(analysis.rows[at]),
            result=int(analysis.results[at, place]),
            level=int(analysis.levels[at, place]),
            score=float(analysis.scores[at, place]),
            h_ap=float(analysis.h_ap[at]),
            severity=float(analysis.severity[at]),
            other_h_ap=None if other is None or np.isnan(other[at]) else float(other[at]),
        )

    def confusions(self, model: IndexedModel, node: ClassNode, limit: int = 12) -> list[ConfusedClass]:
        """Classes of the same level that turn up among the first results of this class's images."""
        depth = len(node.names)
        analysis = model.analysis()
        if analysis is None or depth == 0:
            return []
        asked = np.isin(analysis.rows, node.rows, assume_unique=True)
        results, levels = analysis.results[asked], analysis.levels[asked]
        outside = results[(results >= 0) & (levels < depth)]
        counted: Counter[str] = Counter()
        level_of: dict[str, int] = {}
        for row in outside.tolist():
            names = split_path(model.index.class_paths[row])[:depth]
            path = join_path(names)
            counted[path] += 1
            level_of[path] = _common(names, node.names)
        total = max(1, int((results >= 0).sum()))
        return [
            ConfusedClass(path, level_of[path], number / total) for path, number in counted.most_common(limit)
        ]


def _check_levels(models: Mapping[str, IndexedModel]) -> None:
    levels = [list(model.index.levels) for model in models.values()]
    if any(one != levels[0] for one in levels):
        raise SearchError(
            f"two indexes can be compared only if their levels agree, got {levels[0]} and {levels[1]}"
        )


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    shared = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared


def _vector_of(model: IndexedModel, query: SearchQuery) -> npt.NDArray[np.float32]:
    if query.upload is not None:
        return query.upload.vector(model.index.head.fingerprint)
    assert query.row is not None
    return model.index.vector(query.row)
