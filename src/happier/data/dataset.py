"""A manifest's images as a torch data set whose randomness depends on (seed, epoch, index) alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from happier.data.image import decode_image
from happier.data.manifest import Manifest
from happier.data.transforms import ImageTransform
from happier.errors import ImageError, OptionError

log = logging.getLogger(__name__)


class Item(NamedTuple):
    """One image: pixels ``[3, H, W]`` (None where it was skipped), labels ``[L]``, and its row."""

    image: Tensor | None
    labels: Tensor
    row: int


class ImageDataset(Dataset[Item]):
    """The images of a manifest's split, transformed.

    Random transforms draw from torch's generator, seeded for each item by (seed, epoch, index): the result
    depends neither on the number of workers nor on what was read before, and resumes exactly.

    Args:
        manifest: the images.
        split: name or names of the splits to keep; None for all rows.
        transform: takes a uint8 tensor ``[3, H, W]``; see `build_transform`.
        seed: of the augmentation.
        on_error: ``raise`` stops at an unreadable image with its path; ``skip`` leaves it out (`collate`
            drops it from its batch), logs it and lists it in `skipped`. It is never replaced by another.

    Attributes:
        manifest: the selected rows; item ``i`` is its row ``i``.
        taxonomy: their tree; an item's labels are the rows of ``taxonomy.codes``.
    """

    def __init__(
        self,
        manifest: Manifest,
        split: str | Sequence[str] | None,
        transform: Callable[[Any], Tensor],
        *,
        seed: int = 0,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise OptionError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        if seed < 0:
            raise OptionError(f"seed must be 0 or more, got {seed}")
        self.manifest = manifest if split is None else manifest.select(split)
        self.taxonomy = self.manifest.taxonomy()
        self.labels = torch.from_numpy(self.taxonomy.codes)
        self.transform = transform
        self.seed = seed
        self.on_error = on_error
        # Paths as one array of text: thousands of Path objects would be copied page by page into each worker.
        self._paths = np.array([str(path) for path in self.manifest.files()])
        self._decode_at_least = transform.decode_at_least if isinstance(transform, ImageTransform) else None
        # In shared memory, so that persistent workers see the next epoch, and report what they skip.
        self._epoch = _shared(torch.zeros(1, dtype=torch.int64))
        self._skipped = _shared(torch.zeros(len(self._paths), dtype=torch.bool))

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def epoch(self) -> int:
        """The epoch whose augmentation is drawn."""
        return int(self._epoch.item())

    def set_epoch(self, epoch: int) -> None:
        """Draw the augmentation of this epoch from now on, in every worker."""
        self._epoch.fill_(epoch)

    @property
    def skipped(self) -> list[int]:
        """Rows of the images that were left out so far because they cannot be read."""
        return [int(row) for row in torch.nonzero(self._skipped)[:, 0]]

    def __getitem__(self, index: int) -> Item:
        index = range(len(self))[index]
        labels = self.labels[index]
        try:
            pixels = decode_image(str(self._paths[index]), at_least=self._decode_at_least)
        except ImageError as error:
            if self.on_error == "raise":
                raise
            if not self._skipped[index]:
                log.warning("left out: %s", error)
            self._skipped[index] = True
            return Item(None, labels, index)
        state = torch.get_rng_state()
        try:
            mixed = np.random.SeedSequence((self.seed, self.epoch, index)).generate_state(1, np.uint64)
            torch.default_generator.manual_seed(int(mixed[0]))
            image = self.transform(pixels)
        finally:
            torch.set_rng_state(state)
        return Item(image, labels, index)


def _shared(tensor: Tensor) -> Tensor:
    shared: Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return shared


def collate(items: Sequence[Item]) -> tuple[Tensor, Tensor, Tensor]:
    """Stack items into images ``[B, 3, H, W]``, labels ``[B, L]`` and rows ``[B]``, without skipped images.

    Raises:
        ImageError: every image of the batch was skipped.
    """
    kept = [(item.image, item.labels, item.row) for item in items if item.image is not None]
    if not kept:
        raise ImageError(f"none of the {len(items)} images of a batch can be read; run `happier data check`")
    images, labels, rows = zip(*kept, strict=True)
    return torch.stack(images), torch.stack(labels), torch.tensor(rows, dtype=torch.int64)
