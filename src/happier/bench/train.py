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
from happier.encoder.head import HEADS
from happier.progress import Status
from happier.training.batches import TrainingBatches
from happier.training.compose import compose
from happier.training.config import TrainConfig
from happier.training.loop import train

__all__ = ["HeadSpeed", "TrainingSpeed", "measure_heads", "measure_training"]

_CLASSES, _PER_CLASS = 64, 4
_SKIPPED = 2
"""Steps at the start that compile and allocate."""
_FEATURES, _COARSE = 2048, 12
_IMAGES_PER_CLASS = 5
"""As in the training set of SOP: 59,551 images of 11,318 products in 12 categories."""


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
    status: Status,
) -> list[TrainingSpeed]:
    """Measure the loop with images in memory, and with JPEG files that a worker decodes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for what, suffix, options in (
            ("in memory", ".png", ["data.in_memory=true"]),
            ("JPEG, one worker", ".jpg", ["data.workers=1", "data.in_memory=false", "transform.preset=inat"]),
        ):
            status(what)
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
            rows.append(_measure(what, config, status))
    return rows


@dataclass(frozen=True)
class HeadSpeed:
    """A head that is trained on kept features with HAPPIER.

    Attributes:
        head: ``linear`` or ``mlp``.
        precision: ``fp32`` or ``bf16``.
        features: number of images.
        batch_size: of a step.
        steps: of an epoch.
        step_seconds: CPU seconds of a step, the median.
    """

    head: str
    precision: str
    features: int
    batch_size: int
    steps: int
    step_seconds: float

    @property
    def epoch_seconds(self) -> float:
        """CPU seconds of an epoch."""
        return self.steps * self.step_seconds


def measure_heads(*, features: int = 60_000, batch_size: int = 1024, status: Status) -> list[HeadSpeed]:
    """Measure an epoch of each kind of head over random features of a ResNet-50's length.

    Args:
        features: how many; five images of each class.
        batch_size: of a step.
        status: called with what is measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rng = np.random.default_rng(0)
        np.save(root / "features.npy", rng.standard_normal((features, _FEATURES), dtype=np.float32))
        item = np.arange(features) // _IMAGES_PER_CLASS
        table = pd.DataFrame({"path": [f"{row}.png" for row in range(features)], "split": "train"})
        table = table.assign(category=(item % _COARSE).astype(str), product=item.astype(str))
        Manifest(table, levels=["category", "product"], root=root).write(root / "manifest.parquet")
        kinds = [(head, precision) for head in HEADS for precision in ("fp32", "bf16")]
        return [_measure_head(*kind, root, batch_size, status) for kind in kinds]


def _measure_head(head: str, precision: str, root: Path, batch_size: int, status: Status) -> HeadSpeed:
    config = compose(
        [
            "recipe=folder_head",
            f"run={root / f'{head}-{precision}'}",
            f"data.manifest={root / 'manifest.parquet'}",
            f"data.features={root / 'features.npy'}",
            "model.dim=512",
            f"model.head={head}",
            f"training.precision={precision}",
            f"training.batch_size={batch_size}",
            "training.epochs=1",
            "training.tensorboard=false",
            "evaluation.every=0",
        ]
    )
    times: list[float] = []
    mark = time.process_time()
    steps = 0

    def after_step(done: int, total: int) -> None:
        nonlocal mark, steps
        times.append(time.process_time() - mark)
        status(f"{head}, {precision}: step {done} of {total}")
        mark, steps = time.process_time(), total

    train(config, progress=after_step)
    features = len(Manifest.read(root / "manifest.parquet"))
    return HeadSpeed(head, precision, features, batch_size, steps, float(np.median(times[_SKIPPED:])))


def _measure(what: str, config: TrainConfig, status: Status) -> TrainingSpeed:
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
        status(f"{what}: step {done} of {total}")
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
