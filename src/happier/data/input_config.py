"""The images that a backbone expects: size, crop, interpolation, mean and standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

__all__ = ["IMAGENET", "IMAGENET_MEAN", "IMAGENET_STD", "InputConfig"]

IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InputConfig:
    """The images that a backbone expects; the defaults are ImageNet's usual ones.

    Attributes:
        size: side of the images.
        crop: share of the resized image's side that the centre crop keeps.
        interpolation: ``bilinear`` or ``bicubic``.
        mean: of each channel, subtracted from pixels 0..1.
        std: of each channel, divided by.
    """

    size: int = 224
    crop: float = 0.875
    interpolation: str = "bilinear"
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def mean_and_std(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Both as tensors ``[3, 1, 1]``."""
        mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (self.mean, self.std))
        return mean, std


IMAGENET: Final = InputConfig()
