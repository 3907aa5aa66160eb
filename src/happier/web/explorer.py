"""What the page shows, without a word of HTTP: one or two indexes, queries, rankings, mistakes, classes."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from happier.errors import InputError, SearchError
from happier.search.branch import split_path
from happier.search.index import Hit, Index
from happier.taxonomy import UNKNOWN
from happier.web import pictures
from happier.web.analysis import Analysis
from happier.web.side import Query, QueryMetrics, Side, Upload
from happier.web.tree import Node

Sort = Literal["severity", "h-ap", "gain", "loss"]
THUMBNAIL_SIZE = 256
LARGE_SIZE = 1024
MAX_UPLOADS = 128


@dataclass(frozen=True)
class Mistake:
    """A query and the first result that is further from it than need be."""

    row: int
    result: int
    level: int
    score: float
    h_ap: float
    severity: float
    other_h_ap: float | None


@dataclass(frozen=True)
class Confusion:
    """Another class that the images of a class are taken for."""

    class_path: str
    level: int
    share: float


class Explorer:
    """One index, or two over the same catalogue to compare their models."""

    def __init__(self, index: Index, against: Index | None = None, *, images: Sequence[Path] = ()) -> None:
        names = [
            one.directory.resolve().name.removesuffix(".index") for one in (index, against) if one is not None
        ]
        if len(set(names)) < len(names):
            names = [str(one.directory) for one in (index, against) if one is not None]
        self.sides = {"a": Side("a", index, name=names[0], images=images)}
        if against is not None:
            if against.levels != index.levels:
                raise SearchError(
                    f"two indexes can be compared where their levels agree, got {list(index.levels)} and "
                    f"{list(against.levels)}"
                )
            self.sides["b"] = Side("b", against, name=names[1], images=images)
        self._uploads: OrderedDict[str, Upload] = OrderedDict()
        self._uploads_lock = threading.Lock()
        self.started = time.monotonic()

    def side(self, key: str) -> Side:
        """One of the indexes: ``a``, or ``b`` where there are two.

        Raises:
            SearchError: there is no second one.
        """
        side = self.sides.get(key)
        if side is None:
            raise SearchError("there is one index only; start the server with --against INDEX2 to compare")
        return side

    def upload(self, data: bytes, name: str) -> Upload:
        """Take an image to search with.

        Raises:
            ImageError: not an image, damaged, or too large.
            SearchError: an index keeps no model.
        """
        # What it looks like in the answer depends on the bytes alone: the same file gets the same address.
        key = hashlib.sha256(data).hexdigest()[:32]
        with self._uploads_lock:
            if key in self._uploads:
                self._uploads.move_to_end(key)
                return self._uploads[key]
        image = pictures.decode(data, name="the upload", about=LARGE_SIZE)
        vectors = {side.key: side.embed(image) for side in self.sides.values()}
        upload = Upload(key, name, pictures.encode(image, LARGE_SIZE // 2), vectors)
        with self._uploads_lock:
            self._uploads[key] = upload
            while len(self._uploads) > MAX_UPLOADS:
                self._uploads.popitem(last=False)
        return upload

    def find_upload(self, key: str) -> Upload:
        """An image that was uploaded before.

        Raises:
            SearchError: it is not kept any more.
        """
        with self._uploads_lock:
            upload = self._uploads.get(key)
        if upload is None:
            raise SearchError("this upload is not kept any more; choose the image again")
        return upload

    def query(
        self, side: Side, *, item: str | None = None, upload: str | None = None, label: str | None = None
    ) -> Query:
        """A query from an image's id or an upload's key; ``label`` says the class of an upload.

        Raises:
            InputError: neither or both.
            SearchError: there is no such image, upload or class.
        """
        if (item is None) == (upload is None):
            raise InputError("give either the id of an image of the index or the key of an upload")
        if item is not None:
            row = side.index.row(item)
            return Query(row, None, side.index.labels[row], side.index.class_paths[row])
        assert upload is not None
        labels = side.labels_of(label) if label else None
        return Query(None, self.find_upload(upload), labels, label or "")

    def search(
        self, side: Side, query: Query, *, k: int, within: str
    ) -> tuple[list[Hit], list[int | None], QueryMetrics | None]:
        """The ranking of a query: its hits, the level each shares with it, and how good the whole ranking is.

        Raises:
            SearchError: there is no such branch.
        """
        if query.upload is not None:
            vector, key = query.upload.vectors[side.key], query.upload.key
        else:
            assert query.row is not None
            vector, key = side.index.vector(query.row), str(query.row)
        hits = side.index.search(vector[None], k=k, within=within, exclude=[query.row])[0]
        levels: list[int | None] = [None] * len(hits)
        if query.labels is not None and query.labels[0] != UNKNOWN and hits:
            rows = np.asarray([hit.row for hit in hits])
            levels = [int(level) for level in side.levels(query.labels, rows)]
        return hits, levels, side.metrics(key, query, vector)

    def mistakes(
        self, side: Side, *, sort: Sort, within: str, offset: int, limit: int
    ) -> tuple[list[Mistake], int]:
        """Queries that went wrong, the worst first, and how many there are in all.

        Args:
            side: whose.
            sort: ``severity`` (the first result is furthest off, and most surely so), ``h-ap`` (lowest),
                ``gain`` or ``loss`` (this model does most better or worse than the other).
            within: only queries of this branch.
            offset: how many to skip.
            limit: how many to return.

        Raises:
            SearchError: no such branch, or no second index to compare with.
        """
        analysis = side.analysis()
        if analysis is None:
            return [], 0
        allowed = np.ones(len(analysis.rows), dtype=bool)
        if within:
            allowed = np.isin(analysis.rows, side.tree.node(within).rows)
        other = self._other_h_ap(side, analysis)
        if sort == "severity":
            allowed &= analysis.too_far > 0
            order = np.lexsort((-analysis.scores[:, 0], -analysis.too_far))
        elif sort == "h-ap":
            allowed &= ~np.isnan(analysis.h_ap)
            order = np.argsort(analysis.h_ap, kind="stable")
        else:
            if other is None:
                raise SearchError(
                    "there is one index only; start the server with --against INDEX2 to compare"
                )
            difference = analysis.h_ap - other
            allowed &= (difference > 0) if sort == "gain" else (difference < 0)
            order = np.argsort(-difference if sort == "gain" else difference, kind="stable")
        chosen = order[allowed[order]]
        found = [self._mistake(analysis, int(at), other) for at in chosen[offset : offset + limit]]
        return found, len(chosen)

    def _other_h_ap(self, side: Side, analysis: Analysis) -> npt.NDArray[np.float64] | None:
        """H-AP of the same queries with the other model, NaN where it does not have them."""
        others = [other for other in self.sides.values() if other is not side]
        theirs = others[0].analysis() if others else None
        if theirs is None:
            return None
        by_id = {others[0].index.ids[row]: value for row, value in zip(theirs.rows, theirs.h_ap, strict=True)}
        return np.asarray([by_id.get(side.index.ids[row], np.nan) for row in analysis.rows])

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

    def confusions(self, side: Side, node: Node, limit: int = 12) -> list[Confusion]:
        """Classes of the same level that turn up among the first results of this class's images.

        Raises:
            SearchError: the whole tree is confused with nothing.
        """
        depth = len(node.names)
        analysis = side.analysis()
        if analysis is None or depth == 0:
            return []
        asked = np.isin(analysis.rows, node.rows, assume_unique=True)
        results, levels = analysis.results[asked], analysis.levels[asked]
        outside = results[(results >= 0) & (levels < depth)]
        counted: Counter[str] = Counter()
        level_of: dict[str, int] = {}
        for row in outside.tolist():
            names = split_path(side.index.class_paths[row])[:depth]
            path = "/".join(name.replace("/", r"\/") for name in names)
            counted[path] += 1
            level_of[path] = _common(names, node.names)
        total = max(1, int((results >= 0).sum()))
        return [
            Confusion(path, level_of[path], number / total) for path, number in counted.most_common(limit)
        ]


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    shared = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        shared += 1
    return shared
