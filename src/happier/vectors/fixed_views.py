"""Augmented views of an image that are always the same: their random numbers come from the pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import xxhash
from torch import Tensor

if TYPE_CHECKING:
    from happier.data import ImageTransform

__all__ = ["ViewTransform"]


class ViewTransform:
    """A training transform whose crop, mirror and the like depend on the image and the view's number alone.

    Args:
        transform: what draws from torch's generator.
        number: of the view.
    """

    def __init__(self, transform: ImageTransform, number: int) -> None:
        self.transform, self.number = transform, number
        self.decode_at_least = transform.decode_at_least
        self.size = transform.size

    def __call__(self, image: Tensor) -> Tensor:
        """Transform one image, uint8 ``[3, H, W]``."""
        seed = xxhash.xxh3_64_intdigest(image.contiguous().numpy().tobytes(), seed=self.number)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed >> 1)
            return self.transform(image)
