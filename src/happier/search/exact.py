"""Exact search: one matrix product over the vector file, block by block.

The product is numpy's, as in `happier.evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from happier.search.engine import EngineItems, Positions, SearchScope, Settings, VectorArray
from happier.search.options import check_options

_BLOCK_BYTES = 64 << 20
# A scope of so few rows is scanned whatever the engine: that is faster than to filter a graph, and exact.
SCAN_ROWS = 20_000
# The k-th best of this many scores is a bound that most of the others stay below.
_SAMPLE = 2048


class FlatEngine:
    """Compares with every vector, straight from the index's vector file."""

    exact = True

    def __init__(self) -> None:
        self.settings: Settings = {}

    @classmethod
    def create(cls, options: Mapping[str, Any]) -> FlatEngine:
        """A new one.

        Raises:
            OptionError: it has no options.
        """
        check_options("flat", options, {})
        return cls()

    def check(self, positions: Positions) -> None:
        """Nothing is kept outside the directory."""

    def add(self, vectors: VectorArray, items: EngineItems, *, start: int) -> None:
        """Nothing to do: the scope brings the vectors."""

    def delete(self, positions: Positions) -> None:
        """Nothing to do: the scope leaves them out."""

    def search(self, queries: VectorArray, k: int, scope: SearchScope) -> tuple[Positions, VectorArray]:
        """Scan the scope."""
        return scan(queries, k, scope)

    def search_harder(self, *, filtered: bool) -> bool:  # noqa: ARG002
        """Not possible: it compares with every vector."""
        return False

    def scans(self, rows: int) -> bool:  # noqa: ARG002
        """Always."""
        return True

    def write(self, directory: Path, stem: str) -> None:
        """Nothing to keep."""

    def clean(self) -> bool:
        """Nothing to remove."""
        return False

    def discard(self) -> None:
        """Nothing to remove."""

    def close(self) -> None:
        """Nothing to close."""


def scan(queries: VectorArray, k: int, scope: SearchScope) -> tuple[Positions, VectorArray]:
    """The ``k`` largest inner products of each query, equal ones in the order of their positions.

    Runs over blocks of rows, so the vector file may be larger than memory.
    """
    vectors, allowed = scope.vectors, scope.positions
    rows = len(vectors) if allowed is None else len(allowed)
    step = max(1, _BLOCK_BYTES // (4 * max(vectors.shape[1], len(queries))))
    best = np.full((len(queries), k), -1, dtype=np.int64)
    best_scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        chosen = np.arange(first, last) if allowed is None else allowed[first:last]
        # A run without gaps needs no copy.
        together = chosen[-1] - chosen[0] + 1 == len(chosen)
        block = vectors[chosen[0] : chosen[-1] + 1] if together else vectors[chosen]
        scores = queries @ np.asarray(block).T
        for row, found in enumerate(scores):
            _keep_best(best[row], best_scores[row], chosen, found)
    return best, best_scores


def rescore(
    queries: VectorArray, positions: Positions, vectors: VectorArray
) -> tuple[Positions, VectorArray]:
    """Candidates of an approximate engine with their exact scores, best first; -1 stays last."""
    scores = np.full(positions.shape, -np.inf, dtype=np.float32)
    for row, found in enumerate(positions):
        there = found >= 0
        scores[row, there] = vectors[found[there]] @ queries[row]
    order = np.lexsort((positions, -scores), axis=1)
    return np.take_along_axis(positions, order, axis=1), np.take_along_axis(scores, order, axis=1)


def _keep_best(best: Positions, best_scores: VectorArray, positions: Positions, scores: VectorArray) -> None:
    """Merge scores of rising positions into a query's best ones, in place."""
    k = len(best)
    bound = best_scores[-1]
    if bound == -np.inf and len(scores) > k:
        sample = scores[: max(_SAMPLE, k)]
        bound = np.partition(sample, len(sample) - k)[len(sample) - k]
    candidates = np.flatnonzero(scores >= bound)
    all_scores = np.concatenate([best_scores, scores[candidates]])
    all_positions = np.concatenate([best, positions[candidates]])
    # Earlier positions come first in the list, so a stable sort keeps equal scores in their order.
    order = np.argsort(-all_scores, kind="stable")[:k]
    best[:], best_scores[:] = all_positions[order], all_scores[order]
