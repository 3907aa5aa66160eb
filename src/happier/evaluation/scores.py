"""Blocks of scores by BLAS: some queries against the whole gallery, in one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from happier.arrays import IntArray
from happier.evaluation.matching import Chosen, MatchBlock
from happier.evaluation.problem import RetrievalProblem

# BLAS packs the gallery again for each block: with this many queries at a time that costs a tenth of the
# product, however large the gallery is. A small gallery leaves room for more, a huge one for fewer.
BLOCK_QUERIES = 256
BLOCK_BYTES, LARGEST_BLOCK_BYTES = 128 << 20, 2 << 30


def block_rows(items: int, itemsize: int, queries: int, block_size: int | None) -> int:
    """Queries per block: as given, or by the memory that a row of scores takes."""
    row = items * itemsize
    fitting = max(BLOCK_BYTES // row, min(BLOCK_QUERIES, LARGEST_BLOCK_BYTES // row))
    return max(1, min(queries, block_size or fitting))


def score(
    problem: RetrievalProblem,
    chosen: Chosen,
    out: npt.NDArray[Any],
    pool: ThreadPoolExecutor | None = None,
    threads: int = 1,
) -> npt.NDArray[Any]:
    """Scores of the chosen queries against the whole gallery, written into ``out``."""
    gallery = problem.gallery
    rows = problem.queries.array(chosen, dtype=out.dtype)
    block = out[: len(rows)]
    values = gallery.values
    in_memory = type(values) is np.ndarray and values.dtype == out.dtype and values.flags.c_contiguous

    def fill(part: slice) -> None:
        """Scores of a part of the gallery; cast, or read from disk, piece by piece where necessary."""
        pieces = [(part.start, part.stop)] if in_memory else gallery.pieces_ahead(part.start, part.stop)
        for start, stop in pieces:
            items = gallery.array(slice(start, stop), dtype=out.dtype)
            np.matmul(rows, items.T, out=block[:, start:stop])

    # Each thread takes a part of the gallery, not of the queries: BLAS then packs each part once.
    list((pool.map if pool else map)(fill, split_evenly(len(gallery), threads)))
    again, earlier = problem.duplicates
    if len(again):
        block[:, again] = block[:, earlier]
    return block


def split_evenly(rows: int, number: int) -> list[slice]:
    """Split rows into parts of nearly the same size."""
    edges = np.linspace(0, rows, min(rows, number) + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


@dataclass(frozen=True)
class ScoreBlock:
    """Some queries with their scores; the items that are the query itself have a score of -inf."""

    place: slice  # position of these queries among the chosen ones
    queries: IntArray  # [q]
    scores: npt.NDArray[Any]  # [q, N], overwritten by the next block
    match: MatchBlock


def score_blocks(
    problem: RetrievalProblem, chosen: IntArray, *, copies: int, block_size: int | None = None
) -> Iterator[ScoreBlock]:
    """Scores of the chosen queries, a block at a time.

    Args:
        problem: queries and gallery.
        chosen: indices of the queries.
        copies: memory that the caller needs for each block, as a multiple of its scores.
        block_size: queries per block; by default by memory.
    """
    items = problem.matching.items
    rows = block_rows(items, copies * problem.dtype.itemsize, len(chosen), block_size)
    buffer = np.empty((rows, items), dtype=problem.dtype)
    for start in range(0, len(chosen), rows):
        place = slice(start, min(start + rows, len(chosen)))
        wanted = chosen[place]
        scores = score(problem, wanted, buffer)
        match = problem.matching.block(wanted)
        scores[match.owner, match.excluded] = -np.inf
        yield ScoreBlock(place, wanted, scores, match)
