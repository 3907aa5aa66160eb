"""Blocks of scores, tallied by the compiled kernel, threads over queries."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from happier.arrays import FloatArray, IntArray
from happier.evaluation.matching import MatchBlock, relevance_table
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.scores import block_rows, score, score_blocks, split_evenly
from happier.metrics import kernel, ranked
from happier.metrics.schema import Schema


@dataclass(frozen=True)
class Tallies:
    """What the kernel found for each query; every metric is computed from these."""

    sums: FloatArray  # [q, SCALARS + 2 L]
    head: npt.NDArray[np.int8]  # [q, k] level at each of the first ranks, -1 past the end


def tally(problem: RetrievalProblem, schema: Schema, options: EvaluationOptions, part: range) -> Tallies:
    """Tally a part of the queries."""
    matching, threads = problem.matching, options.thread_count
    rows = block_rows(matching.items, problem.dtype.itemsize, len(part), options.block_size)
    buffer = np.empty((rows, matching.items), dtype=problem.dtype)
    head = min(schema.head, matching.items)
    sums = np.empty((len(part), kernel.SCALARS + 2 * schema.depth))
    heads = np.full((len(part), schema.head), -1, dtype=np.int8)
    discounts = np.zeros(matching.items + 1)
    discounts[1:] = 1 / np.log2(np.arange(2, matching.items + 2))

    order, place = _label_order(problem)

    def work(part: slice, block: MatchBlock, scores: npt.NDArray[Any], table: FloatArray, start: int) -> None:
        """Run the kernel on some rows of a block; it releases the interpreter, so threads run in parallel."""
        rows = slice(start + part.start, start + part.stop)
        kernel.tally_block(
            scores[part], order, place, block.starts[part], block.stops[part], block.excluded,
            block.excluded_start[part.start : part.stop + 1], block.counts[part], table[part],
            discounts, options.worst, sums[rows], heads[rows, :head],
        )  # fmt: skip

    # BLAS's own threads would keep spinning while the kernel runs, so only ours are used.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for start in range(part.start, part.stop, rows):
            stop = min(start + rows, part.stop)
            chosen = slice(start, stop)
            scores = score(problem, chosen, buffer, pool, threads)
            block = matching.block(chosen)
            table = relevance_table(options.level_relevance, block)
            # A few parts each, so that no thread waits long for the others.
            pieces = split_evenly(stop - start, 4 * threads if threads > 1 else 1)
            jobs = [pool.submit(work, piece, block, scores, table, start - part.start) for piece in pieces]
            for job in jobs:
                job.result()
    return Tallies(sums, heads)


def ranked_levels(
    problem: RetrievalProblem, chosen: IntArray, *, worst: bool
) -> Iterator[tuple[npt.NDArray[np.int8], MatchBlock]]:
    """The level at each rank of the whole gallery ``[q, N]``, -1 past the end, some queries at a time.

    Args:
        problem: queries and gallery.
        chosen: indices of the queries.
        worst: lower levels first among equal scores.
    """
    order, place = _label_order(problem)
    discounts = np.zeros(problem.matching.items + 1)
    # The caller needs some twenty bytes for each positive.
    for found in score_blocks(problem, chosen, copies=8):
        block, levels = found.match, np.empty(found.scores.shape, dtype=np.int8)
        sums = np.empty((len(levels), kernel.SCALARS + 2 * problem.depth))
        kernel.tally_block(
            found.scores, order, place, block.starts, block.stops, block.excluded, block.excluded_start,
            block.counts, np.zeros(block.counts.shape), discounts, worst, sums, levels,
        )  # fmt: skip
        yield levels, block


def _label_order(problem: RetrievalProblem) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The gallery in depth-first label order ``[N]``, and the position of each item in it ``[N]``."""
    order = problem.matching.order.astype(np.uint32)
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=np.uint32)
    return order, place


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
        yield "first_mistake", np.where(positives > 0, sums[:, kernel.FIRST_MISTAKE], np.nan)
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
    # Without anything to find, no answer could have been nearer: such a query says nothing about severity.
    items = np.where(at_least[:, 1] > 0, found.sum(1), 0)
    distance = (found * (depth - np.arange(depth + 1))).sum(1)
    yield f"severity@{k}", np.where(items > 0, distance / items, np.nan)
    hits = found[:, ::-1].cumsum(1)[:, ::-1]
    for level, name in schema.levels():
        yield f"R@{k}/{name}", np.where(at_least[:, level] > 0, (hits[:, level] > 0) * 1.0, np.nan)
    for level, name in schema.levels():
        yield f"P@{k}/{name}", np.where(at_least[:, level] > 0, hits[:, level] / k, np.nan)
    for level, name in schema.levels_and_none():
        yield f"share@{k}/{name}", np.where(items > 0, found[:, level] / items, np.nan)
