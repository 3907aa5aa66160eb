"""Random crops, turns, mirrors and colours for a whole batch of small images at once.

One call of a few milliseconds for 128 images of 64 px, where a transform for each image would take a good
part of the time that the network takes. What is drawn depends on (seed, step) and the place in
the batch alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from happier.data.transforms import IMAGENET_MEAN, IMAGENET_STD

if TYPE_CHECKING:
    from happier.training.config import TransformConfig

__all__ = ["augment", "draw", "normalise", "to_bytes"]

_MEAN = torch.tensor(IMAGENET_MEAN)[:, None, None]
_STD = torch.tensor(IMAGENET_STD)[:, None, None]
_DRAWS = 11


def to_bytes(image: Tensor) -> Tensor:
    """The pixels 0..255 behind a normalised image ``[3, H, W]``; undoes `normalise` exactly."""
    return ((image * _STD + _MEAN) * 255).round().clamp(0, 255).to(torch.uint8)


def normalise(pixels: Tensor) -> Tensor:
    """Bytes ``[B, 3, H, W]`` -> what the test transform gives."""
    mean, std = _MEAN.to(pixels.device), _STD.to(pixels.device)
    return pixels.float().div_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)


def draw(seed: int, step: int, items: int) -> Tensor:
    """Uniform numbers ``[items, draws]`` of one step: the same whoever asks, and whenever."""
    bits = np.random.Philox(np.random.SeedSequence((seed, step)))
    return torch.from_numpy(np.random.Generator(bits).random((items, _DRAWS), dtype=np.float32))


def augment(pixels: Tensor, draws: Tensor, transform: TransformConfig) -> Tensor:
    """Bytes ``[B, 3, H, W]`` and uniform numbers ``[B, draws]`` -> normalised, augmented images.

    A crop keeps ``crop_scale`` to 1 of the area, stretched by up to ``crop_ratio``; gaps are filled from the
    border. Colours: each channel c becomes ``gain_c (x - 0.5) + 0.5 + shift``.
    """
    draws = draws.to(pixels.device)
    area = transform.crop_scale + (1 - transform.crop_scale) * draws[:, 0]
    stretch = torch.exp((2 * draws[:, 1] - 1) * math.log(transform.crop_ratio) / 2)
    width = (area.sqrt() * stretch).clamp(max=1)
    height = (area.sqrt() / stretch).clamp(max=1)
    angle = (2 * draws[:, 4] - 1) * math.radians(transform.rotate)
    mirror = torch.where(draws[:, 5] < 0.5, -1.0, 1.0) if transform.flip else torch.ones_like(width)
    cos, sin = angle.cos(), angle.sin()
    # Output coordinates -> input coordinates, both -1..1.
    theta = torch.stack(
        [
            torch.stack([width * mirror * cos, -height * sin, (2 * draws[:, 2] - 1) * (1 - width)], dim=-1),
            torch.stack([width * mirror * sin, height * cos, (2 * draws[:, 3] - 1) * (1 - height)], dim=-1),
        ],
        dim=1,
    )
    images = pixels.float().contiguous(memory_format=torch.channels_last)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    images = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    # Brightness, contrast, gain of each channel and normalisation are one multiplication and addition.
    signed = (2 * draws[:, 6:11] - 1) * transform.colour
    gain = (1 + signed[:, :1]) * (1 + signed[:, 2:5] / 2)
    shift = 0.5 - 0.5 * gain + signed[:, 1:2] / 2
    mean, std = _MEAN.to(pixels.device), _STD.to(pixels.device)
    scale = gain[:, :, None, None] / 255 / std
    offset = (shift[:, :, None, None] - mean) / std
    return torch.addcmul(offset, images, scale).contiguous(memory_format=torch.channels_last)
