"""Blocks of scores by BLAS, tallied by the compiled kernel, threads over queries."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from happier.evaluation.inputs import Vectors
from happier.evaluation.matching import Chosen, MatchBlock, Matching, relevance_table
from happier.metrics import kernel, ranked
from happier.metrics.schema import Schema
from happier.relevance import Relevance

FloatArray = npt.NDArray[np.float64]

# BLAS packs the gallery anew for each block: with this many queries at a time that costs a tenth of the
# product, however large the gallery is. A small gallery has room for more; a huge one must do with fewer.
BLOCK_QUERIES = 256
BLOCK_BYTES, LARGEST_BLOCK_BYTES = 128 << 20, 1 << 30


@dataclass(frozen=True)
class Tallies:
    """What the kernel found for each query; every metric is made of these."""

    sums: FloatArray  # [q, SCALARS + 2 L]
    head: npt.NDArray[np.int8]  # [q, k] level at each of the first ranks, -1 past the end


def scores_of(
    queries: Vectors,
    chosen: Chosen,
    gallery: Vectors,
    again: Any,
    earlier: Any,
    out: npt.NDArray[Any],
    pool: ThreadPoolExecutor | None = None,
    threads: int = 1,
) -> npt.NDArray[Any]:
    """Scores of the chosen queries against the whole gallery, written into ``out``."""
    rows = queries.array(chosen, dtype=out.dtype)
    block = out[: len(rows)]
    values = gallery.values
    in_memory = type(values) is np.ndarray and values.dtype == out.dtype and values.flags.c_contiguous

    def fill(part: slice) -> None:
        """Scores of a part of the gallery; cast, or read from disk, piece by piece where it has to be."""
        pieces = [(part.start, part.stop)] if in_memory else gallery.pieces(part.start, part.stop)
        for start, stop in pieces:
            items = gallery.array(slice(start, stop), dtype=out.dtype)
            np.matmul(rows, items.T, out=block[:, start:stop])

    # Each thread takes a part of the gallery, not of the queries: what BLAS packs, it packs once.
    list((pool.map if pool else map)(fill, _parts(len(gallery), threads)))
    if len(again):
        block[:, again] = block[:, earlier]
    return block


def block_rows(items: int, itemsize: int, queries: int, block_size: int | None) -> int:
    """Queries per block: as asked, or by the memory that a row of scores takes."""
    row = items * itemsize
    fitting = max(BLOCK_BYTES // row, min(BLOCK_QUERIES, LARGEST_BLOCK_BYTES // row))
    return max(1, min(queries, block_size or fitting))


def tally(
    queries: Vectors,
    gallery: Vectors,
    matching: Matching,
    relevance: Relevance,
    schema: Schema,
    *,
    first: int,
    last: int,
    worst: bool,
    threads: int,
    block_size: int | None,
) -> Tallies:
    """Tally the queries first..last."""
    kind = np.float64 if queries.is_double or gallery.is_double else np.float32
    again, earlier = gallery.duplicates()
    rows = block_rows(matching.items, np.dtype(kind).itemsize, last - first, block_size)
    buffer = np.empty((rows, matching.items), dtype=kind)
    head = min(schema.head, matching.items)
    sums = np.empty((last - first, kernel.SCALARS + 2 * schema.depth))
    heads = np.full((last - first, schema.head), -1, dtype=np.int8)
    discounts = np.zeros(matching.items + 1)
    discounts[1:] = 1 / np.log2(np.arange(2, matching.items + 2))

    order = matching.order.astype(np.uint32)
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=np.uint32)

    def work(part: slice, block: MatchBlock, scores: npt.NDArray[Any], table: FloatArray, start: int) -> None:
        """Run the kernel on some rows of a block; it lets go of the interpreter, so threads run abreast."""
        rows = slice(start + part.start, start + part.stop)
        kernel.tally_block(
            scores[part], order, place, block.starts[part], block.stops[part], block.excluded,
            block.excluded_start[part.start : part.stop + 1], block.counts[part], table[part],
            discounts, worst, sums[rows], heads[rows, :head],
        )  # fmt: skip

    # BLAS's own threads would go on spinning while the kernel runs, so ours are the only ones.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for start in range(first, last, rows):
            stop = min(start + rows, last)
            chosen = slice(start, stop)
            scores = scores_of(queries, chosen, gallery, again, earlier, buffer, pool, threads)
            block = matching.block(chosen)
            table = relevance_table(relevance, block)
            # A few parts each, so that no thread waits long for the others.
            parts = _parts(stop - start, 4 * threads if threads > 1 else 1)
            jobs = [pool.submit(work, part, block, scores, table, start - first) for part in parts]
            for job in jobs:
                job.result()
    return Tallies(sums, heads)


def _parts(rows: int, number: int) -> list[slice]:
    """Split rows into parts of nearly the same size."""
    edges = np.linspace(0, rows, min(rows, number) + 1).astype(int)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


def metrics_of(
    tallies: Tallies, counts: npt.NDArray[np.int64], relevance: FloatArray, schema: Schema
) -> Iterator[tuple[str, FloatArray]]:
    """Turn tallies into the metrics of `Schema`, one at a time: all at once would fill the memory."""
    depth = schema.depth
    sums = tallies.sums
    at_least = counts[:, ::-1].cumsum(1)[:, ::-1].astype(np.float64)  # [q, L + 1] items of a level or finer
    total = (relevance * counts)[:, 1:].sum(1)
    positives = at_least[:, 1]
    with np.errstate(invalid="ignore", divide="ignore"):
        yield "H-AP", np.where(total > 0, sums[:, kernel.HAP] / total, np.nan)
        yield "ASI", np.where(positives > 0, sums[:, kernel.ASI], np.nan)
        ideal = ranked.ideal_dcg(torch.from_numpy(counts)).numpy()
        yield "NDCG", np.where(positives > 0, sums[:, kernel.DCG] / ideal, np.nan)
        for kind, offset in (("AP", kernel.SCALARS), ("mAP@R", kernel.SCALARS + depth)):
            for level, name in schema.levels():
                value = sums[:, offset + level - 1] / at_least[:, level]
                yield f"{kind}/{name}", np.where(at_least[:, level] > 0, value, np.nan)
        yield "first_mistake", sums[:, kernel.FIRST_MISTAKE].copy()
        for k in schema.ks:
            yield from _metrics_at(k, tallies.head[:, :k], counts, at_least, relevance, total, schema)
        yield "tied_queries", sums[:, kernel.TIED].copy()


def _metrics_at(
    k: int,
    head: npt.NDArray[np.int8],
    counts: npt.NDArray[np.int64],
    at_least: FloatArray,
    relevance: FloatArray,
    total: FloatArray,
    schema: Schema,
) -> Iterator[tuple[str, FloatArray]]:
    depth = schema.depth
    found = np.stack([(head == level).sum(1) for level in range(depth + 1)], axis=1)  # [q, L + 1]
    last = head[:, -1].astype(np.int64)
    own = np.where(last >= 0, np.take_along_axis(relevance, np.maximum(last, 0)[:, None], 1)[:, 0], 0.0)
    shared = (found * np.minimum(relevance, own[:, None]))[:, 1:].sum(1)
    yield f"H-P@{k}", np.where(own > 0, shared / (k * own), np.nan)
    yield f"H-R@{k}", np.where(total > 0, (found * relevance)[:, 1:].sum(1) / total, np.nan)
    discounts = 1 / np.log2(np.arange(2, head.shape[1] + 2))
    gains = 2.0 ** np.arange(depth + 1) - 1
    dcg = sum(gains[level] * ((head == level) @ discounts) for level in range(1, depth + 1))
    ideal = ranked.ideal_dcg(torch.from_numpy(counts), k).numpy()
    yield f"NDCG@{k}", np.where(at_least[:, 1] > 0, dcg / ideal, np.nan)
    items = found.sum(1)
    distance = (found * (depth - np.arange(depth + 1))).sum(1)
    yield f"severity@{k}", np.where(items > 0, distance / items, np.nan)
    hits = found[:, ::-1].cumsum(1)[:, ::-1]
    for level, name in schema.levels():
        yield f"R@{k}/{name}", np.where(at_least[:, level] > 0, (hits[:, level] > 0) * 1.0, np.nan)
    for level, name in schema.levels():
        yield f"P@{k}/{name}", np.where(at_least[:, level] > 0, hits[:, level] / k, np.nan)
    for level, name in schema.levels_and_none():
        yield f"share@{k}/{name}", np.where(items > 0, found[:, level] / items, np.nan)
