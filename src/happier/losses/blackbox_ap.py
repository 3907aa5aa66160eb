"""Blackbox-AP: the true average precision, with the gradient of an interpolation between two rankings."""

from __future__ import annotations

from typing import Any, final

import torch

from happier.losses.option_checks import check_positive
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class BlackboxAPLoss(RetrievalLoss):
    """One minus the true average precision at the finest level, differentiated by ranking twice.

        L = 1 - 1/|P| sum_{k in P} rank+(k) / rank(k)
        dL/ds = -1/lam (rank(s) - rank(s + lam dL/drank))

    where ``rank`` is among all items, ``rank+`` among the items ``P`` of the query's finest class and held
    constant, and ``s`` are the scores, those of ``P`` less half a margin and the others more by it. The query
    is not retrieved for itself. Each query is differentiated on its own, so that ``lam`` does not depend on
    the size of the batch.

    Relations: `SmoothAPLoss` and `ROADMAPLoss` smooth the ranks instead.

    Args:
        lam: how far the second ranking is from the first; larger is smoother.
        margin: on the score.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Rolínek et al., Optimizing Rank-Based Metrics With Blackbox Differentiation, CVPR 2020.

    >>> import torch
    >>> float(BlackboxAPLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])))
    0.0
    """

    def __init__(self, *, lam: float = 4.0, margin: float = 0.02) -> None:
        super().__init__()
        self.lam = check_positive("lam", lam)
        self.margin = check_positive("margin", margin)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        matches = batch.fine_matches()
        shift = torch.where(matches == 1, -self.margin / 2, self.margin / 2)
        loss: torch.Tensor = _BlackboxAP.apply(batch.scores() + shift, matches, self.lam)
        return loss

    def extra_repr(self) -> str:
        """Interpolation and margin."""
        return f"lam={self.lam}, margin={self.margin}"


class _BlackboxAP(torch.autograd.Function):
    """The mean over queries, with the gradient computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, matches: torch.Tensor, lam: float) -> torch.Tensor:
        positive = matches == 1
        # What is not retrieved ranks last, where it moves nothing.
        scores = scores.masked_fill(matches < 0, -torch.inf)
        ranks = _ranks(scores)
        ranks_within = _ranks(scores.masked_fill(~positive, -torch.inf))
        counts = positive.sum(1, keepdim=True)
        shares = positive.to(scores.dtype) / counts.clamp(min=1)  # [B, R]
        slopes = shares * ranks_within / ranks.square()
        gradient = (_ranks(scores + lam * slopes) - ranks) / lam
        valid = (counts > 0).to(scores.dtype)
        queries = valid.sum().clamp(min=1)
        ctx.save_for_backward(gradient / queries)
        precision = (shares * ranks_within / ranks).sum(1, keepdim=True)
        return ((1 - precision) * valid).sum() / queries

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return outputs[0] * gradient, None, None


def _ranks(scores: torch.Tensor) -> torch.Tensor:
    """Ranks from 1 of each row's scores; equal ones in order of column."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(1, scores.shape[1] + 1, dtype=scores.dtype, device=scores.device)
    return torch.zeros_like(scores).scatter(1, order, places.expand_as(scores))
