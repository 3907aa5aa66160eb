"""The paper's image transforms as presets: upright RGB pixels -> a normalised float tensor.

    preset   train                                                  test
    sop      resize 256, random resized crop 224, flip              resize to 256 x 256, centre crop 224
    inat     random resized crop 224, flip                          shorter side to 256, centre crop 224
    dyml     as inat                                                as inat
    small    random resized crop 64 (gentle), flip                  shorter side to 64, centre crop 64

Random resized crops take 16 to 100 % of the area at ratios 3/4 to 4/3. Pixels become tensors before anything
else, so an image gives the same result whether it comes as a `PIL.Image` or as a decoded tensor.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from happier.errors import OptionError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class _Preset:
    size: int
    resize: int  # shorter side before the test crop, for images of `size`
    square: bool  # test images are squeezed to a square, as the paper's SOP recipe does
    resize_first: bool  # training images are resized to `resize` before the random crop
    scale: tuple[float, float]
    ratio: tuple[float, float]


_PAPER_CROP: dict[str, Any] = {"scale": (0.16, 1.0), "ratio": (0.75, 4 / 3)}
_PRESETS = {
    "sop": _Preset(224, 256, square=True, resize_first=True, **_PAPER_CROP),
    "inat": _Preset(224, 256, square=False, resize_first=False, **_PAPER_CROP),
    "dyml": _Preset(224, 256, square=False, resize_first=False, **_PAPER_CROP),
    # Drawings of 64 px fill their frame: harder crops would cut off what tells them apart.
    "small": _Preset(64, 64, square=False, resize_first=False, scale=(0.64, 1.0), ratio=(0.8, 1.25)),
}
PRESETS = tuple(_PRESETS)


class ImageTransform:
    """Upright RGB image (`PIL.Image` or uint8 tensor ``[3, H, W]``) -> float tensor ``[3, size, size]``.

    Attributes:
        preset: name of the preset.
        train: whether it augments.
        size: side of the result.
        decode_at_least: shorter side below which a decoder should not scale an image down.
    """

    def __init__(self, preset: str, *, train: bool, size: int) -> None:
        rules = _PRESETS[preset]
        self.preset, self.train, self.size = preset, train, size
        resize = round(rules.resize * size / rules.size)
        steps: list[Any] = [v2.ToImage()]
        if train:
            if rules.resize_first:
                steps.append(v2.Resize(resize, antialias=True))
            steps.append(v2.RandomResizedCrop(size, scale=rules.scale, ratio=rules.ratio, antialias=True))
            steps.append(v2.RandomHorizontalFlip())
        else:
            steps.append(v2.Resize((resize, resize) if rules.square else resize, antialias=True))
            steps.append(v2.CenterCrop(size))
        steps.append(v2.ToDtype(torch.float32, scale=True))
        steps.append(v2.Normalize(IMAGENET_MEAN, IMAGENET_STD))
        self._steps = v2.Compose(steps)
        # Twice the side that is resized from, so that scaled decoding leaves the final resize its work; a
        # random crop of the original may be as small as the root of its least area.
        smallest = resize if rules.resize_first or not train else size / rules.scale[0] ** 0.5
        self.decode_at_least = int(2 * smallest)

    def __call__(self, image: Any) -> Tensor:
        """Transform one image."""
        result: Tensor = self._steps(image)
        return result.as_subclass(torch.Tensor)

    def __repr__(self) -> str:
        return f"ImageTransform({self.preset!r}, train={self.train}, size={self.size})"


def build_transform(preset: str, *, train: bool, size: int | None = None) -> ImageTransform:
    """Build the transform of a preset.

    Args:
        preset: ``sop``, ``inat``, ``dyml`` or ``small``.
        train: with random crops and flips, else the deterministic test transform.
        size: side of the result instead of the preset's own; resizes scale along.

    Raises:
        OptionError: an unknown preset, or a size below 8.

    >>> build_transform("small", train=False).size
    64
    """
    if preset not in _PRESETS:
        nearest = difflib.get_close_matches(preset, PRESETS, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise OptionError(f"the transform must be one of {', '.join(PRESETS)}, got {preset!r}{hint}")
    size = _PRESETS[preset].size if size is None else size
    if size < 8:
        raise OptionError(f"size must be at least 8 pixels, got {size}")
    return ImageTransform(preset, train=train, size=size)
