"""Proxy-Anchor: every proxy is an anchor for the items of the batch."""

from __future__ import annotations

from typing import final

import torch

from happier.losses.option_checks import check_positive
from happier.losses.proxies import Proxies
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class ProxyAnchorLoss(RetrievalLoss):
    """Each proxy of a finest class attracts its items of the batch and repels the others, hard ones more.

        L = 1/|P+| sum_{p in P+} log(1 + sum_{x of p} exp(-scale (cos(x, p) - margin)))
          + 1/|P|  sum_{p in P}  log(1 + sum_{x not of p} exp(scale (cos(x, p) + margin)))

    where ``P`` are the proxies of all finest classes and ``P+`` those with an item in the batch. Items whose
    finest class is unknown add nothing. Reference sets and mined pairs play no part.

    Relations: `NormSoftmaxLoss` and `ProxyNCAPPLoss` compare an item with all proxies, this one a proxy with
    all items.

    Args:
        num_classes: number of finest classes C; labels of the last column are 0..C-1.
        dim: size of the embeddings D.
        margin: on the cosine.
        scale: of the cosines, the paper's alpha.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020.

    >>> import torch
    >>> ProxyAnchorLoss(num_classes=3, dim=4)(torch.eye(4)[:2], torch.tensor([1, 2])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        margin: float = 0.1,
        scale: float = 32.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.margin = check_positive("margin", margin)
        self.scale = check_positive("scale", scale)
        self.proxies = Proxies(num_classes, dim, generator=generator)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        classes = batch.labels[:, -1]
        known = self.proxies.known(classes)[:, None]
        cosines = self.proxies(batch.embeddings)  # [B, C]
        own = (classes[:, None] == torch.arange(cosines.shape[1], device=classes.device)) & known
        pulled = log_one_plus_sum_exp(-self.scale * (cosines - self.margin), own, dim=0)
        pushed = log_one_plus_sum_exp(self.scale * (cosines + self.margin), ~own & known, dim=0)
        return pulled.sum() / own.any(0).sum().clamp(min=1) + pushed.mean()

    def extra_repr(self) -> str:
        """Margin and scale."""
        return f"margin={self.margin}, scale={self.scale}"


def log_one_plus_sum_exp(logits: torch.Tensor, keep: torch.Tensor, *, dim: int) -> torch.Tensor:
    """``log(1 + sum exp)`` over the kept logits along a dimension."""
    total = logits.masked_fill(~keep, -1e9).logsumexp(dim)
    return torch.logaddexp(total, torch.zeros_like(total))
