"""The rankings behind the numbers: the first items of a query, and its precision-recall curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from happier.arrays import IntArray
from happier.errors import InputError, OptionError
from happier.evaluation.matching import MatchBlock, relevance_table
from happier.evaluation.options import PAPER_RELEVANCE, Ties
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.scores import score_blocks
from happier.evaluation.torch_engine import rank_by_score
from happier.metrics.ranked import hierarchical_precision, hierarchical_recall
from happier.relevance import Relevance

Indices = Sequence[int] | IntArray


@dataclass(frozen=True)
class Retrieval:
    """The first k gallery items of some queries, in the order that `happier.evaluate` ranks them.

    Attributes:
        queries: indices of the queries ``[q]``.
        indices: gallery items ``[q, k]``, -1 past the end of a gallery of fewer than k.
        scores: their scores ``[q, k]``, NaN past the end.
        levels: the level 0..L each shares with its query ``[q, k]``, -1 past the end.
    """

    queries: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    levels: npt.NDArray[np.int8]


@dataclass(frozen=True)
class Curve:
    """Mean hierarchical precision over equal steps of hierarchical recall; its mean is exactly H-AP.

    Attributes:
        recall: upper edge of each step ``[bins]``.
        precision: mean H-P in it ``[bins]``.
    """

    recall: npt.NDArray[np.float64]
    precision: npt.NDArray[np.float64]

    @property
    def area(self) -> float:
        """Area under the curve: the mean H-AP of its queries."""
        return float(self.precision.mean())


def retrieve(  # noqa: PLR0913 - the first six are those of `evaluate`
    embeddings: Any,
    labels: Any,
    gallery: Any | None = None,
    gallery_labels: Any | None = None,
    ids: Any | None = None,
    gallery_ids: Any | None = None,
    *,
    k: int,
    queries: Indices | None = None,
    ties: Ties = "worst",
) -> Retrieval:
    """The first k items of each query, in the order that `happier.evaluate` ranks them.

    Args:
        embeddings: as for `happier.evaluate`, like the next five.
        labels: int ``[Q, L]``.
        gallery: ``[N, D]``; None for leave-one-out.
        gallery_labels: int ``[N, L]``.
        ids: of the queries.
        gallery_ids: of the gallery.
        k: how many items.
        queries: indices of the queries wanted (default: all).
        ties: order of equal scores.
    """
    problem = RetrievalProblem.prepare(embeddings, labels, gallery, gallery_labels, ids, gallery_ids)
    return retrieve_problem(problem, k=k, queries=queries, ties=ties)


def retrieve_problem(
    problem: RetrievalProblem, *, k: int, queries: Indices | None = None, ties: Ties = "worst"
) -> Retrieval:
    """The first k items of each query of a prepared problem, as `retrieve`.

    Args:
        problem: queries and gallery, checked and sorted.
        k: how many items.
        queries: indices of the queries wanted (default: all).
        ties: order of equal scores.
    """
    if k < 1:
        raise OptionError(f"k must be 1 or more, got {k}")
    chosen = _check_queries(queries, len(problem.queries))
    indices = np.full((len(chosen), k), -1, dtype=np.int64)
    scores = np.full((len(chosen), k), np.nan)
    levels = np.full((len(chosen), k), -1, dtype=np.int8)
    for place, block in _ranked_blocks(problem, chosen, worst=ties == "worst", k=k):
        width = block.order.shape[1]
        indices[place, :width] = block.order
        scores[place, :width] = block.scores
        levels[place, :width] = block.levels
    past_end = levels < 0
    indices[past_end], scores[past_end] = -1, np.nan
    return Retrieval(chosen, indices, scores, levels)


def precision_recall_curve(  # noqa: PLR0913 - the first six are those of `evaluate`
    embeddings: Any,
    labels: Any,
    gallery: Any | None = None,
    gallery_labels: Any | None = None,
    ids: Any | None = None,
    gallery_ids: Any | None = None,
    *,
    bins: int = 100,
    queries: Indices | None = None,
    relevance: Relevance = PAPER_RELEVANCE,
    ties: Ties = "worst",
) -> Curve:
    """Mean H-P over H-R (supplementary A.2), whose area is the mean H-AP of the queries.

    Between the recalls of two neighbouring ranks a query's curve is the later one's precision; each step
    of the result is the mean of that over the step and over the queries, so no area is lost.

    Args:
        embeddings: as for `happier.evaluate`, like the next five.
        labels: int ``[Q, L]``.
        gallery: ``[N, D]``; None for leave-one-out.
        gallery_labels: int ``[N, L]``.
        ids: of the queries.
        gallery_ids: of the gallery.
        bins: number of equal steps of recall.
        queries: indices of the queries wanted (default: all).
        relevance: of each level.
        ties: order of equal scores.
    """
    problem = RetrievalProblem.prepare(embeddings, labels, gallery, gallery_labels, ids, gallery_ids)
    return curve_of_problem(problem, bins=bins, queries=queries, relevance=relevance, ties=ties)


def curve_of_problem(
    problem: RetrievalProblem,
    *,
    bins: int = 100,
    queries: Indices | None = None,
    relevance: Relevance = PAPER_RELEVANCE,
    ties: Ties = "worst",
) -> Curve:
    """Mean H-P over H-R of a prepared problem, as `precision_recall_curve`.

    Args:
        problem: queries and gallery, checked and sorted.
        bins: number of equal steps of recall.
        queries: indices of the queries wanted (default: all).
        relevance: of each level.
        ties: order of equal scores.
    """
    if bins < 1:
        raise OptionError(f"bins must be 1 or more, got {bins}")
    chosen = _check_queries(queries, len(problem.queries))
    edges = np.linspace(0, 1, bins + 1)
    total, defined = np.zeros(bins), 0
    for _, block in _ranked_blocks(problem, chosen, worst=ties == "worst"):
        table = torch.from_numpy(relevance_table(relevance, block.match))
        ranked, counts = torch.from_numpy(block.levels), torch.from_numpy(block.match.counts)
        recall = hierarchical_recall(ranked, table, counts).numpy()
        precision = hierarchical_precision(ranked, table).nan_to_num(0.0).numpy()
        for row, heights in zip(recall, precision, strict=True):
            if np.isnan(row[0]):
                continue
            # Area from recall 0 to each rank, read off at the edges: in between it is linear.
            area = np.cumsum(np.diff(row, prepend=0.0) * heights)
            at_edges = np.interp(edges, np.r_[0.0, row], np.r_[0.0, area])
            at_edges[-1] = area[-1]  # the last recall is 1 up to rounding
            total += np.diff(at_edges) * bins
            defined += 1
    return Curve(edges[1:], total / defined if defined else np.full(bins, np.nan))


@dataclass(frozen=True)
class _RankedBlock:
    order: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    levels: npt.NDArray[np.int8]
    match: MatchBlock


def _ranked_blocks(
    problem: RetrievalProblem, chosen: IntArray, *, worst: bool, k: int | None = None
) -> Iterator[tuple[slice, _RankedBlock]]:
    """Rank the whole gallery (or its first k) for the chosen queries, a block at a time."""
    # A full sort needs about twenty times the memory of the scores.
    for block in score_blocks(problem, chosen, copies=20):
        levels = problem.matching.levels(block.queries)
        order = _first(torch.from_numpy(block.scores), torch.from_numpy(levels), worst=worst, k=k).numpy()
        levels[block.match.owner, block.match.excluded] = -1
        scores = np.take_along_axis(block.scores, order, axis=1).astype(np.float64)
        yield (
            block.place,
            _RankedBlock(order, scores, np.take_along_axis(levels, order, axis=1), block.match),
        )


def _first(scores: Tensor, levels: Tensor, *, worst: bool, k: int | None) -> Tensor:
    """Order of the first k items ``[q, k]``, of all where k is None."""
    items = scores.shape[1]
    if k is None or k >= items:
        return rank_by_score(scores, levels, worst=worst)
    least = scores.topk(k, dim=1).values[:, -1:]
    # Items that tie with the last may belong among them; sorted, so that equal ones keep their order.
    number = int((scores >= least).sum(1).max())
    near = scores.topk(number, dim=1, sorted=False).indices.sort(dim=1).values
    order = rank_by_score(scores.gather(1, near), levels.gather(1, near), worst=worst)
    return near.gather(1, order[:, :k])


def _check_queries(queries: Indices | None, number: int) -> IntArray:
    if queries is None:
        return np.arange(number)
    chosen = np.asarray(queries)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise InputError(f"queries must be a list of indices, got shape {chosen.shape} of {chosen.dtype}")
    if chosen.size and (chosen.min() < 0 or chosen.max() >= number):
        raise InputError(f"queries must be in 0..{number - 1}, got {chosen.min()} to {chosen.max()}")
    return chosen.astype(np.int64)
