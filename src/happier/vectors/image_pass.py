"""Image files -> vectors in batches: workers decode while the model computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from happier.arrays import Float32Array
from happier.errors import ImageError, OptionError
from happier.vectors.image_content import ImageContent, image_content, size_and_times

if TYPE_CHECKING:
    from happier.data import ImageTransform
    from happier.vectors.fixed_views import ViewTransform

__all__ = ["PassOptions", "VectorBatch", "run_pass"]


@dataclass(frozen=True)
class PassOptions:
    """How images go through a model.

    Attributes:
        batch_size: images at a time.
        workers: processes that decode images.
        to_the_end: go on after an image that cannot be read, to keep the vectors of the others and to name
            all that cannot.
    """

    batch_size: int = 64
    workers: int = 0
    to_the_end: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.workers < 0:
            raise OptionError(
                f"batch_size must be 1 or more, workers 0 or more, got {self.batch_size} and {self.workers}"
            )


@dataclass(frozen=True)
class VectorBatch:
    """The vectors ``[B, D]`` of some images and what the files held.

    Images between them that cannot be read are `unreadable`: their places among all, and why.
    """

    vectors: Float32Array
    contents: list[ImageContent]
    unreadable: dict[int, str] = field(default_factory=dict)


_Read = tuple[Tensor, ImageContent] | ImageError
_Images = tuple[list[Tensor], list[ImageContent], dict[int, str]]


class _ImageFiles(Dataset[_Read]):
    """Decoded, preprocessed files with their content's hash; an error is returned, to be raised in one line.

    (A worker's exception would arrive with the worker's traceback as its message.)
    """

    def __init__(self, paths: Sequence[str], transform: ImageTransform | ViewTransform) -> None:
        self.paths, self.transform = np.array(paths, dtype=object), transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> _Read:
        from happier.data import decode_image

        path = self.paths[index]
        try:
            for _ in range(3):
                before = size_and_times(path)
                pixels = self.transform(decode_image(path, at_least=self.transform.decode_at_least))
                content = image_content(path)
                if content.size_and_times == before:
                    return pixels, content
            return ImageError(f"cannot read the image {path}: it is being changed")
        except ImageError as error:
            return ImageError(str(error))


def _collate(items: list[_Read]) -> _Images:
    read = [item for item in items if not isinstance(item, ImageError)]
    unreadable = {place: str(item) for place, item in enumerate(items) if isinstance(item, ImageError)}
    # One tensor: each that a worker sends takes a file of shared memory.
    images = [torch.stack([image for image, _ in read])] if read else []
    return images, [content for _, content in read], unreadable


def run_pass(
    paths: Sequence[str],
    transform: ImageTransform | ViewTransform,
    compute: Callable[[Tensor], Float32Array],
    options: PassOptions,
) -> Iterator[VectorBatch]:
    """Read files, preprocess them and compute their vectors, in order.

    Raises:
        ImageError: a file cannot be read, and it should not go on `to_the_end`; the message names it.
    """
    loader: DataLoader[_Read] = DataLoader(
        _ImageFiles(paths, transform),
        batch_size=options.batch_size,
        num_workers=options.workers,
        collate_fn=_collate,
    )
    read: _Images
    for read in loader:
        images, contents, unreadable = read
        if unreadable and not options.to_the_end:
            raise ImageError(next(iter(unreadable.values())))
        vectors = compute(images[0]) if images else np.empty((0, 0), dtype=np.float32)
        yield VectorBatch(vectors, contents, unreadable)
