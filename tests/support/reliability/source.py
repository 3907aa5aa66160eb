"""A data set that `happier data fetch` can make without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
from PIL import Image

from happier.data.sources.prepared import PreparedSource, save_small


def prepare(
    folder: Path, downloads: Path, size: int, progress: Callable[[str, int, int], object]
) -> PreparedSource:
    downloads.mkdir(parents=True, exist_ok=True)
    (downloads / "package.txt").write_text("downloaded")
    rows = []
    for kind in range(2):
        for item in range(4):
            name = f"images/{kind}{item}.png"
            save_small(Image.new("RGB", (20, 20), (kind * 90, item * 60, 0)), folder / name, size)
            rows.append({"path": name, "kind": f"k{kind}", "item": f"i{item}"})
    return PreparedSource(pd.DataFrame(rows), ("kind", "item"), "Drawn by a test")
