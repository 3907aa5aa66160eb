"""Every data set as one checked manifest, and what reads it: images, transforms, samplers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from happier.extras import needs_extra

if TYPE_CHECKING:
    from happier.data.check import check_manifest
    from happier.data.dataset import ImageDataset, Item, collate
    from happier.data.fetching import DATASETS, cache_folder, fetch
    from happier.data.image import decode_image, read_image
    from happier.data.importers import import_manifest
    from happier.data.input_config import InputConfig
    from happier.data.manifest import Manifest
    from happier.data.samplers import (
        AttributeBatchSampler,
        HierarchicalBatchSampler,
        MPerClassBatchSampler,
    )
    from happier.data.split import split_by_class
    from happier.data.transforms import PRESETS, ImageTransform, build_transform

__all__ = [
    "DATASETS",
    "PRESETS",
    "AttributeBatchSampler",
    "HierarchicalBatchSampler",
    "ImageDataset",
    "ImageTransform",
    "InputConfig",
    "Item",
    "MPerClassBatchSampler",
    "Manifest",
    "build_transform",
    "cache_folder",
    "check_manifest",
    "collate",
    "decode_image",
    "fetch",
    "import_manifest",
    "read_image",
    "split_by_class",
]

# Imported on first access: torchvision alone takes seconds, and reading a manifest does not need it.
_MODULES = {
    "check": ("check_manifest",),
    "dataset": ("ImageDataset", "Item", "collate"),
    "fetching": ("DATASETS", "cache_folder", "fetch"),
    "image": ("decode_image", "read_image"),
    "importers": ("import_manifest",),
    "manifest": ("Manifest",),
    "samplers": ("AttributeBatchSampler", "HierarchicalBatchSampler", "MPerClassBatchSampler"),
    "split": ("split_by_class",),
    "input_config": ("InputConfig",),
    "transforms": ("PRESETS", "ImageTransform", "build_transform"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'happier.data' has no attribute {name!r}")
    with needs_extra("data"):
        return getattr(import_module(f"happier.data.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
