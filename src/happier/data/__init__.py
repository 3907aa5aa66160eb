"""Every data set as one checked manifest, and what reads it: images, transforms, samplers."""

from happier.data.dataset import ImageDataset, Item, collate
from happier.data.image import decode_image, read_image
from happier.data.manifest import Manifest
from happier.data.samplers import HierarchicalBatchSampler, MPerClassBatchSampler
from happier.data.transforms import PRESETS, ImageTransform, build_transform

__all__ = [
    "PRESETS",
    "HierarchicalBatchSampler",
    "ImageDataset",
    "ImageTransform",
    "Item",
    "MPerClassBatchSampler",
    "Manifest",
    "build_transform",
    "collate",
    "decode_image",
    "read_image",
]
