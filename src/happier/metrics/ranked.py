"""Ranked levels + relevance -> one value per query, in plain torch, on any device.

Each function is a metric's definition written with cumulative sums. They share their first arguments:

- ``levels`` int ``[Q, n]``: the level 0..L that each retrieved item shares with the query, best rank first;
  -1 pads the end of shorter lists. The list may be cut: what it leaves out counts as not retrieved.
- ``counts`` ``[Q, L+1]``: gallery items at exactly each level.
- ``relevance`` ``[Q, L+1]``: relevance of each level.

and return float64 ``[Q]``, NaN where the metric is undefined (no positives, an empty list).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _ranks(levels: Tensor) -> Tensor:
    return torch.arange(1, levels.shape[1] + 1, dtype=torch.float64, device=levels.device)


def _found(levels: Tensor, level: int) -> Tensor:
    """How many items of this level or finer are at each rank or before it."""
    return (levels >= level).cumsum(1).to(torch.float64)


def _at_least(counts: Tensor, level: int) -> Tensor:
    return counts[:, level:].sum(1).to(torch.float64)


def _undefined_where(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(mask, math.nan)


def _relevance_of(levels: Tensor, relevance: Tensor) -> Tensor:
    """Relevance of each retrieved item ``[Q, n]``; 0 for padding."""
    return relevance.gather(1, levels.long().clamp(min=0)).masked_fill(levels < 0, 0.0)


def hierarchical_rank(levels: Tensor, relevance: Tensor) -> Tensor:
    """H-rank of each retrieved item (Eq. 2), ``[Q, n]``.

    hrank(k) = rel(k) + sum_{j before k} min(rel(j), rel(k))
    """
    own = _relevance_of(levels, relevance)
    hrank = torch.zeros_like(own)
    for level in range(1, relevance.shape[1]):
        seen = (levels == level).cumsum(1).to(torch.float64)  # k itself included: that is its rel(k)
        hrank += seen * torch.minimum(relevance[:, level, None], own)
    return hrank


def h_ap(levels: Tensor, relevance: Tensor, counts: Tensor) -> Tensor:
    """Hierarchical average precision (Eq. 3): AP where a mistake costs more the further it is in the tree.

        H-AP = sum_k hrank(k) / rank(k) / sum_k rel(k)

    Reference: Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022.
    """
    total = (relevance * counts)[:, 1:].sum(1)
    value = (hierarchical_rank(levels, relevance) / _ranks(levels)).sum(1) / total
    return _undefined_where(value, total <= 0)


def average_precision(levels: Tensor, counts: Tensor, level: int) -> Tensor:
    """Binary average precision with the items of ``level`` or finer as positives.

    AP(l) = 1 / |Omega^{+,l}| sum_k rank^{+,l}(k) / rank(k)
    """
    positives = _at_least(counts, level)
    precision = _found(levels, level) / _ranks(levels) * (levels >= level)
    return _undefined_where(precision.sum(1) / positives, positives == 0)


def average_precision_at_r(levels: Tensor, counts: Tensor, level: int) -> Tensor:
    """mAP@R: average precision over the first R ranks, R being the number of positives.

    mAP@R(l) = 1 / R sum_{k <= R} P@k(l) [k is positive],    R = |Omega^{+,l}|

    Reference: Musgrave et al., A Metric Learning Reality Check, ECCV 2020.
    """
    positives = _at_least(counts, level)
    inside = (levels >= level) & (_ranks(levels) <= positives[:, None])
    precision = _found(levels, level) / _ranks(levels) * inside
    return _undefined_where(precision.sum(1) / positives, positives == 0)


def asi(levels: Tensor, counts: Tensor) -> Tensor:
    """Average set intersection: how much of the ideal top n is in the top n, averaged over n <= N.

        ASI = 1/N sum_{n <= N} SI(n),    SI(n) = 1/n sum_{l >= 1} min(#l in top n, #l in the ideal top n)

    where N is the number of positives; items of one level are interchangeable.

    Reference: Fagin et al., Comparing top k lists, 2003; Sun et al., Dynamic Metric Learning, CVPR 2021.
    """
    positives = counts[:, 1:].sum(1)
    width = int(positives.max()) if len(positives) else 0
    if width > levels.shape[1]:  # a cut list is followed by nothing
        levels = torch.nn.functional.pad(levels, (0, width - levels.shape[1]), value=-1)
    levels = levels[:, :width]
    ranks = _ranks(levels)  # n
    shared = torch.zeros(levels.shape, dtype=torch.float64, device=levels.device)
    for level in range(1, counts.shape[1]):
        above = _at_least(counts, level + 1)[:, None]
        ideal = (ranks - above).clamp(min=0).minimum(counts[:, level, None].to(torch.float64))
        shared += (levels == level).cumsum(1).to(torch.float64).minimum(ideal)
    inside = ranks <= positives[:, None]
    return _undefined_where((shared / ranks * inside).sum(1) / positives, positives == 0)


def ndcg(levels: Tensor, counts: Tensor, k: int | None = None) -> Tensor:
    """Normalised discounted cumulated gain, over the whole list or its first ``k``.

        DCG = sum_k (2^l(k) - 1) / log2(1 + rank(k)),    NDCG = DCG / ideal DCG

    The ideal is taken from the whole gallery, not from what was retrieved.

    Reference: Jarvelin and Kekalainen, Cumulated gain-based evaluation of IR techniques, 2002.
    """
    depth = counts.shape[1] - 1
    gains = 2.0 ** torch.arange(depth + 1, dtype=torch.float64, device=levels.device) - 1
    stop = levels.shape[1] if k is None else min(k, levels.shape[1])
    head = levels[:, :stop]
    dcg = (gains[head.long().clamp(min=0)] / torch.log2(1 + _ranks(head))).sum(1)
    ideal = ideal_dcg(counts, k)
    return _undefined_where(dcg / ideal, ideal == 0)


def ideal_dcg(counts: Tensor, k: int | None = None) -> Tensor:
    """DCG of the best ranking of the gallery, ``[Q]``: finest level first."""
    depth = counts.shape[1] - 1
    longest = int(counts[:, 1:].sum(1).max()) if len(counts) else 0
    steps = torch.arange(2, longest + 2, dtype=torch.float64, device=counts.device)
    reached = torch.nn.functional.pad((1 / torch.log2(steps)).cumsum(0), (1, 0))  # discounts of the first n
    total = torch.zeros(len(counts), dtype=torch.float64, device=counts.device)
    stop = counts[:, 1:].sum(1).long()
    if k is not None:
        stop = stop.clamp(max=k)
    above = torch.zeros_like(stop)
    for level in range(depth, 0, -1):
        below = above + counts[:, level].long()
        total += (2.0**level - 1) * (reached[below.minimum(stop)] - reached[above.minimum(stop)])
        above = below
    return total


def recall_at_k(levels: Tensor, counts: Tensor, level: int, k: int) -> Tensor:
    """R@k: 1 if any of the first k items shares ``level`` or finer, else 0 (the field's Recall@k)."""
    hit = (levels[:, :k] >= level).any(1).to(torch.float64)
    return _undefined_where(hit, _at_least(counts, level) == 0)


def precision_at_k(levels: Tensor, counts: Tensor, level: int, k: int) -> Tensor:
    """P@k: share of the first k ranks held by items of ``level`` or finer."""
    hits = (levels[:, :k] >= level).sum(1).to(torch.float64)
    return _undefined_where(hits / k, _at_least(counts, level) == 0)


def hierarchical_recall(levels: Tensor, relevance: Tensor, counts: Tensor) -> Tensor:
    """H-R at every rank, ``[Q, n]``: the share of all relevance that is retrieved (supplementary A.2).

    H-R@k = sum_{j <= k} rel(j) / sum_{j positive} rel(j)
    """
    total = (relevance * counts)[:, 1:].sum(1, keepdim=True)
    return _undefined_where(_relevance_of(levels, relevance).cumsum(1) / total, total <= 0)


def hierarchical_precision(levels: Tensor, relevance: Tensor) -> Tensor:
    """H-P at every rank, ``[Q, n]``; undefined where the item there has no relevance (supplementary A.2).

    H-P@k = sum_{j <= k} min(rel(j), rel(k)) / (k rel(k))
    """
    own = _relevance_of(levels, relevance)
    return _undefined_where(hierarchical_rank(levels, relevance) / (_ranks(levels) * own), own <= 0)


def hierarchical_recall_at_k(levels: Tensor, relevance: Tensor, counts: Tensor, k: int) -> Tensor:
    """H-R@k; the whole list where it is shorter than k."""
    return hierarchical_recall(levels[:, :k], relevance, counts)[:, -1]


def hierarchical_precision_at_k(levels: Tensor, relevance: Tensor, k: int) -> Tensor:
    """H-P@k; undefined where the k-th item has no relevance or there is none."""
    if k > levels.shape[1]:
        return torch.full((len(levels),), math.nan, dtype=torch.float64, device=levels.device)
    return hierarchical_precision(levels[:, :k], relevance)[:, -1]


def severity_at_k(levels: Tensor, depth: int, k: int) -> Tensor:
    """Mean tree distance ``L - level`` of the first k items (0: all of the query's finest class).

    `Schema.compute` leaves queries without positives out of an evaluation's severity.
    """
    head = levels[:, :k]
    items = (head >= 0).sum(1)
    return _undefined_where(((depth - head) * (head >= 0)).sum(1).to(torch.float64) / items, items == 0)


def share_at_k(levels: Tensor, level: int, k: int) -> Tensor:
    """Share of the first k items that are at exactly ``level``."""
    head = levels[:, :k]
    items = (head >= 0).sum(1)
    return _undefined_where((head == level).sum(1).to(torch.float64) / items, items == 0)


def first_mistake(levels: Tensor, depth: int) -> Tensor:
    """Tree distance ``L - level`` of the first item that is not of the query's finest class."""
    wrong = (levels >= 0) & (levels < depth)
    first = wrong.int().argmax(1)  # the first of the largest
    distance = (depth - levels.gather(1, first[:, None])[:, 0]).to(torch.float64)
    return _undefined_where(distance, ~wrong.any(1))
