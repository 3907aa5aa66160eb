"""Fashion-MNIST: part > kind > class, a hierarchy of our own, from Debian's package.

    clothes       top (T-shirt or top, shirt), warm (pullover, coat), long (trouser, dress)
    accessories   shoe (sandal, sneaker), sturdy (bag, ankle boot)

Every kind has two classes, so that an open-set split has one of them on each side.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image

from happier.data.sources.package_clients import fetch_debian, unpack_debian
from happier.data.sources.prepared import PreparedSource, save_small
from happier.errors import FetchError
from happier.progress import StageProgress
from happier.storage.atomic import scratch_folder

PACKAGE = "dataset-fashion-mnist"
CLASSES = (
    ("clothes", "top", "T-shirt or top"),
    ("clothes", "long", "trouser"),
    ("clothes", "warm", "pullover"),
    ("clothes", "long", "dress"),
    ("clothes", "warm", "coat"),
    ("accessories", "shoe", "sandal"),
    ("clothes", "top", "shirt"),
    ("accessories", "shoe", "sneaker"),
    ("accessories", "sturdy", "bag"),
    ("accessories", "sturdy", "ankle boot"),
)
CREDITS = """\
Fashion-MNIST, (c) 2017 Zalando SE, MIT licence (Debian package dataset-fashion-mnist); Xiao, Rasul, Vollgraf:
"Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms", 2017.
The hierarchy above its ten classes is happier's. The pictures were turned to dark on white.
"""


def prepare(folder: Path, downloads: Path, size: int, progress: StageProgress) -> PreparedSource:
    """Fetch the package and write its 70,000 images.

    Raises:
        FetchError: the package cannot be fetched, or lacks a file.
    """
    progress(f"download {PACKAGE}", 0, 1)
    archive = fetch_debian((PACKAGE,), downloads)
    with scratch_folder(downloads / "fashion_mnist.unpacked") as unpacked:
        unpack_debian(archive, unpacked)
        source = unpacked / "usr/share/datasets/fashion-mnist"
        parts = ("train", "t10k")
        images = np.concatenate([_read_idx(source / f"{part}-images-idx3-ubyte.gz") for part in parts])
        labels = np.concatenate([_read_idx(source / f"{part}-labels-idx1-ubyte.gz") for part in parts])
    rows = []
    for row, (pixels, number) in enumerate(zip(images, labels.tolist(), strict=True)):
        names = CLASSES[number]
        path = f"images/{names[-1].replace(' ', '-').lower()}/{row:05d}.png"
        save_small(Image.fromarray(255 - pixels).convert("RGB"), folder / path, size)
        rows.append((path, *names))
        if row % 100 == 0:
            progress("prepare", row, len(images))
    levels = ("part", "kind", "class")
    return PreparedSource(pd.DataFrame(rows, columns=["path", *levels]), levels, CREDITS)


def _read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """An array of bytes in the IDX format: a magic number, the sizes, the values."""
    try:
        data = gzip.decompress(path.read_bytes())
        axes = data[3]
        shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
        return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, struct.error) as error:
        raise FetchError(f"cannot read {path.name} of the package: {error}") from error
