"""Weights on disk -> tensors: pretrained backbones, safe loading, fingerprints.

Nothing here runs code from a file: safetensors, or torch files with ``weights_only``.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from happier.encoder.package_weights import read_package_weights
from happier.errors import CheckpointError, first_line
from happier.storage.atomic import atomic_file

__all__ = ["fingerprint", "load_backbone_weights", "read_tensors", "write_tensors"]

PACKAGE_PREFIX = "package:"
HUB_PREFIX = "hub:"
# What a repository of the hub calls its weights: open_clip's names, then timm's.
_HUB_FILES = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
    "model.safetensors",
    "pytorch_model.bin",
)
# Wrappers that training code leaves in the names of a backbone's tensors.
_PREFIXES = ("module.", "_orig_mod.", "backbone.", "model.", "encoder.")
_CLASSIFIERS = ("fc.", "classifier.", "head.fc.", "head.", "_fc.")


def fingerprint(tensors: Mapping[str, Tensor], mark: str = "") -> str:
    """Sha256 over the names, types, shapes and bytes of the tensors, in order of name, and over a mark."""
    digest = hashlib.sha256(mark.encode())
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
    # A damaged file makes the unpickler raise whatever its bytes happen to mean.
    except Exception as error:
        raise CheckpointError(
            f"{path} is damaged or holds more than weights ({first_line(error)}); "
            "convert it to .safetensors if you trust it"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path} does not hold a state dict (a mapping of names to tensors)")
    return content


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors as safetensors; the file appears whole or not at all.

    Raises:
        CheckpointError: the disk is full.
        DataError: the file cannot be written there.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # safetensors wants row-major memory; channels-last is an order in memory only.
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_file(path) as part:
        try:
            save_file(plain, part)
        except SafetensorError as error:
            raise CheckpointError(
                f"cannot write {path} ({first_line(error)}); free some space, then run it again"
            ) from error


def load_backbone_weights(backbone: nn.Module, name: str, source: str) -> None:
    """Fill a timm backbone (without classifier) from ``package:NAME``, ``hub:OWNER/NAME`` or a file.

    Args:
        backbone: the network.
        name: its name.
        source: a file may have timm's names, or those of a code base that timm can translate.

    Raises:
        OptionError: no such package of weights.
        CheckpointError: the tensors are not those of this backbone.
    """
    own = backbone.state_dict()
    if source.startswith(PACKAGE_PREFIX):
        tensors = read_package_weights(source.removeprefix(PACKAGE_PREFIX), name, own)
    else:
        stored = read_tensors(_hub_file(source) if source.startswith(HUB_PREFIX) else Path(source))
        tensors = _without_classifier(stored, own)
        if _misfit(own, tensors):
            tensors = _without_classifier(_translated(stored, backbone), own)
    if misfit := _misfit(own, tensors):
        raise CheckpointError(
            f"the weights of {source} do not fit the backbone {type(backbone).__name__}: {misfit}; "
            "choose the backbone these weights were made for"
        )
    backbone.load_state_dict(tensors, strict=False)


def _hub_file(source: str) -> Path:
    """The weights of a repository, downloaded once.

    Raises:
        CheckpointError: it has none, or the hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    repository = source.removeprefix(HUB_PREFIX)
    for name in _HUB_FILES:
        try:
            return Path(hf_hub_download(repository, name))
        except LocalEntryNotFoundError as error:  # neither here nor to be downloaded
            raise _unavailable(source, first_line(error)) from error
        except EntryNotFoundError:
            continue
        except (OSError, HFValidationError) as error:
            raise _unavailable(source, first_line(error)) from error
    raise _unavailable(source, f"it has none of {', '.join(_HUB_FILES)}")


def _unavailable(source: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"the weights {source} cannot be downloaded ({why}); get the file and name it with pretrained=FILE"
    )


def _misfit(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """What keeps tensors from filling a network; empty where nothing does."""
    # Older files lack the counters of batch norm, which nothing here reads.
    missing = sorted(n for n in own.keys() - tensors.keys() if not n.endswith("num_batches_tracked"))
    shapes = sorted(n for n in own.keys() & tensors.keys() if own[n].shape != tensors[n].shape)
    unknown = sorted(tensors.keys() - own.keys())
    faults = {"missing": missing, "of another shape": shapes, "unknown": unknown}
    if not any(faults.values()):
        return ""
    return ", ".join(f"{len(names)} {fault} ({', '.join(names[:3])})" for fault, names in faults.items())


def _translated(tensors: Mapping[str, Tensor], backbone: nn.Module) -> Mapping[str, Tensor]:
    """Tensors under timm's names and for this size of images, where timm knows how."""
    translate = getattr(importlib.import_module(type(backbone).__module__), "checkpoint_filter_fn", None)
    if translate is None:
        return tensors
    try:
        translated: Mapping[str, Tensor] = translate(dict(tensors), backbone)
    except (KeyError, ValueError, RuntimeError, AttributeError, TypeError, IndexError):
        return tensors  # of a network that timm does not know
    return translated


def _without_classifier(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    result = {}
    for key, tensor in tensors.items():
        name = key
        while name not in own and (prefix := next((p for p in _PREFIXES if name.startswith(p)), None)):
            name = name.removeprefix(prefix)
        if name in own or not name.startswith(_CLASSIFIERS):
            result[name] = tensor
    return result
