"""From the places of an image to one vector: the backbone's own pooling, or another."""

from __future__ import annotations

from typing import Any, Final, final

import torch
from torch import Tensor, nn

from happier.encoder.backbone import VectorInput
from happier.errors import OptionError

__all__ = ["POOLINGS", "GeM", "set_pooling"]

POOLINGS: Final = ("backbone", "average", "gem", "cls")
# Unpooled for GeM, which follows the network.
_TIMM: Final = {"average": "avg", "gem": "", "cls": "token"}


@final
class GeM(nn.Module):
    """Generalised mean over the places of an image, with a power that is learnt.

        f_c = ( 1/|X| sum_{x in X} max(x_c, eps)^p )^(1/p)

    where ``X`` are the places of the feature map, or the patches of a transformer, and ``c`` a channel. With
    p = 1 it is the average of what is above zero, and it tends to the maximum as p grows.

    Args:
        p: the power to start from.
        channels_last: maps are ``[B, H, W, C]``.
        prefix_tokens: tokens of a transformer before its patches, which are no places.

    Reference:
        Radenović et al., Fine-Tuning CNN Image Retrieval with No Human Annotation, TPAMI 2019.

    >>> maps = torch.tensor([1.0, 2.0]).reshape(1, 1, 1, 2)
    >>> round(GeM(p=2.0)(maps).item(), 4)  # sqrt((1 + 4) / 2)
    1.5811
    """

    eps: Final = 1e-6

    def __init__(self, p: float = 3.0, *, channels_last: bool = False, prefix_tokens: int = 0) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(float(p)))
        self.channels_last, self.prefix_tokens = channels_last, prefix_tokens

    def forward(self, maps: Tensor) -> Tensor:
        """Features ``[B, C]`` of maps ``[B, C, H, W]``, ``[B, H, W, C]`` or tokens ``[B, N, C]``."""
        if maps.ndim == 3:
            places = maps[:, self.prefix_tokens :]
        elif self.channels_last:
            places = maps.flatten(1, 2)
        else:
            places = maps.flatten(2).transpose(1, 2)
        # Powers of half precision would overflow.
        return places.float().clamp(min=self.eps).pow(self.p).mean(1).pow(1 / self.p)  # [B, C]


def set_pooling(network: Any, name: str, kind: str) -> nn.Module:
    """Give a backbone another pooling; returns the part of it that follows the network.

    Args:
        network: see `happier.encoder.backbone.build_backbone`.
        name: its name, for messages.
        kind: one of `POOLINGS`; ``backbone`` leaves it as timm made it.

    Raises:
        OptionError: no such pooling, or none that this network can have.
    """
    if kind not in POOLINGS:
        raise OptionError(f"pooling must be one of {', '.join(POOLINGS)}, got {kind!r}")
    if kind == "backbone":
        return nn.Identity()
    prefix_tokens = getattr(network, "num_prefix_tokens", 0)
    if kind == "cls" and getattr(network, "cls_token", None) is None:
        raise OptionError(f"{name} has no class token: pooling must be backbone, average or gem")
    if isinstance(network, VectorInput):
        raise OptionError(f"vectors have no places to pool: pooling must be backbone, got {kind!r}")
    try:
        network.reset_classifier(0, global_pool=_TIMM[kind])
    except (AssertionError, TypeError, ValueError, NotImplementedError) as error:
        raise OptionError(f"timm cannot change the pooling of {name}: pooling must be backbone") from error
    if kind != "gem":
        return nn.Identity()
    return GeM(channels_last=getattr(network, "output_fmt", "") == "NHWC", prefix_tokens=prefix_tokens)
