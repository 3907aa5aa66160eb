"""The rankings behind the numbers: the first items of a query, and its precision-recall curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from happier.arrays import IntArray
from happier.errors import InputError, OptionError
from happier.evaluation.kernel_engine import ranked_levels
from happier.evaluation.matching import relevance_table
from happier.evaluation.options import PAPER_RELEVANCE, Ties
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.scores import score_blocks
from happier.evaluation.torch_engine import rank_by_score
from happier.metrics.ranked import hierarchical_rank, hierarchical_recall
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
    # Where all items are wanted, sorting them needs about twenty times the memory of the scores.
    for block in score_blocks(problem, chosen, copies=20):
        shared = problem.matching.levels(block.queries)
        order = _first(torch.from_numpy(block.scores), torch.from_numpy(shared), k, worst=ties == "worst")
        shared[block.match.owner, block.match.excluded] = -1
        first = block.place, slice(order.shape[1])
        indices[first] = order
        scores[first] = np.take_along_axis(block.scores, order, axis=1)
        levels[first] = np.take_along_axis(shared, order, axis=1)
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
    for levels, match in ranked_levels(problem, chosen, worst=ties == "worst"):
        positives, ranks = _positives(levels)
        table, counts = torch.from_numpy(relevance_table(relevance, match)), torch.from_numpy(match.counts)
        recalls = hierarchical_recall(positives, table, counts).numpy()
        # Up to a rank, the area below the curve is what the ranks so far add to H-AP.
        areas = (hierarchical_rank(positives, table) / ranks).cumsum(1).numpy()
        totals = (table * counts)[:, 1:].sum(1).numpy()
        for recall, area, whole in zip(recalls, areas, totals, strict=True):
            if whole <= 0:
                continue
            # Read off at the edges: in between it is linear.
            at_edges = np.interp(edges, np.r_[0.0, recall], np.r_[0.0, area / whole])
            at_edges[-1] = area[-1] / whole  # the last recall is 1 up to rounding
            total += np.diff(at_edges) * bins
            defined += 1
    return Curve(edges[1:], total / defined if defined else np.full(bins, np.nan))


def _positives(levels: npt.NDArray[np.int8]) -> tuple[Tensor, Tensor]:
    """Of ranked levels ``[q, N]`` the positive ones ``[q, P]``, padded with -1, and the rank of each."""
    row, place = np.nonzero(levels > 0)
    number = np.bincount(row, minlength=len(levels))
    column = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    positives = np.full((len(levels), int(number.max(initial=0))), -1, dtype=np.int8)
    ranks = np.ones(positives.shape)
    positives[row, column], ranks[row, column] = levels[row, place], place + 1
    return torch.from_numpy(positives), torch.from_numpy(ranks)


def _first(scores: Tensor, levels: Tensor, k: int, *, worst: bool) -> npt.NDArray[np.int64]:
    """Order of the first k items ``[q, k]``."""
    if k >= scores.shape[1]:
        return rank_by_score(scores, levels, worst=worst).numpy()
    values, near = scores.topk(k + 1, dim=1)
    if (values[:, -1] == values[:, -2]).any():
        # Items that tie with the last may belong among them.
        number = int((scores >= values[:, -2:-1]).sum(1).max())
        near = scores.topk(number, dim=1, sorted=False).indices
    near = near.sort(dim=1).values  # so that equal ones keep their order
    order = rank_by_score(scores.gather(1, near), levels.gather(1, near), worst=worst)
    return near.gather(1, order[:, :k]).numpy()


def _check_queries(queries: Indices | None, number: int) -> IntArray:
    if queries is None:
        return np.arange(number)
    chosen = np.asarray(queries)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise InputError(f"queries must be a list of indices, got shape {chosen.shape} of {chosen.dtype}")
    if chosen.size and (chosen.min() < 0 or chosen.max() >= number):
        raise InputError(f"queries must be in 0..{number - 1}, got {chosen.min()} to {chosen.max()}")
    return chosen.astype(np.int64)
