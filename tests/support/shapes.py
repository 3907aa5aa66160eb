"""A small data set of drawn shapes with held-out classes."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageDraw

from happier.data import Manifest

SIZE = 32


def _draw(kind: int, colour: tuple[int, ...], rng: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), tuple(int(v) for v in rng.integers(0, 60, 3)))
    draw = ImageDraw.Draw(image)
    left, top = (int(v) for v in rng.integers(2, 10, 2))
    box = [left, top, left + 18, top + 18]
    if kind == 0:
        draw.ellipse(box, fill=colour)
    elif kind == 1:
        draw.rectangle(box, fill=colour)
    elif kind == 2:
        draw.polygon([(left, top + 18), (left + 18, top + 18), (left + 9, top)], fill=colour)
    else:
        draw.line(box, fill=colour, width=5)
    return image


def make_shapes(root: Path, *, items: int = 8, views: int = 5) -> Path:
    """Four shapes in `items` colours each; the last quarter of the colours is for testing.

    Attributes are the shape, whether it is dark, and its main colour.
    """
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = []
    for kind in range(4):
        for item in range(items):
            base = rng.integers(40, 220, 3)
            shade, main = "dark" if base.sum() < 390 else "light", "rgb"[base.argmax()]
            for view in range(views):
                colour = tuple(int(v) for v in np.clip(base + rng.integers(-10, 10, 3), 0, 255))
                name = f"{kind}_{item}_{view}.png"
                _draw(kind, colour, rng).save(root / name)
                split = "test" if item >= items - items // 4 else "train"
                rows.append(
                    {
                        "path": name,
                        "split": split,
                        "kind": f"k{kind}",
                        "item": f"i{item}",
                        "attributes": f"k{kind}; {shade}; {main}",
                    }
                )
    path = root / "manifest.parquet"
    Manifest(pd.DataFrame(rows), levels=["kind", "item"], root=root, name="shapes").write(path)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that runs share are shared by the tests, too."""
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.fixture
def small(shapes: Path) -> list[str]:
    """Overrides of a run of a few steps: 12 batches in 4 epochs."""
    return [
        "recipe=small",
        f"data.manifest={shapes}",
        "training.epochs=4",
        "training.batch_size=32",
        "training.tensorboard=false",
        "evaluation.every=0",
        "data.workers=0",
    ]
