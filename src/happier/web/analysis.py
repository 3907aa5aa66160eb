"""Every image of an index as a query against the others: where does the model go wrong, and how badly?"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from happier.evaluation import evaluate
from happier.search.engine import SearchScope
from happier.search.exact import scan
from happier.search.index import Index
from happier.search.items import known_depth
from happier.taxonomy import UNKNOWN, shared_levels

SHOWN = 10
# Pairs of query and image to compare: about a minute of one core at 512 dimensions.
MAX_PAIRS = 4_000_000_000
# Queries per batch; the work can be stopped between batches.
PAIRS_AT_ONCE = 5_000_000


@dataclass(frozen=True)
class Analysis:
    """The results of each query.

    Attributes:
        rows: of the queries, rising; all labelled images, or a random sample of very many.
        h_ap: of each ``[Q]``, NaN where undefined.
        severity: mean distance in the tree of the first results ``[Q]``.
        results: rows of the first results ``[Q, k]``, -1 past the end.
        scores: of the results.
        levels: that the results share with the query.
        possible: the finest level that any other image of the index shares with the query ``[Q]``.
    """

    rows: npt.NDArray[np.int64]
    h_ap: npt.NDArray[np.float64]
    severity: npt.NDArray[np.float64]
    results: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    levels: npt.NDArray[np.int8]
    possible: npt.NDArray[np.int64]

    def place(self, row: int) -> int | None:
        """Position of a row among the queries; None where it is not one of them."""
        at = int(np.searchsorted(self.rows, row))
        return at if at < len(self.rows) and self.rows[at] == row else None

    def by_row(self, count: int) -> npt.NDArray[np.float64]:
        """H-AP of every row of the index, NaN where it is not a query."""
        values = np.full(count, np.nan)
        values[self.rows] = self.h_ap
        return values

    @property
    def too_far(self) -> npt.NDArray[np.int64]:
        """By how many levels the first result misses what was possible ``[Q]``; 0 where it does not."""
        return np.asarray(self.possible - self.levels[:, 0], dtype=np.int64)


def analyse(
    index: Index, *, seed: int = 0, max_pairs: int = MAX_PAIRS, stop: threading.Event | None = None
) -> Analysis | None:
    """Search the index for each of its own labelled images; None where there are none, or when stopped.

    The ranking is exact whatever the index's engine, and the query is never its own result.
    """
    labelled = np.flatnonzero(known_depth(index.labels) > 0)
    if len(labelled) == 0 or len(index) < 2:
        return None
    wanted = max(1, min(len(labelled), max_pairs // len(index)))
    if wanted < len(labelled):
        labelled = np.sort(np.random.default_rng(seed).choice(labelled, size=wanted, replace=False))
    vectors, labels = index.vectors, index.labels
    numbers = np.arange(len(index))
    step = max(64, PAIRS_AT_ONCE // len(index))
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    for rows in (labelled[first : first + step] for first in range(0, len(labelled), step)):
        if stop is not None and stop.is_set():
            return None
        queries = (vectors[rows], labels[rows], vectors, labels, numbers[rows], numbers)
        values = evaluate(*queries, ks=(SHOWN,), distributed=False).per_query
        found, scores = _first_results(vectors, rows)
        shared = [
            shared_levels(labels[row][None], labels[others])[0]
            for row, others in zip(rows, found, strict=True)
        ]
        parts.append((values["H-AP"], values[f"severity@{SHOWN}"], found, scores, np.stack(shared)))
    h_ap, severity, results, scores, levels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Analysis(labelled, h_ap, severity, results, scores, levels, _possible(labels)[labelled])


def _first_results(
    vectors: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The rows nearest to each row, as the search shows them, and their scores."""
    k = min(SHOWN, len(vectors) - 1)
    found, scores = scan(vectors[rows], k + 1, SearchScope(vectors))
    other = found != rows[:, None]
    # Where duplicates crowd a query out of its own first results, the last result is dropped instead.
    other[other.all(axis=1), -1] = False
    return found[other].reshape(len(rows), k), scores[other].reshape(len(rows), k)


def _possible(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each row the finest level at which it is not alone in its class."""
    possible = np.zeros(len(labels), dtype=np.int64)
    for level in range(labels.shape[1]):
        codes = labels[:, level]
        known = codes != UNKNOWN
        sizes = np.bincount(codes[known], minlength=1) if known.any() else np.zeros(1, dtype=np.int64)
        company = known & (sizes[np.maximum(codes, 0)] > 1)
        possible[company] = level + 1
    return possible
