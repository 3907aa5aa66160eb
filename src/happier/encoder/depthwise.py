"""Depthwise convolutions whose kernel reaches beyond the whole map, several times as fast on a CPU.

Small images leave a network's last stages with maps of 2 x 2 or 4 x 4 pixels. There oneDNN has no fast kernel
for a depthwise convolution that pads: its reference code takes over, which is slow above all in the backward
pass. The same sums written without padding, and without the taps that only ever meet padding, have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["DepthwiseConv2d", "plain_convolutions", "replace_depthwise"]


class DepthwiseConv2d(nn.Conv2d):
    """Depthwise, stride 1, "same" padding; weights and results are those of `nn.Conv2d`."""

    def forward(self, maps: Tensor) -> Tensor:
        """Maps ``[B, C, H, W]`` -> maps of the same size."""
        side, reach = max(maps.shape[-2:]), int(self.padding[0])
        if maps.device.type != "cpu" or side > 2 * reach:
            return super().forward(maps)
        # A tap further out than the map is wide meets padding at every position.
        used = min(reach, side - 1)
        weight = self.weight[:, :, reach - used : reach + used + 1, reach - used : reach + used + 1]
        return F.conv2d(F.pad(maps, (used,) * 4), weight, self.bias, groups=self.groups)


def replace_depthwise(network: nn.Module) -> None:
    """Exchange the convolutions of a network that `DepthwiseConv2d` can stand for; names and weights stay."""
    for module in network.modules():
        if type(module) is nn.Conv2d and _is_replaceable(module):
            module.__class__ = DepthwiseConv2d  # it adds no state


def _is_replaceable(conv: nn.Conv2d) -> bool:
    size = conv.kernel_size[0]
    return (
        conv.groups == conv.in_channels == conv.out_channels > 1
        and conv.kernel_size == (size, size)
        and size % 2 == 1
        and conv.stride == conv.dilation == (1, 1)
        and conv.padding == (size // 2, size // 2)
        and conv.padding_mode == "zeros"
    )


@contextmanager
def plain_convolutions(network: nn.Module) -> Iterator[None]:
    """Undo `replace_depthwise` while the block runs: exported networks run on kernels of their own."""
    replaced: list[nn.Module] = [module for module in network.modules() if type(module) is DepthwiseConv2d]
    for module in replaced:
        module.__class__ = nn.Conv2d
    try:
        yield
    finally:
        for module in replaced:
            module.__class__ = DepthwiseConv2d
