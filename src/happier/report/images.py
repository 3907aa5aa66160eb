"""The pictures of a report: small copies of the images it shows, each once."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from happier.data import read_image

SIDE = 160
"""Pixels of the longer side of a picture: sharp at twice the size it is shown at."""
CELL = 48
"""Pixels of a picture in the sheet of all classes."""


class Pictures:
    """A folder of small copies.

    Args:
        root: folder of the page.
        folder: name of the folder inside it.
    """

    def __init__(self, root: Path, folder: str = "images") -> None:
        self.root, self.folder = root, folder
        (root / folder).mkdir(parents=True, exist_ok=True)

    def add(self, file: Path) -> str:
        """Copy an image and return the copy's address relative to the page."""
        digest = hashlib.sha256(str(file).encode()).hexdigest()[:16]
        name = f"{self.folder}/{digest}.png"
        if not (self.root / name).exists():
            image = read_image(file)
            image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            image.save(self.root / name, optimize=True)
        return name

    def sheet(self, files: Sequence[Path]) -> tuple[str, int, int]:
        """All images in one picture, row by row; returns its address, its columns and the side of a cell."""
        columns = max(1, math.ceil(math.sqrt(len(files))))
        rows = math.ceil(len(files) / columns)
        sheet = Image.new("RGB", (columns * CELL, rows * CELL), "white")
        for index, file in enumerate(files):
            image = read_image(file)
            image.thumbnail((CELL - 4, CELL - 4), Image.Resampling.LANCZOS)
            left = (index % columns) * CELL + (CELL - image.width) // 2
            top = (index // columns) * CELL + (CELL - image.height) // 2
            sheet.paste(image, (left, top))
        name = f"{self.folder}/classes.webp"
        sheet.save(self.root / name, quality=88, method=4)
        return name, columns, CELL
