"""What the page shows, independent of HTTP: up to four indexes, queries, rankings, mistakes, classes."""

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
from happier.errors import InputError, OptionError, SearchError
from happier.search.identify import Identification
from happier.search.index import Index
from happier.taxonomy import UNKNOWN
from happier.web.analysis import Analysis
from happier.web.indexed_model import IndexedModel
from happier.web.search_query import QueryImage, Ranking, SearchQuery
from happier.web.suspect_list import SuspectList
from happier.web.thumbnails import ThumbnailStore
from happier.web.uploads import Uploads, VectorsByModel
from happier.web.writer import CatalogueWriter

ONE_INDEX = "there is only one index; start the server with --against INDEX2 to compare"
MODEL_KEYS = ("a", "b", "c", "d")
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
    """One index, or up to four over the same catalogue to compare their models.

    Args:
        index: the first.
        against: the others.
        images: further folders that images may be in.
        corrections: where decisions about suspects go; None for a server that only reads.
        thumbnails: where small copies of the images are kept.
        uploads: folder in which processes that serve the same indexes share uploads; None keeps them here.
        writes: folder for images that are added over the network; None where none may be.
        root_path: path that the server's addresses begin with, e.g. ``/photos``.

    Raises:
        OptionError: more than four.
        SearchError: two that do not fit together.
    """

    def __init__(
        self,
        index: Index,
        against: Sequence[Index] = (),
        *,
        images: Sequence[Path] = (),
        corrections: CorrectionsFile | None = None,
        thumbnails: ThumbnailStore | None = None,
        uploads: Path | None = None,
        writes: Path | None = None,
        root_path: str = "",
    ) -> None:
        given = (index, *against)
        if len(given) > len(MODEL_KEYS):
            raise OptionError(f"at most {len(MODEL_KEYS)} indexes can be compared, got {len(given)}")
        names = [one.directory.resolve().name.removesuffix(".index") for one in given]
        if len(set(names)) < len(names):
            names = [str(one.directory) for one in given]
        if writes is not None:
            images = (*images, writes)
        self.models = {
            key: IndexedModel(key, one, name=name, images=images, thumbnails=thumbnails, root_path=root_path)
            for key, one, name in zip(MODEL_KEYS, given, names, strict=False)
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
        """One of the indexes by its key; the first one is ``a``.

        Raises:
            SearchError: there is none with this key.
        """
        model = self.models.get(key)
        if model is None:
            have = ", ".join(self.models)
            raise SearchError(
                ONE_INDEX if len(self.models) == 1 else f"there is no index {key!r}, only {have}"
            )
        return model

    def query(
        self,
        model: IndexedModel,
        *,
        items: Sequence[str] = (),
        uploads: Sequence[str] = (),
        more: Sequence[str] = (),
        less: Sequence[str] = (),
        less_uploads: Sequence[str] = (),
        label: str | None = None,
    ) -> SearchQuery:
        """A query from images of the index and uploads; the class is the first image's, or ``label``.

        Args:
            model: the index.
            items: ids of images that results should be like.
            uploads: keys of uploads that they should be like.
            more: ids of further images that they should be like, after the uploads.
            less: ids of images that they should not be like.
            less_uploads: keys of uploads that they should not be like.
            label: class of what is being looked for, where the first image is an upload.

        Raises:
            InputError: nothing that results should be like, or one image on both sides.
            SearchError: there is no such image, upload or class.
        """
        positive = self._query_images(model, items, uploads)
        if not positive:
            raise InputError("give the id of an image of the index or the key of an upload")
        positive += self._query_images(model, [one for one in more if one not in items], ())
        negative = self._query_images(model, less, less_uploads)
        if both := ({*items, *more} & {*less}) | ({*uploads} & {*less_uploads}):
            raise InputError(f"results cannot be both like {min(both)!r} and not like it")
        row = positive[0].row
        if row is not None:
            return SearchQuery(positive, negative, model.index.labels[row], model.index.class_paths[row])
        return SearchQuery(positive, negative, model.labels_of(label) if label else None, label or "")

    def _query_images(
        self, model: IndexedModel, items: Sequence[str], uploads: Sequence[str]
    ) -> tuple[QueryImage, ...]:
        rows = [QueryImage(row=model.index.row(one)) for one in dict.fromkeys(items)]
        return (*rows, *(QueryImage(upload=self.uploads.get(one)) for one in dict.fromkeys(uploads)))

    def search(
        self,
        model: IndexedModel,
        query: SearchQuery,
        *,
        k: int,
        within: str,
        offset: int = 0,
        metrics: bool = True,
    ) -> Ranking:
        """The ranking of a query, without the images that it is made of.

        Args:
            model: the index to search.
            query: what to search with.
            k: how many hits.
            within: only this branch.
            offset: how many hits to skip.
            metrics: whether to rank the whole index, which takes long where it is large.

        Raises:
            InputError: the images cancel each other out.
            SearchError: there is no such branch.
        """
        vector, used = query.vector(model.index), set(query.rows)
        found = model.index.search(vector[None], k=offset + k + len(used), within=within)[0]
        hits = [hit for hit in found if hit.row not in used][offset : offset + k]
        levels: list[int | None] = [None] * len(hits)
        if query.labels is not None and query.labels[0] != UNKNOWN and hits:
            rows = np.asarray([hit.row for hit in hits])
            levels = [int(level) for level in model.levels(query.labels, rows)]
        node = model.tree.node(within)
        total = node.count - int(np.isin(query.rows, node.rows).sum())
        if not metrics:
            return Ranking(hits, total, levels, None, None)
        alone = (
            model.metrics(query, query.positive[0].vector(model.index), "alone") if query.combined else None
        )
        return Ranking(hits, total, levels, model.metrics(query, vector), alone)

    def identify(
        self, model: IndexedModel, query: SearchQuery, *, sure: float, within: str
    ) -> Identification:
        """What a query is, as deep as the index is sure; an image of the index by the others.

        Raises:
            OptionError: ``sure`` is not a probability.
            SearchError: there is no such branch, or the index has no labels or one class only.
        """
        first = query.positive[0]
        vector = first.vector(model.index)[None]
        return model.index.identify(vector, sure=sure, within=within, exclude=[first.row])[0]

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
    first, *others = models.values()
    for other in others:
        if other.index.levels != first.index.levels:
            raise SearchError(
                f"indexes can be compared only if their levels agree: {first.name} has "
                f"{list(first.index.levels)}, {other.name} {list(other.index.levels)}"
            )


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    shared = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared
