"""Small real files for the data tests."""

import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from happier.data import Manifest


@pytest.fixture
def make_image():
    """Write an image of smooth noise; the seed makes it differ from others."""

    def make(
        path: Path, *, seed: int = 0, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options
    ) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        small.resize(size, Image.Resampling.BICUBIC).convert(mode).save(path, **options)
        return path

    return make


@pytest.fixture
def small_manifest(tmp_path, make_image):
    """Two kinds, four items, three images each; items alternate between train and test."""
    rows = []
    for item in range(4):
        for image in range(3):
            path = f"images/item {item}/ä{image}.jpg"
            make_image(tmp_path / path, seed=10 * item + image)
            split = "train" if item % 2 == 0 else "test"
            rows.append((path, split, f"kind{item // 2}", f"item{item}"))
    table = pd.DataFrame(rows, columns=["path", "split", "kind", "item"])
    return Manifest(table, levels=["kind", "item"], root=tmp_path, name="small")


@pytest.fixture
def as_mere_user():
    """File permissions hold for root too while this lasts."""

    @contextmanager
    def lasting():
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return lasting
