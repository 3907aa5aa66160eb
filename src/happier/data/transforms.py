"""The paper's image transforms as presets: upright RGB pixels -> a normalised float tensor.

    preset   train                                                  test
    sop      resize 256, random resized crop 224, flip              resize to 256 x 256, centre crop 224
    inat     random resized crop 224, flip                          shorter side to 256, centre crop 224
    dyml     as inat                                                as inat
    small    the test transform, then `happier.data.augmentation`   shorter side to 64, centre crop 64
    backbone random resized crop, flip                              size, crop, interpolation of the backbone

Pixels are normalised as the backbone expects, whatever the preset: see `InputConfig`.
Random resized crops take 16 to 100 % of the area at ratios 3/4 to 4/3. Pixels become tensors before anything
else, so an image gives the same result whether it is given as a `PIL.Image` or as a decoded tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import v2

from happier.data.augmentation import DRAWS, Augmentation, augment
from happier.data.input_config import IMAGENET, InputConfig
from happier.errors import OptionError, did_you_mean


@dataclass(frozen=True)
class _Preset:
    size: int
    resize: int  # shorter side before the test crop, for images of `size`
    square: bool = False  # test images are squeezed to a square, as the paper's SOP recipe does
    resize_first: bool = False  # training images are resized to `resize` before the random crop
    augmentation: Augmentation | None = None  # of the test image, instead of a random crop of the whole
    interpolation: str = "bilinear"


_SCALE, _RATIO = (0.16, 1.0), (0.75, 4 / 3)
_PRESETS = {
    "sop": _Preset(224, 256, square=True, resize_first=True),
    "inat": _Preset(224, 256),
    "dyml": _Preset(224, 256),
    # Drawings of 64 px fill their frame: smaller crops would cut off what distinguishes them.
    "small": _Preset(64, 64, augmentation=Augmentation()),
}
PRESETS = (*_PRESETS, "backbone")


class ImageTransform:
    """Upright RGB image (`PIL.Image` or uint8 tensor ``[3, H, W]``) -> float tensor ``[3, size, size]``.

    Attributes:
        preset: name of the preset.
        train: whether it augments.
        size: side of the result.
        decode_at_least: shorter side below which a decoder should not scale an image down.
    """

    def __init__(self, preset: str, *, train: bool, size: int, input_config: InputConfig) -> None:
        rules = _rules(preset, input_config)
        self.preset, self.train, self.size, self.input_config = preset, train, size, input_config
        resize = round(rules.resize * size / rules.size)
        mode = _INTERPOLATIONS[rules.interpolation]
        crops_whole = train and rules.augmentation is None
        steps: list[Any] = [v2.ToImage()]
        if crops_whole:
            if rules.resize_first:
                steps.append(v2.Resize(resize, mode, antialias=True))
            steps.append(v2.RandomResizedCrop(size, _SCALE, _RATIO, mode, antialias=True))
            steps.append(v2.RandomHorizontalFlip())
        else:
            steps.append(v2.Resize((resize, resize) if rules.square else resize, mode, antialias=True))
            steps.append(v2.CenterCrop(size))
        if train and rules.augmentation is not None:
            steps.append(_Augment(rules.augmentation, input_config))
        else:
            steps.append(v2.ToDtype(torch.float32, scale=True))
            steps.append(v2.Normalize(input_config.mean, input_config.std))
        self._steps = v2.Compose(steps)
        # Twice the side that is resized from, so that the final resize still scales down after scaled
        # decoding; a random crop of the original may be as small as the root of its least area.
        smallest = resize if rules.resize_first or not crops_whole else size / _SCALE[0] ** 0.5
        self.decode_at_least = int(2 * smallest)

    def __call__(self, image: Any) -> Tensor:
        """Transform one image."""
        result: Tensor = self._steps(image)
        return result.as_subclass(torch.Tensor)

    def __repr__(self) -> str:
        return f"ImageTransform({self.preset!r}, train={self.train}, size={self.size})"

    @property
    def description(self) -> str:
        """All that the result depends on, as text."""
        parts = [self.preset, str(self.size)]
        if self.preset == "backbone":
            parts += [f"crop {self.input_config.crop:.6g}", self.input_config.interpolation]
        if (self.input_config.mean, self.input_config.std) != (IMAGENET.mean, IMAGENET.std):
            for name, values in (("mean", self.input_config.mean), ("std", self.input_config.std)):
                parts += [name, *(f"{value:.6g}" for value in values)]
        return " ".join(parts)


_INTERPOLATIONS = {
    "bilinear": v2.InterpolationMode.BILINEAR,
    "bicubic": v2.InterpolationMode.BICUBIC,
}


def _rules(preset: str, config: InputConfig) -> _Preset:
    if preset != "backbone":
        return _PRESETS[preset]
    return _Preset(config.size, round(config.size / config.crop), interpolation=config.interpolation)


class _Augment(torch.nn.Module):
    """Augments and normalises one image of bytes ``[3, H, W]``; draws from torch's generator."""

    def __init__(self, options: Augmentation, input_config: InputConfig) -> None:
        super().__init__()
        self.options, self.input_config = options, input_config

    def forward(self, image: Tensor) -> Tensor:
        pixels, draws = image.as_subclass(torch.Tensor)[None], torch.rand(1, DRAWS)
        return augment(pixels, draws, self.options, self.input_config)[0]


def build_transform(
    preset: str, *, train: bool, size: int | None = None, input_config: InputConfig | None = None
) -> ImageTransform:
    """Build the transform of a preset.

    Args:
        preset: ``sop``, ``inat``, ``dyml``, ``small`` or ``backbone``.
        train: with random augmentation, else the deterministic test transform.
        size: side of the result instead of the preset's own; resizes scale with it.
        input_config: what the backbone expects; by default ImageNet's mean and standard deviation.

    Raises:
        OptionError: an unknown preset, or a size below 8.

    >>> build_transform("small", train=False).size
    64
    """
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise OptionError(f"the transform must be one of {', '.join(PRESETS)}, got {preset!r}{hint}")
    input_config = input_config or IMAGENET
    size = _rules(preset, input_config).size if size is None else size
    if size < 8:
        raise OptionError(f"size must be at least 8 pixels, got {size}")
    return ImageTransform(preset, train=train, size=size, input_config=input_config)
