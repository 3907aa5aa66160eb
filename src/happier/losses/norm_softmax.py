"""Classification by cosine with proxies of the finest classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from happier.losses.option_checks import check_positive
from happier.losses.proxies import Proxies
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.taxonomy import UNKNOWN

# Of the table of an item's products with ten thousand proxies, what fits into the processor's cache.
_ROWS: Final = 16


@final
class NormSoftmaxLoss(RetrievalLoss):
    """Cross entropy of the cosines with one proxy per finest class; also the clustering term of HAPPIER.

        L = mean_v -log( exp(cos(v, p_y) / sigma) / sum_z exp(cos(v, p_z) / sigma) )

    where ``p_y`` is the proxy of the finest class of ``v``. Items whose finest class is unknown add nothing.
    Reference sets and mined pairs play no part.

    Relations: `ClusterLoss` is another name of it; `ProxyNCAPPLoss` is the same with temperature 1/18 on
    cosines (1/9 on squared distances); ``SumOverLevels`` puts one on every level.

    Args:
        num_classes: number of finest classes C; labels of the last column are 0..C-1.
        dim: size of the embeddings D.
        sigma: temperature.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Zhai and Wu, Classification is a Strong Baseline for Deep Metric Learning, BMVC 2019; Ramzi et al.,
        ECCV 2022, Eq. 6.

    >>> import torch
    >>> loss = NormSoftmaxLoss(num_classes=3, dim=4)
    >>> [tuple(parameter.shape) for parameter in loss.proxy_parameters()]
    [(3, 4)]
    >>> loss(torch.eye(4)[:2], torch.tensor([[0, 1], [0, 2]])).shape
    torch.Size([])
    """

    def __init__(
        self, num_classes: int, dim: int, *, sigma: float = 0.05, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.sigma = check_positive("sigma", sigma)
        self.proxies = Proxies(num_classes, dim, generator=generator)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return proxy_cross_entropy(batch, self.proxies, 1 / self.sigma)

    def extra_repr(self) -> str:
        """Temperature."""
        return f"sigma={self.sigma}"


# The name the term has inside HAPPIER.
ClusterLoss = NormSoftmaxLoss


@final
class ProxyNCAPPLoss(RetrievalLoss):
    """Log-softmax of the squared distances to all proxies, unit vectors being stretched by ``scale``.

        L = mean_x -log( exp(-||3x - 3p_y||^2) / sum_z exp(-||3x - 3p_z||^2) )

    where ``p_y`` is the unit proxy of the finest class of ``x``. Items whose finest class is unknown add
    nothing. The paper gives the proxies a much higher learning rate than the model: see `proxy_parameters`.
    Reference sets and mined pairs play no part.

    Relations: the same as `NormSoftmaxLoss` with sigma 1/18, since ``||3x - 3p||^2 = 18 - 18 cos(x, p)``.

    Args:
        num_classes: number of finest classes C; labels of the last column are 0..C-1.
        dim: size of the embeddings D.
        scale: the 3 of the formula; the temperature of the distances is ``1 / scale^2``.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Teh et al., ProxyNCA++: Revisiting and Revitalizing Proxy Neighborhood Component Analysis, ECCV 2020.

    >>> import torch
    >>> ProxyNCAPPLoss(num_classes=3, dim=4)(torch.eye(4)[:2], torch.tensor([1, 2])).shape
    torch.Size([])
    """

    def __init__(
        self, num_classes: int, dim: int, *, scale: float = 3.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.scale = check_positive("scale", scale)
        self.proxies = Proxies(num_classes, dim, generator=generator)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        # -||c x - c p||^2 = 2 c^2 cos - 2 c^2, and a softmax does not see a constant.
        return proxy_cross_entropy(batch, self.proxies, 2 * self.scale**2)

    def extra_repr(self) -> str:
        """Stretch."""
        return f"scale={self.scale}"


def proxy_cross_entropy(
    batch: Batch,
    proxies: Proxies,
    sharpness: float,
    own: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Mean cross entropy of ``sharpness * cosine`` over the items whose finest class is known.

    ``own`` changes the cosine of an item with the proxy of its own class, for a margin.
    """
    classes = batch.labels[:, -1]
    known = proxies.known(classes)
    # Scaling B x D embeddings costs less than scaling B x C cosines.
    scaled = sharpness * batch.embeddings
    if own is None and proxies.product is not None and scaled.device.type == "cpu":
        total: torch.Tensor = _NarrowCrossEntropy.apply(*proxies.factors(scaled), classes)
        return total / known.sum().clamp(min=1)
    logits = proxies(scaled)
    if own is not None:
        column = classes.clamp(min=0)[:, None]  # [B, 1]
        logits = logits.scatter(1, column, sharpness * own(logits.gather(1, column) / sharpness))
    return F.cross_entropy(logits, classes, ignore_index=UNKNOWN, reduction="sum") / known.sum().clamp(min=1)


class _NarrowCrossEntropy(torch.autograd.Function):
    """``F.cross_entropy((items @ proxies.T).float(), classes, reduction="sum")`` of narrow numbers, faster.

    The table of products ``[B, C]`` is the largest by far: it is written once, narrow, and becomes its own
    gradient, in float32 a few rows at a time, which stay in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, items: torch.Tensor, proxies: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """The sum over the items ``[B, D]`` whose class ``[B]`` is known, of the proxies ``[C, D]``."""
        table = items @ proxies.T
        total = torch.zeros((), dtype=torch.float32)
        for part, own in zip(torch.split(table, _ROWS), torch.split(classes, _ROWS), strict=True):
            logits, known, column = part.float(), (own != UNKNOWN)[:, None], own.clamp(min=0)[:, None]
            whole = logits.logsumexp(1, keepdim=True)
            total += ((whole - logits.gather(1, column)) * known).sum()
            gradient = logits.sub_(whole).exp_()
            gradient.scatter_add_(1, column, torch.full_like(whole, -1.0))
            part.copy_(gradient * known)
        ctx.save_for_backward(items, proxies, table)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Of items and proxies."""
        items, proxies, table = ctx.saved_tensors
        return outer * (table @ proxies), outer * (table.T @ items), None
