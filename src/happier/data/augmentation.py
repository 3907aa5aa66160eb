"""The augmentation of the preset ``small``: random crops, turns, mirrors and colours of a batch at once.

One call takes a few milliseconds for 128 images of 64 px; a transform for each image would take a good part
of the time that the network takes. `happier train` calls it for a batch, `build_transform` for one image.
What training draws depends only on (seed, step) and the position in the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from happier.data.input_config import IMAGENET, InputConfig

__all__ = [
    "Augmentation",
    "augment",
    "draw",
    "normalise",
    "to_bytes",
]

DRAWS = 11
"""Uniform numbers that one image takes."""


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of the preset ``small``, as `happier train` applies it by default.

    Attributes:
        crop_scale: smallest share of the area that a random crop keeps.
        crop_ratio: largest stretch of a random crop.
        rotate: largest turn in degrees.
        flip: mirror half of the images.
        colour: largest relative change of brightness, contrast and of each channel.
    """

    crop_scale: float = 0.6
    crop_ratio: float = 1.2
    rotate: float = 0.0
    flip: bool = False
    colour: float = 0.2

    @classmethod
    def of(cls, options: object) -> Augmentation:
        """The options of these names among those of another object, such as a training configuration."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})


def to_bytes(image: Tensor, input_config: InputConfig = IMAGENET) -> Tensor:
    """The pixels 0..255 behind a normalised image ``[3, H, W]``; undoes `normalise` exactly."""
    mean, std = input_config.mean_and_std(image.device)
    return ((image * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def normalise(pixels: Tensor, input_config: InputConfig = IMAGENET) -> Tensor:
    """Bytes ``[B, 3, H, W]`` -> what the test transform gives."""
    mean, std = input_config.mean_and_std(pixels.device)
    return pixels.float().div_(255).sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)


def draw(seed: int, step: int, items: int) -> Tensor:
    """Uniform numbers ``[items, draws]``, a function of seed and step alone."""
    bits = np.random.Philox(np.random.SeedSequence((seed, step)))
    return torch.from_numpy(np.random.Generator(bits).random((items, DRAWS), dtype=np.float32))


def augment(
    pixels: Tensor, draws: Tensor, transform: Augmentation, input_config: InputConfig = IMAGENET
) -> Tensor:
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
    mean, std = input_config.mean_and_std(pixels.device)
    scale = gain[:, :, None, None] / 255 / std
    offset = (shift[:, :, None, None] - mean) / std
    return torch.addcmul(offset, images, scale).contiguous(memory_format=torch.channels_last)
