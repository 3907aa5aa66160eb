"""What a source hands over, and the few steps all of them share."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from happier.errors import FetchError

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is (0 for unknown)."""


@dataclass(frozen=True)
class Prepared:
    """Rows of a manifest without splits, their levels, and the credits of the images."""

    table: pd.DataFrame
    levels: tuple[str, ...]
    credits: str


def silent(_stage: str, _done: int, _total: int) -> None:
    """Report nothing."""


def save_small(image: Image.Image, path: Path, size: int) -> None:
    """Write an image as PNG on white, scaled down (never up) to fit ``size`` pixels."""
    if image.mode != "RGB":
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image).convert("RGB")
    if max(image.size) > size:
        scale = size / max(image.size)
        shape = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(shape, Image.Resampling.LANCZOS)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, compress_level=4)


def package_files(archive: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Names and contents of a package's files, read in order, without unpacking anything onto the disk.

    Raises:
        FetchError: the archive is broken.
    """
    try:
        with tarfile.open(archive, "r|gz") as package:
            for member in package:
                if member.isfile():
                    stream = package.extractfile(member)
                    assert stream is not None
                    yield member.name, stream.read
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FetchError(f"cannot read the package {archive}: {error}; delete it and fetch again") from error


def open_image(data: bytes) -> Image.Image:
    """Open an image from a package."""
    return Image.open(io.BytesIO(data))
