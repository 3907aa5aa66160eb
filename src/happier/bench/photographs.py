"""Files that cost as much to decode as photographs do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["WEB_SIZE", "write_photographs"]

WEB_SIZE = (500, 375)
"""Width and height of many photographs on the web."""


def write_photographs(files: Iterable[Path], size: tuple[int, int] = WEB_SIZE) -> list[Path]:
    """Write JPEG files with large shapes and fine grain, as photographs have, each with another content."""
    rng = np.random.default_rng(0)
    written = []
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        shapes = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(shapes.resize(size, Image.Resampling.BICUBIC), dtype=np.float32)
        grain = rng.standard_normal((size[1], size[0], 1), dtype=np.float32) * 8
        Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(file, quality=90)
        written.append(file)
    return written
