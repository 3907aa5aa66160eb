"""Every data set as one checked manifest, and what reads it: images, transforms, samplers."""

from happier.data.dataset import ImageDataset, Item, collate
from happier.data.fetching import DATASETS, cache_folder, fetch
from happier.data.image import decode_image, read_image
from happier.data.manifest import Manifest
from happier.data.samplers import HierarchicalBatchSampler, MPerClassBatchSampler
from happier.data.split import split_by_class
from happier.data.transforms import PRESETS, ImageTransform, build_transform

__all__ = [
    "DATASETS",
    "PRESETS",
    "HierarchicalBatchSampler",
    "ImageDataset",
    "ImageTransform",
    "Item",
    "MPerClassBatchSampler",
    "Manifest",
    "build_transform",
    "cache_folder",
    "collate",
    "decode_image",
    "fetch",
    "read_image",
    "split_by_class",
]
