"""Drawings in a tree of three levels, and models: one knows the tree, one fine classes only, two between."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner

from happier.data import Manifest
from happier.runs import read_run

LEVELS = ("group", "kind", "item")
# Names that would break a page, a path or a table that trusts them.
NASTY = "<script>alert(1)</script>"


def draw(folder: Path, name: str, rng: np.random.Generator) -> str:
    image = Image.new("RGB", (40, 32), "white")
    ImageDraw.Draw(image).ellipse((6, 4, 30, 28), fill=tuple(int(v) for v in rng.integers(0, 255, 3)))
    image.save(folder / name)
    return name


def unit(rows) -> np.ndarray:
    array = np.asarray(rows, dtype=np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with ``manifest.parquet``, ``tree.npy`` (knows the tree) and ``flat.npy`` (does not).

    ``mixed.npy`` knows half of each, ``noisy.npy`` the tree, badly.
    """
    root = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    rows, tree, flat = [], [], []
    for group in range(3):
        around_group = rng.normal(size=12)
        for kind in range(2):
            around_kind = around_group + 0.7 * rng.normal(size=12)
            for item in range(4):
                own = around_kind + 0.6 * rng.normal(size=12)
                elsewhere = 1.5 * rng.normal(size=12)
                for view in range(4):
                    name = draw(root, f"{group}{kind}{item}{view}.png", rng)
                    item_name = NASTY if (group, kind, item) == (0, 0, 0) else f"item {item}"
                    rows.append((name, "test", f"a/b {group}", f'kind "{kind}"', item_name))
                    tree.append(own + 0.6 * rng.normal(size=12))
                    flat.append(elsewhere + 0.6 * rng.normal(size=12))
    table = pd.DataFrame(rows, columns=["path", "split", *LEVELS])
    manifest = Manifest(table, levels=LEVELS, root=root, name="world", credits="Drawn by a test, CC0")
    manifest.write(root / "manifest.parquet")
    np.save(root / "tree.npy", unit(tree))
    np.save(root / "flat.npy", unit(flat))
    np.save(root / "mixed.npy", unit(unit(tree) + unit(flat)))
    np.save(root / "noisy.npy", unit(tree + np.random.default_rng(1).normal(size=(len(tree), 12))))
    return root


@pytest.fixture(scope="session")
def four_runs(world):
    return [
        read_run(world / f"{name}.npy", manifest=world / "manifest.parquet", name=name)
        for name in ("tree", "flat", "mixed", "noisy")
    ]


@pytest.fixture(scope="session")
def runs(four_runs):
    return four_runs[:2]


@pytest.fixture
def command(monkeypatch):
    """Run the command line in this process."""

    def run(*words):
        from happier.cli import app

        monkeypatch.setattr(sys, "argv", ["happier", *map(str, words)])
        return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)

    return run
