"""A small catalogue of drawn shapes, and two models' indexes over it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image, ImageDraw

from happier.data import Manifest
from happier.encoder import Encoder
from happier.search import build_index
from happier.web.explorer import Explorer

LEVELS = ("tone", "colour", "shape")
COLOURS = {
    "warm": {"red": (214, 48, 49), "yellow": (241, 196, 15)},
    "cold": {"blue": (41, 98, 255), "green": (39, 160, 80)},
}
SHAPES = ("circle", "square", "star/cross")  # a slash in a name must not matter
PER_CLASS = 5


def draw(colour: tuple[int, int, int], shape: str, generator: np.random.Generator) -> Image.Image:
    """One image of 48 pixels: a shape somewhere on a light ground."""
    ground = tuple(int(value) for value in generator.integers(225, 255, 3))
    image = Image.new("RGB", (48, 48), ground)
    pen = ImageDraw.Draw(image)
    left, top = (int(value) for value in generator.integers(4, 12, 2))
    size = int(generator.integers(22, 30))
    box = (left, top, left + size, top + size)
    if shape == "circle":
        pen.ellipse(box, fill=colour)
    elif shape == "square":
        pen.rectangle(box, fill=colour)
    else:
        middle = size // 2
        pen.rectangle((left + middle - 4, top, left + middle + 4, top + size), fill=colour)
        pen.rectangle((left, top + middle - 4, left + size, top + middle + 4), fill=colour)
    return image


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Image files, their manifest, and two indexes: ``a.index`` and ``b.index``."""
    place = tmp_path_factory.mktemp("web")
    generator = np.random.default_rng(0)
    rows = []
    for tone, colours in COLOURS.items():
        for colour, value in colours.items():
            for shape in SHAPES:
                for number in range(PER_CLASS):
                    name = f"images/{colour}-{shape.replace('/', '-')}-{number}.png"
                    (place / "images").mkdir(exist_ok=True)
                    draw(value, shape, generator).save(place / name)
                    rows.append(
                        {"path": name, "split": "test", "tone": tone, "colour": colour, "shape": shape}
                    )
    rows.append(
        {"path": rows[0]["path"].replace("0", "9"), "split": "test", "tone": "", "colour": "", "shape": ""}
    )
    draw((120, 120, 120), "circle", generator).save(place / rows[-1]["path"])  # one whose class is unknown
    manifest = Manifest(pd.DataFrame(rows), levels=LEVELS, root=place, name="shapes")
    for name, seed in (("a", 0), ("b", 1)):
        torch.manual_seed(seed)
        encoder = Encoder("test_resnet", dim=16, transform="small", image_size=48, level_names=LEVELS)
        build_index(encoder, manifest, place / f"{name}.index")
    return place


@pytest.fixture(scope="session")
def explorer(place: Path) -> Explorer:
    from happier.web.server import open_explorer

    return open_explorer(place / "a.index")


def as_bytes(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def photo() -> bytes:
    """A new red circle, as a PNG file's bytes."""
    return as_bytes(draw((214, 48, 49), "circle", np.random.default_rng(99)))
