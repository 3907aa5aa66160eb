"""Speed of reading images on one core, and of loading a manifest.

JPEG photographs of 500 x 375 pixels, decoded and transformed to 224, three ways in one run:

- PIL decodes and transforms, as most training code does;
- PIL decodes, torchvision transforms tensors;
- torchvision decodes and transforms tensors, as `ImageDataset` does.

And photographs of 4000 x 3000 pixels, decoded in full or, as `ImageDataset` does, at a fraction of it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from torchvision.transforms import v2

from happier.bench.photographs import write_photographs
from happier.data.image import decode_image, read_image
from happier.data.input_config import IMAGENET_MEAN, IMAGENET_STD
from happier.data.manifest import Manifest
from happier.data.transforms import build_transform
from happier.progress import Status, no_status

PIL_ONLY: Final = "PIL, PIL transforms"
PIL_TENSOR: Final = "PIL, tensor transforms"
OURS: Final = "ImageDataset"
FULL: Final = "decoded in full"
SCALED: Final = "ImageDataset"

Read = Callable[[Path], Any]


@dataclass(frozen=True)
class LoadingSpeed:
    """One way to read images, on one core.

    Attributes:
        task: what is read into what.
        way: how.
        rate: images per second of CPU time, the best of several rounds.
        ratio: this rate over that of the first way measured for the task.
    """

    task: str
    way: str
    rate: float
    ratio: float


def measure_images(*, images: int = 24, rounds: int = 5, status: Status = no_status) -> list[LoadingSpeed]:
    """Measure all ways of all tasks in turns, so that other load on the machine affects all of them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            small = write_photographs(Path(folder, "small", f"{number}.jpg") for number in range(images))
            large = write_photographs(
                (Path(folder, "large", f"{number}.jpg") for number in range(2)), (4000, 3000)
            )
            found = []
            for train in (True, False):
                task = f"500 px JPEG to 224, {'train' if train else 'test'}"
                found += _compare(task, small, _ways(train), rounds, status)
            transform = build_transform("inat", train=False)
            ways = {
                FULL: lambda path: transform(decode_image(path)),
                SCALED: lambda path: transform(decode_image(path, at_least=transform.decode_at_least)),
            }
            return found + _compare("4000 px JPEG to 224, test", large, ways, rounds, status)
    finally:
        torch.set_num_threads(threads)


def measure_manifest(rows: int = 100_000) -> dict[str, float]:
    """CPU seconds to read and check a manifest of this many rows, by format."""
    fine = np.random.default_rng(0).integers(0, 11_000, rows)
    table = pd.DataFrame(
        {
            "path": [f"images/{number}.jpg" for number in range(rows)],
            "split": np.where(fine % 2, "train", "test"),
            "category": [f"category {number % 12}" for number in fine],
            "product": fine,
        }
    )
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        manifest = Manifest(table, levels=("category", "product"), root=folder)
        for suffix in ("parquet", "csv"):
            path = manifest.write(Path(folder) / f"manifest.{suffix}")
            runs = []
            for _ in range(5):
                start = time.process_time()
                Manifest.read(path)
                runs.append(time.process_time() - start)
            seconds[suffix] = min(runs)
    return seconds


def as_json(found: Sequence[LoadingSpeed], seconds: dict[str, float], rows: int) -> dict[str, Any]:
    """Both measurements for programs."""
    return {"images": [asdict(entry) for entry in found], "manifest": {"rows": rows, "seconds": seconds}}


def _ways(train: bool) -> dict[str, Read]:
    if train:
        steps = [v2.RandomResizedCrop(224, scale=(0.16, 1.0), antialias=True), v2.RandomHorizontalFlip()]
    else:
        steps = [v2.Resize(256, antialias=True), v2.CenterCrop(224)]
    last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    pil = v2.Compose([*steps, *last])
    ours = build_transform("inat", train=train)
    return {
        PIL_ONLY: lambda path: pil(read_image(path)),
        PIL_TENSOR: lambda path: ours(read_image(path)),
        OURS: lambda path: ours(decode_image(path, at_least=ours.decode_at_least)),
    }


def _compare(
    task: str,
    files: Sequence[Path],
    ways: dict[str, Read],
    rounds: int,
    status: Status,
) -> list[LoadingSpeed]:
    best = dict.fromkeys(ways, float("inf"))
    for number in range(rounds + 1):
        for way, read in ways.items():
            status(f"{task}: {way}, round {number} of {rounds}")
            start = time.process_time()
            for file in files:
                read(file)
            if number:  # the first round warms up
                best[way] = min(best[way], time.process_time() - start)
    rates = {way: len(files) / seconds for way, seconds in best.items()}
    first = next(iter(rates.values()))
    return [LoadingSpeed(task, way, rate, rate / first) for way, rate in rates.items()]
