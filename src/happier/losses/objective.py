"""What is summed over the positives of a query, given their ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import torch

AP: Final = 0
NDCG: Final = 1
RECALL: Final = 2


@final
@dataclass(frozen=True)
class Objective:
    """One of three sums over the positives ``k`` of a query; the loss is 1 minus it.

        AP        hrank(k) / rank(k)
        NDCG      weight(k) / log2(1 + rank(k))
        RECALL    sum_c cut_weights_c sigmoid((cuts_c - rank(k)) / temperature)

    where ``hrank`` is built from the weights, which sum to 1 over the items of a query for AP and are divided
    by the ideal sum for NDCG.

    Attributes:
        kind: one of the three.
        weights: float64 ``[Q, L+1]``, the weight of an item of each level; column 0 is 0.
        valid: bool ``[Q]``, the queries for which the objective is defined.
        cuts: float64 ``[C]``, the depths of recall; empty for the others.
        cut_weights: float64 ``[Q, C]``.
        temperature: of the sigmoid of recall.
    """

    kind: int
    weights: torch.Tensor
    valid: torch.Tensor
    cuts: torch.Tensor
    cut_weights: torch.Tensor
    temperature: float

    @classmethod
    def ap(cls, level_counts: torch.Tensor, relevances: torch.Tensor) -> Objective:
        """(H-)AP from the items ``[Q, L+1]`` and the relevance ``[Q, L+1]`` of each level."""
        total = (level_counts * relevances).sum(1, keepdim=True)
        valid = total.squeeze(1) > 0
        weights = relevances / torch.where(total > 0, total, torch.ones_like(total))
        return cls(AP, weights, valid, *_no_cuts(weights), 1.0)

    @classmethod
    def graded_ap(
        cls, relevance: torch.Tensor, left_out: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Objective]:
        """H-AP from any relevance ``[Q, N]``, and levels ``[Q, N]`` that order the items of each query alike.

        A level is then a distinct value of the relevance; what is ``left_out`` has level -1.
        """
        values = relevance.detach().to(torch.float64)
        if left_out is not None:
            values = values.masked_fill(left_out, 0.0)
        ordered, order = values.sort(dim=1, stable=True)
        rises = torch.diff(ordered, dim=1, prepend=ordered.new_zeros(len(ordered), 1)) > 0
        ranks = rises.cumsum(1)  # of the ordered items
        levels = torch.zeros_like(order).scatter(1, order, ranks).to(torch.int32)
        if left_out is not None:
            levels = levels.masked_fill(left_out, -1)
        # At most one level for each item; looking at the data is free on the CPU, and only there.
        depth = relevance.shape[1]
        if relevance.device.type == "cpu" and not torch.compiler.is_compiling() and ranks.numel():
            depth = max(1, int(ranks.max()))
        table = ordered.new_zeros(len(ordered), depth + 1).scatter(1, ranks, ordered)
        total = values.sum(1, keepdim=True)
        weights = table / torch.where(total > 0, total, torch.ones_like(total))
        return levels, cls(AP, weights, total.squeeze(1) > 0, *_no_cuts(weights), 1.0)

    @classmethod
    def ndcg(cls, level_counts: torch.Tensor, items: int) -> Objective:
        """NDCG with gain ``2^l - 1``; the ideal comes from the same items ``[Q, L+1]``, at most ``items``."""
        depth = level_counts.shape[1] - 1
        gains = 2.0 ** torch.arange(depth + 1, dtype=torch.float64, device=level_counts.device) - 1
        finer = level_counts.flip(1).cumsum(1).flip(1)  # [Q, L+1], items at this level or finer
        ranks = torch.arange(1, items + 1, dtype=torch.float64, device=level_counts.device)
        discounts = torch.cat([ranks.new_zeros(1), (1 / torch.log2(1 + ranks)).cumsum(0)])
        per_level = discounts[finer] - discounts[finer - level_counts]
        ideal = (gains * per_level).sum(1, keepdim=True)
        valid = ideal.squeeze(1) > 0
        weights = gains / torch.where(ideal > 0, ideal, torch.ones_like(ideal))
        return cls(NDCG, weights, valid, *_no_cuts(weights), 1.0)

    @classmethod
    def recall(cls, level_counts: torch.Tensor, ks: tuple[int, ...], temperature: float) -> Objective:
        """Mean recall at several depths, of a binary problem with items ``[Q, 2]``."""
        positives = level_counts[:, 1:].sum(1)
        weights = torch.zeros(level_counts.shape, dtype=torch.float64, device=level_counts.device)
        weights[:, 1:] = 1.0
        cuts = torch.tensor(ks, dtype=torch.float64, device=level_counts.device)
        reachable = torch.minimum(cuts, positives.clamp(min=1).to(torch.float64)[:, None])
        return cls(RECALL, weights, positives > 0, cuts, 1 / (reachable * len(ks)), temperature)


def _no_cuts(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return weights.new_zeros(0), weights.new_zeros(weights.shape[0], 0)
