"""Multi-Similarity: all pairs of the batch, weighted by how hard they are."""

from __future__ import annotations

from typing import final

import torch

from happier.losses.option_checks import check_positive
from happier.losses.proxy_anchor import log_one_plus_sum_exp
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class MultiSimilarityLoss(RetrievalLoss):
    """Each query attracts the items of its finest class and repels the others, hard ones more.

        L = mean_i [ 1/alpha log(1 + sum_{p in P_i} exp(-alpha (s_ip - base)))
                   + 1/beta  log(1 + sum_{n in N_i} exp(beta (s_in - base))) ]

    where ``P_i`` are the items of the finest class of ``i``, and ``N_i`` all others. The query is not
    retrieved for itself, and a query without a positive still repels. The paper's selection of pairs is a
    miner: give its pairs as ``indices_tuple``.

    Relations: `ProxyAnchorLoss` is the same between proxies and items; `TripletLoss` looks at triplets.

    Args:
        alpha: sharpness of the positive pairs.
        beta: sharpness of the negative pairs.
        base: the score that pairs are pushed away from.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Wang et al., Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning, CVPR 2019.

    >>> import torch
    >>> round(float(MultiSimilarityLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))), 4)
    0.1566
    """

    def __init__(self, *, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5) -> None:
        super().__init__()
        self.alpha = check_positive("alpha", alpha)
        self.beta = check_positive("beta", beta)
        self.base = base

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        ahead, matches = batch.scores() - self.base, batch.fine_matches()
        pulled = log_one_plus_sum_exp(-self.alpha * ahead, matches == 1, dim=1) / self.alpha
        pushed = log_one_plus_sum_exp(self.beta * ahead, matches == 0, dim=1) / self.beta
        return (pulled + pushed).mean()

    def extra_repr(self) -> str:
        """Sharpness and base."""
        return f"alpha={self.alpha}, beta={self.beta}, base={self.base}"
