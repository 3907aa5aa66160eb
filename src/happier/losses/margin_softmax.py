"""Classification by cosine with a margin: ArcFace and CosFace."""

from __future__ import annotations

import math
from typing import final

import torch

from happier.errors import OptionError
from happier.losses.norm_softmax import proxy_cross_entropy
from happier.losses.option_checks import check_positive
from happier.losses.proxies import Proxies
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class ArcFaceLoss(RetrievalLoss):
    """Cross entropy of the cosines with one proxy per finest class, its own at a wider angle.

        L = mean_v -log( exp(scale c_y) / (exp(scale c_y) + sum_{z != y} exp(scale cos(v, p_z))) )
        c_y = cos(theta + margin)                  theta <= pi - margin
              cos(theta) - margin sin(margin)      else

    where ``theta`` is the angle between ``v`` and the proxy of its finest class. Items whose finest class is
    unknown add nothing. Reference sets and mined pairs play no part.

    Relations: `NormSoftmaxLoss` with sigma = 1 / scale as the margin tends to 0; `CosFaceLoss` has its margin
    on the cosine.

    Args:
        num_classes: number of finest classes C; labels of the last column are 0..C-1.
        dim: size of the embeddings D.
        margin: in radians.
        scale: of the cosines.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019.

    >>> import torch
    >>> ArcFaceLoss(num_classes=3, dim=4)(torch.eye(4)[:2], torch.tensor([1, 2])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        margin: float = 0.5,
        scale: float = 64.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.margin = check_positive("margin", margin)
        if self.margin >= math.pi:
            raise OptionError(f"margin is an angle below pi, in radians, got {margin}")
        self.scale = check_positive("scale", scale)
        self.proxies = Proxies(num_classes, dim, generator=generator)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return proxy_cross_entropy(batch, self.proxies, self.scale, self._widened)

    def _widened(self, cosine: torch.Tensor) -> torch.Tensor:
        # Of the angle itself the gradient would be infinite at a cosine of 1.
        sine = (1 - cosine.square()).clamp(min=1e-12).sqrt()
        widened = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        beyond = cosine < math.cos(math.pi - self.margin)
        return torch.where(beyond, cosine - self.margin * math.sin(self.margin), widened)

    def extra_repr(self) -> str:
        """Margin and scale."""
        return f"margin={self.margin}, scale={self.scale}"


@final
class CosFaceLoss(RetrievalLoss):
    """Cross entropy of the cosines with one proxy per finest class, its own less a margin.

        L = mean_v -log( exp(scale c_y) / (exp(scale c_y) + sum_{z != y} exp(scale cos(v, p_z))) )
        c_y = cos(v, p_y) - margin

    where ``p_y`` is the proxy of the finest class of ``v``. Items whose finest class is unknown add nothing.
    Reference sets and mined pairs play no part.

    Relations: `NormSoftmaxLoss` with sigma = 1 / scale as the margin tends to 0; `ArcFaceLoss` has its margin
    on the angle.

    Args:
        num_classes: number of finest classes C; labels of the last column are 0..C-1.
        dim: size of the embeddings D.
        margin: on the cosine.
        scale: of the cosines.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Wang et al., CosFace: Large Margin Cosine Loss for Deep Face Recognition, CVPR 2018.

    >>> import torch
    >>> CosFaceLoss(num_classes=3, dim=4)(torch.eye(4)[:2], torch.tensor([1, 2])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        margin: float = 0.35,
        scale: float = 64.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.margin = check_positive("margin", margin)
        self.scale = check_positive("scale", scale)
        self.proxies = Proxies(num_classes, dim, generator=generator)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return proxy_cross_entropy(batch, self.proxies, self.scale, lambda cosine: cosine - self.margin)

    def extra_repr(self) -> str:
        """Margin and scale."""
        return f"margin={self.margin}, scale={self.scale}"
