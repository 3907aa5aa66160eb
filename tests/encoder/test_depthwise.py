"""Depthwise convolutions on small maps: the same numbers and gradients as the plain convolution."""

import copy

import pytest
import torch
from torch import nn

from happier.encoder.depthwise import DepthwiseConv2d, plain_convolutions, replace_depthwise


@pytest.mark.parametrize("side", [(1, 1), (2, 2), (3, 3), (4, 4), (2, 4), (5, 5), (8, 8)], ids=str)
@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
def test_equals_the_plain_convolution(side, kernel, bias):
    torch.manual_seed(0)
    plain = nn.Conv2d(6, 6, kernel, padding=kernel // 2, groups=6, bias=bias).double()
    swapped = copy.deepcopy(plain)
    replace_depthwise(nn.Sequential(swapped))
    assert type(swapped) is DepthwiseConv2d
    maps = torch.randn(2, 6, *side, dtype=torch.float64)
    inputs = [maps.clone().requires_grad_(), maps.clone().requires_grad_()]
    outputs = [conv(x) for conv, x in zip((plain, swapped), inputs, strict=True)]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=0, atol=1e-12)
    for output in outputs:
        output.square().sum().backward()
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad, rtol=0, atol=1e-12)
    for ours, theirs in zip(swapped.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(6, 6, 3, padding=1),
        nn.Conv2d(6, 12, 3, padding=1, groups=6),
        nn.Conv2d(6, 6, 3, padding=1, groups=6, stride=2),
        nn.Conv2d(6, 6, 3, padding=2, groups=6, dilation=2),
        nn.Conv2d(6, 6, 3, padding=0, groups=6),
        nn.Conv2d(6, 6, (3, 5), padding=(1, 2), groups=6),
        nn.Conv2d(6, 6, 3, padding="same", groups=6),
        nn.Conv2d(6, 6, 3, padding=1, groups=6, padding_mode="reflect"),
    ],
    ids=str,
)
def test_others_are_left_alone(conv):
    replace_depthwise(nn.Sequential(conv))
    assert type(conv) is nn.Conv2d


def test_exporters_see_plain_convolutions():
    network = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=6))
    replace_depthwise(network)
    with plain_convolutions(network):
        assert type(network[0]) is nn.Conv2d
    assert type(network[0]) is DepthwiseConv2d


def test_names_of_the_weights_stay():
    network = nn.Sequential(nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 5, padding=2, groups=6))
    before = list(network.state_dict())
    replace_depthwise(network)
    assert list(network.state_dict()) == before
