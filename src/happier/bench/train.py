"""The training loop against the bare network: images a second, step by step in one run.

After each step of the loop the same network runs forward and backward once on a batch of the same images, so
that other load on the machine slows both alike. Times are those of the CPU, of the process that trains.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

from happier.data import Manifest
from happier.encoder import Encoder
from happier.progress import Status
from happier.training.batches import TrainingBatches
from happier.training.compose import compose
from happier.training.config import TrainConfig
from happier.training.loop import train

__all__ = ["TrainingSpeed", "measure_training"]

_CLASSES, _PER_CLASS = 64, 4
_SKIPPED = 2
"""Steps at the start that compile and allocate."""


@dataclass(frozen=True)
class TrainingSpeed:
    """One way of feeding the loop.

    Attributes:
        what: where the images come from.
        loop: images a second of the loop.
        bare: images a second of the network alone, forward and backward.
    """

    what: str
    loop: float
    bare: float

    @property
    def ratio(self) -> float:
        """The loop's share of the bare speed; 1 is the best possible."""
        return self.loop / self.bare


def measure_training(
    *,
    batch_size: int = 64,
    steps: int = 12,
    backbone: str = "tf_efficientnet_lite0",
    tell: Status,
) -> list[TrainingSpeed]:
    """Measure the loop with images in memory, and with JPEG files that a worker decodes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for what, suffix, options in (
            ("in memory", ".png", ["data.in_memory=true"]),
            ("JPEG, one worker", ".jpg", ["data.workers=1", "data.in_memory=false", "transform.preset=inat"]),
        ):
            tell(what)
            root = Path(folder) / suffix.removeprefix(".")
            manifest = _draw_images(root, suffix)
            epochs = -(-(steps + _SKIPPED) * batch_size // (_CLASSES * _PER_CLASS))
            config = compose(
                [
                    "recipe=emoji",
                    f"run={root / 'run'}",
                    f"data.manifest={manifest}",
                    f"model.backbone={backbone}",
                    "model.pretrained=null",
                    f"training.batch_size={batch_size}",
                    f"training.epochs={epochs}",
                    "evaluation.every=0",
                    *options,
                ]
            )
            rows.append(_measure(what, config, tell))
    return rows


def _measure(what: str, config: TrainConfig, tell: Status) -> TrainingSpeed:
    """Run the loop, and the bare network after each of its steps."""
    batch_size = config.training.batch_size
    twin = Encoder(config.model.backbone, dim=config.model.dim).train()
    images = _one_batch(config)
    gradient = torch.randn(batch_size, config.model.dim)
    loop: list[float] = []
    bare: list[float] = []
    mark = time.process_time()

    def after_step(done: int, total: int) -> None:
        nonlocal mark
        loop.append(time.process_time() - mark)
        tell(f"{what}: step {done} of {total}")
        started = time.process_time()
        twin(images).backward(gradient)
        bare.append(time.process_time() - started)
        twin.zero_grad()
        mark = time.process_time()

    train(config, progress=after_step)
    # Medians: a step that was interrupted says nothing about either.
    return TrainingSpeed(
        what,
        loop=batch_size / float(np.median(loop[_SKIPPED:])),
        bare=batch_size / float(np.median(bare[_SKIPPED:])),
    )


def _one_batch(config: TrainConfig) -> torch.Tensor:
    rows = Manifest.read(str(config.data.manifest)).select("train")
    batch = list(range(config.training.batch_size))
    return next(TrainingBatches(rows, config).epoch(0, [batch], first_step=0))[0]


def _draw_images(root: Path, suffix: str) -> Path:
    """Noise of many scales, as PNG of 64 px or as JPEG of a small photograph's size."""
    root.mkdir(parents=True)
    rng = np.random.default_rng(0)
    side = (64, 64) if suffix == ".png" else (320, 240)
    table = []
    for number in range(_CLASSES * _PER_CLASS):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        coarse.resize(side).save(root / f"{number}{suffix}")
        item = number // _PER_CLASS
        table.append(
            {"path": f"{number}{suffix}", "split": "train", "kind": str(item % 8), "item": str(item)}
        )
    manifest = Manifest(pd.DataFrame(table), levels=["kind", "item"], root=root)
    return manifest.write(root / "manifest.parquet")
