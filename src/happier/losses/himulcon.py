"""HiMulCon: a supervised contrastive loss on every level, each kept above the finer ones."""

from __future__ import annotations

import math
from typing import final

import torch

from happier.losses.option_checks import check_positive
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class HiMulConLoss(RetrievalLoss):
    """Supervised contrastive loss over all levels, where no level may lose less than a finer one.

        L = 1/D sum_l exp(1 / (D - l + 1)) mean_i mean_{p in P_l(i)} max( e(i, p), floor_l(i) )
        e(i, p) = -log( exp(s_ip / temperature) / sum_{a != i} exp(s_ia / temperature) )

    where ``D`` is the number of levels, ``P_l(i)`` are the items that share at least ``l`` levels with ``i``,
    and ``floor_l(i)`` is the largest ``e(i, p)`` over the positives of the finer levels (none at the finest).
    The mean over ``i`` is over the items with a positive at the level.

    Relations: with one level it is the supervised contrastive loss; unlike `HAPLoss` it sees no ranks.

    Args:
        temperature: of the softmax.
        constraint: keep each level above the finer ones; without it the levels are independent.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Zhang et al., Use All The Labels: A Hierarchical Multi-Label Contrastive Learning Framework, CVPR
        2022.

    >>> import torch
    >>> round(float(HiMulConLoss()(torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]))), 4)
    0.0001
    """

    def __init__(self, *, temperature: float = 0.1, constraint: bool = True) -> None:
        super().__init__()
        self.temperature = check_positive("temperature", temperature)
        self.constraint = constraint

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        levels = batch.levels()
        logits = (batch.scores() / self.temperature).masked_fill(levels < 0, -1e9)
        losses = logits.logsumexp(1, keepdim=True) - logits  # [B, R], e(i, p)
        depth = batch.labels.shape[1]
        floor = torch.zeros_like(losses[:, :1])
        total = batch.zero()
        for level in range(depth, 0, -1):
            positive = levels >= level
            counts = positive.sum(1)
            raised = torch.maximum(losses, floor) if self.constraint else losses
            means = (raised * positive).sum(1) / counts.clamp(min=1)
            weight = math.exp(1 / (depth - level + 1)) / depth
            total = total + weight * means.sum() / (counts > 0).sum().clamp(min=1)
            if self.constraint:
                hardest = losses.masked_fill(~positive, 0.0).amax(1, keepdim=True)
                floor = torch.maximum(floor, hardest)
        return total

    def extra_repr(self) -> str:
        """Temperature and constraint."""
        return f"temperature={self.temperature}, constraint={self.constraint}"
