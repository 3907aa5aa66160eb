"""What a source returns, and the few steps that all of them share."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from happier.data.image import on_white
from happier.errors import FetchError


@dataclass(frozen=True)
class PreparedSource:
    """Rows of a manifest without splits, their levels, and the credits of the images."""

    table: pd.DataFrame
    levels: tuple[str, ...]
    credits: str


def save_small(image: Image.Image, path: Path, size: int) -> None:
    """Write an image as PNG on white, scaled down (never up) to fit ``size`` pixels."""
    if image.mode != "RGB":
        image = on_white(image)
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
