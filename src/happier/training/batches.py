"""Rows of a manifest -> batches: images from memory or decoded by workers, or features that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from happier.data import ImageDataset, Manifest, build_transform, collate
from happier.data.augmentation import Augmentation, augment, draw, normalise, to_bytes
from happier.data.input_config import IMAGENET, InputConfig
from happier.encoder.backbone import backbone_input
from happier.errors import ManifestError

if TYPE_CHECKING:
    from happier.data import ImageTransform
    from happier.encoder.features import Features
    from happier.training.config import TrainConfig

__all__ = ["EvaluationBatches", "FeatureBatches", "TrainingBatches", "input_config"]

_MEMORY_LIMIT = 2**30
"""Bytes up to which small images are held in memory by default."""


class TrainingBatches:
    """Augmented images and what the loss takes of each, one batch after another.

    What a batch holds depends on the seed, the epoch, the step and the rows alone: neither on the number of
    workers nor on what came before, so that a run can stop and resume anywhere.

    Args:
        manifest: the rows to train on.
        config: preset, size, seed, workers.
        rank: this process; it gets its part of each batch.
        world_size: number of processes.
    """

    def __init__(
        self, manifest: Manifest, config: TrainConfig, *, rank: int = 0, world_size: int = 1
    ) -> None:
        self.rows, self._targets = manifest, _targets(manifest, config)
        self._config, self._rank, self._world = config, rank, world_size
        self._by_batch = config.transform.preset == "small"
        test, train = (_transform(config, train=train) for train in (False, True))
        self._input = test.input_config
        transform = _Bytes(test) if self._by_batch else train
        self._dataset = ImageDataset(manifest, None, transform, seed=config.seed)
        self._order = _Order()
        self._pixels: Tensor | None = None
        if _fits_in_memory(manifest, test, config):
            self._pixels = _decode(self._dataset, config.data.workers)
            return
        self._loader: DataLoader[Tensor] = DataLoader(
            self._dataset,  # type: ignore[arg-type]
            batch_sampler=self._order,
            num_workers=config.data.workers,
            persistent_workers=config.data.workers > 0,
            collate_fn=collate,
            pin_memory=torch.cuda.is_available(),
            # A generator of its own, so that starting workers draws nothing from the one that the model uses.
            generator=torch.Generator(),
        )

    def epoch(
        self, epoch: int, batches: Sequence[list[int]], *, first_step: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Images ``[B, 3, H, W]`` and targets of batches of rows; steps count from `first_step`."""
        if self._pixels is not None:
            for step, rows in enumerate(batches, start=first_step):
                yield self._augment(self._pixels[rows], step), self._targets[rows]
            return
        self._dataset.set_epoch(epoch)
        self._order.batches = list(batches)
        for step, (images, _, numbers) in enumerate(self._loader, start=first_step):
            yield (self._augment(images, step) if self._by_batch else images), self._targets[numbers]

    def _augment(self, pixels: Tensor, step: int) -> Tensor:
        # Drawn for the whole batch of all ranks, so that any number of ranks sees the same images.
        draws = draw(self._config.seed, step, len(pixels) * self._world)
        own = draws[self._rank * len(pixels) : (self._rank + 1) * len(pixels)]
        return augment(pixels, own, Augmentation.of(self._config.transform), self._input)


class FeatureBatches:
    """Features of a frozen backbone and what the loss takes of each, one batch after another, from memory.

    With augmented views each row of a batch is one of the views, or the image itself, drawn from the seed and
    the step.

    Args:
        features: of the rows to train on.
        config: seed, loss.
        rank: this process; it gets its part of each batch.
        world_size: number of processes.

    Attributes:
        rows: that are trained on.
        fingerprint: of what made the features.
    """

    def __init__(
        self, features: Features, config: TrainConfig, *, rank: int = 0, world_size: int = 1
    ) -> None:
        self.rows, self.fingerprint = features.manifest, features.fingerprint
        self._targets = _targets(self.rows, config)
        # [view, row, feature]
        self._views = torch.from_numpy(np.stack([features.vectors, *features.views]))
        self._seed, self._rank, self._world = config.seed, rank, world_size

    def epoch(
        self, epoch: int, batches: Sequence[list[int]], *, first_step: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Features ``[B, F]`` and targets of batches of rows; steps count from `first_step`."""
        del epoch
        for step, rows in enumerate(batches, start=first_step):
            yield self._views[self._choose(step, len(rows)), rows], self._targets[rows]

    def _choose(self, step: int, size: int) -> Tensor:
        """The view of each row of this rank's part, drawn for the batch of all ranks."""
        rng = np.random.default_rng((self._seed, step))
        chosen = rng.integers(0, len(self._views), size * self._world)
        return torch.from_numpy(chosen[self._rank * size : (self._rank + 1) * size])


class EvaluationBatches:
    """Preprocessed images in the order of the manifest, without augmentation.

    Args:
        manifest: the rows.
        config: preset, size, workers, batch size.
    """

    def __init__(self, manifest: Manifest, config: TrainConfig) -> None:
        test = _transform(config, train=False)
        self._input = test.input_config
        self._batch_size, self._workers = config.evaluation.batch_size, config.data.workers
        self._dataset = ImageDataset(manifest, None, test)
        self._pixels: Tensor | None = None
        if _fits_in_memory(manifest, test, config):
            self._pixels = _decode(ImageDataset(manifest, None, _Bytes(test)), config.data.workers)

    def __len__(self) -> int:
        return len(self._dataset)

    def rows(self, first: int, last: int) -> Iterator[Tensor]:
        """Images ``[B, 3, H, W]`` of the rows from `first` to before `last`, a batch at a time."""
        rows = range(first, last)
        if self._pixels is not None:
            for start in rows[:: self._batch_size]:
                yield normalise(self._pixels[start : min(start + self._batch_size, last)], self._input)
            return
        for images, _, _ in _loader(self._dataset, rows, self._batch_size, self._workers):
            yield images


def input_config(config: TrainConfig) -> InputConfig:
    """Mean, standard deviation and the like of the images."""
    return backbone_input(config.model.backbone) if config.transform.normalize == "backbone" else IMAGENET


def _transform(config: TrainConfig, *, train: bool) -> ImageTransform:
    options = config.transform
    return build_transform(options.preset, train=train, size=options.size, input_config=input_config(config))


def _targets(rows: Manifest, config: TrainConfig) -> Tensor:
    """What the loss takes of each row: labels int64 ``[N, L]``, or attributes uint8 ``[N, A]``.

    Raises:
        ManifestError: the loss takes attributes, and there are none.
    """
    if not config.by_attributes:
        return torch.from_numpy(rows.taxonomy().codes)
    attributes, names = rows.attributes()
    if not names:
        raise ManifestError(
            f"loss={config.loss['name']} needs attributes, but the column 'attributes' is empty in the rows "
            "to train on"
        )
    return torch.from_numpy(attributes.astype(np.uint8))


class _Order:
    """The batches of the epoch, for a loader whose workers outlive it."""

    batches: list[list[int]]

    def __init__(self) -> None:
        self.batches = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Bytes:
    """The test transform with its normalisation undone: a quarter of the memory, still to be augmented."""

    def __init__(self, transform: ImageTransform) -> None:
        self.transform = transform

    def __call__(self, image: Tensor) -> Tensor:
        return to_bytes(self.transform(image), self.transform.input_config)


def _fits_in_memory(manifest: Manifest, transform: ImageTransform, config: TrainConfig) -> bool:
    if config.data.in_memory is not None:
        return config.data.in_memory
    return config.transform.preset == "small" and len(manifest) * 3 * transform.size**2 <= _MEMORY_LIMIT


def _decode(dataset: ImageDataset, workers: int) -> Tensor:
    """Every image of a data set as bytes ``[N, 3, H, W]``."""
    # Starting workers takes longer than decoding a few thousand small images.
    loader = _loader(dataset, range(len(dataset)), 256, workers if len(dataset) > 20_000 else 0)
    return torch.cat([images for images, _, _ in loader])


def _loader(dataset: ImageDataset, rows: range, batch_size: int, workers: int) -> DataLoader[Tensor]:
    batches = [list(rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)]
    return DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=collate,
        generator=torch.Generator(),
    )
