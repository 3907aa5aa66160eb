"""Labels and ids -> which gallery items match which query, and to which level, without a Q x N table.

The gallery is sorted into depth-first label order once: the items that share at least ``l`` levels with a
query are then one contiguous range of it, for every query and level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from happier.arrays import IntArray
from happier.errors import InputError
from happier.relevance import Relevance
from happier.taxonomy import UNKNOWN, as_labels, path_codes, shared_levels

Chosen = slice | IntArray  # which queries


@dataclass(frozen=True)
class MatchBlock:
    """Matches of a few queries: positions in depth-first order, exclusions, and gallery items per level."""

    starts: IntArray  # [q, L] first position of the items that share this level or more
    stops: IntArray  # [q, L] one past the last
    excluded: IntArray  # gallery items never retrieved, concatenated over the queries
    excluded_start: IntArray  # [q + 1] where each query's part begins
    counts: IntArray  # [q, L + 1] gallery items per level, without the excluded ones
    excluded_counts: IntArray  # [q, L + 1] the excluded ones per level

    @property
    def owner(self) -> IntArray:
        """The query, 0..q-1, that each excluded item is excluded for."""
        return np.repeat(np.arange(len(self.counts)), np.diff(self.excluded_start))


@final
class Matching:
    """The matches between all queries and the gallery; `of` makes one from labels and ids.

    Args:
        queries: class numbers ``[Q, L]``: equal numbers mean equal paths down to that level, -1 unknown.
        gallery: class numbers ``[N, L]``.
        excluded: gallery items that are the query itself, concatenated over the queries.
        excluded_start: where each query's part of them begins ``[Q + 1]``.
    """

    def __init__(
        self, queries: IntArray, gallery: IntArray, excluded: IntArray, excluded_start: IntArray
    ) -> None:
        self.depth: Final = int(queries.shape[1])
        self._queries, self._gallery = queries, gallery
        self._excluded, self._excluded_start = excluded, excluded_start
        self.order: Final[IntArray] = np.lexsort(gallery.T[::-1])
        self._class_ranges = [self._ranges_of(level) for level in range(self.depth)]

    @classmethod
    def of(
        cls,
        labels: Any,
        gallery_labels: Any | None,
        ids: npt.NDArray[Any] | None,
        gallery_ids: npt.NDArray[Any] | None,
    ) -> Matching:
        """Match label rows.

        Args:
            labels: query label rows ``[Q, L]``.
            gallery_labels: gallery label rows ``[N, L]``; None for leave-one-out over the queries.
            ids: query ids ``[Q]``, or None.
            gallery_ids: gallery ids ``[N]``, or None.

        Raises:
            InputError: the label rows have different numbers of levels.
            TaxonomyError: labels that do not form a tree.
        """
        rows = as_labels(labels)
        columns = rows if gallery_labels is None else as_labels(gallery_labels, name="gallery_labels")
        if rows.shape[1] != columns.shape[1]:
            raise InputError(
                f"labels and gallery_labels must have the same levels, got {rows.shape[1]} "
                f"and {columns.shape[1]}"
            )
        if gallery_labels is None:
            queries = gallery = path_codes(rows)
        else:
            codes = path_codes(np.concatenate([rows, columns]))
            queries, gallery = codes[: len(rows)], codes[len(rows) :]
        exclusions = _exclusions(len(rows), ids, gallery_ids, leave_one_out=gallery_labels is None)
        return cls(queries, gallery, *exclusions)

    def at_level(self, level: int) -> Matching:
        """The same items with the classes of one level, 1..L, as their only label."""
        column = slice(level - 1, level)
        return Matching(
            self._queries[:, column], self._gallery[:, column], self._excluded, self._excluded_start
        )

    @property
    def queries(self) -> int:
        """Number of queries Q."""
        return len(self._queries)

    @property
    def query_classes(self) -> IntArray:
        """Number of each query's class ``[Q]``: the finest that is known; one of its own where none is."""
        depth = (self._queries != UNKNOWN).sum(1)
        finest = self._queries[np.arange(self.queries), np.maximum(depth, 1) - 1]
        finest = np.where(depth == 0, np.arange(self.queries), finest)
        return np.unique(np.stack([depth, finest]), axis=1, return_inverse=True)[1].reshape(-1)

    @property
    def items(self) -> int:
        """Number of gallery items N."""
        return len(self._gallery)

    def _ranges_of(self, level: int) -> tuple[IntArray, IntArray]:
        """First and one-past-last position in the order of each class of a level."""
        number = int(max(self._queries[:, level].max(), self._gallery[:, level].max())) + 1
        start, stop = np.zeros(number, dtype=np.int64), np.zeros(number, dtype=np.int64)
        column = self._gallery[self.order, level]
        positions = np.flatnonzero(column != UNKNOWN)
        if len(positions):
            codes = column[positions]
            first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
            last = np.r_[first[1:], len(codes)] - 1
            start[codes[first]] = positions[first]
            stop[codes[first]] = positions[last] + 1
        return start, stop

    def block(self, chosen: Chosen) -> MatchBlock:
        """Matches of some queries."""
        codes = self._queries[chosen]
        queries = len(codes)
        starts = np.zeros((queries, self.depth), dtype=np.int64)
        stops = np.zeros_like(starts)
        for level, (start, stop) in enumerate(self._class_ranges):
            known = codes[:, level] != UNKNOWN
            starts[known, level] = start[codes[known, level]]
            stops[known, level] = stop[codes[known, level]]
        at_least = np.zeros((queries, self.depth + 2), dtype=np.int64)
        at_least[:, 0] = self.items
        at_least[:, 1:-1] = stops - starts
        left, right = self._excluded_start[:-1][chosen], self._excluded_start[1:][chosen]
        excluded_start = np.r_[0, np.cumsum(right - left)]
        excluded = self._excluded[_runs(left, right)]
        excluded_counts = np.zeros((queries, self.depth + 1), dtype=np.int64)
        owner = np.repeat(np.arange(queries), right - left)
        level_of = _levels_of_pairs(codes[owner], self._gallery[excluded])
        np.add.at(excluded_counts, (owner, level_of), 1)
        return MatchBlock(
            starts=starts,
            stops=stops,
            excluded=excluded,
            excluded_start=excluded_start,
            counts=at_least[:, :-1] - at_least[:, 1:] - excluded_counts,
            excluded_counts=excluded_counts,
        )

    def levels(self, chosen: Chosen) -> npt.NDArray[np.int8]:
        """Level that each of some queries shares with each gallery item ``[q, N]``."""
        return shared_levels(self._queries[chosen], self._gallery).astype(np.int8, copy=False)


def relevance_table(relevance: Relevance, block: MatchBlock) -> npt.NDArray[np.float64]:
    """Relevance of each level for each query of a block ``[q, L + 1]``."""
    counted = block.counts + block.excluded_counts if relevance.count_query else block.counts
    return np.ascontiguousarray(relevance(counted), dtype=np.float64)


def _levels_of_pairs(first: IntArray, second: IntArray) -> IntArray:
    same = (first == second) & (first != UNKNOWN)
    return np.asarray(np.cumprod(same, axis=1).sum(axis=1), dtype=np.int64)


def _exclusions(
    queries: int,
    ids: npt.NDArray[Any] | None,
    gallery_ids: npt.NDArray[Any] | None,
    *,
    leave_one_out: bool,
) -> tuple[IntArray, IntArray]:
    """Gallery items that are the query itself: by index in leave-one-out, by equal id otherwise."""
    if ids is None:
        if leave_one_out:
            return np.arange(queries), np.arange(queries + 1)
        return np.zeros(0, dtype=np.int64), np.zeros(queries + 1, dtype=np.int64)
    theirs = ids if gallery_ids is None else gallery_ids
    _, codes = np.unique(np.concatenate([ids, theirs]), return_inverse=True)
    mine, codes = codes[:queries], codes[queries:]
    by_id = np.argsort(codes, kind="stable")
    left = np.searchsorted(codes[by_id], mine, side="left")
    right = np.searchsorted(codes[by_id], mine, side="right")
    return by_id[_runs(left, right)], np.r_[0, np.cumsum(right - left)]


def _runs(left: IntArray, right: IntArray) -> IntArray:
    """The integers of each range left..right, concatenated."""
    sizes = right - left
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(np.repeat(left, sizes) + within, dtype=np.int64)
