"""Examples in docstrings and in docs/data.md run."""

import doctest
import importlib
import pkgutil
import re
import shlex
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import happier.data
from happier.cli import app
from happier.data import DATASETS, Manifest
from happier.data.importers import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
MODULES = [module.name for module in pkgutil.walk_packages(happier.data.__path__, "happier.data.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_python_of_the_page():
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0


def test_commands_of_the_page(tmp_path, make_image, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    items = ["animals/birds/owl", "animals/birds/emu", "vehicles/road/bus", "vehicles/road/car"]
    for seed, item in enumerate(items):
        for image in range(2):
            make_image(tmp_path / "photos" / item / f"{image}.jpg", seed=10 * seed + image)
    picture = make_image(tmp_path / "saved" / "train" / "owl" / "1.jpg")
    (tmp_path / "shards").mkdir()
    (tmp_path / "1.json").write_text('{"kind": "bird", "item": "owl"}')
    with tarfile.open(tmp_path / "shards" / "0.tar", "w") as shard:
        shard.add(picture, "1.jpg")
        shard.add(tmp_path / "1.json", "1.json")
    # Not those with a NAME to fill in.
    commands = re.findall(r"^happier (data [^A-Z\n]+)$", text, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, result.output
    manifest = Manifest.read("split.parquet")
    assert manifest.levels == ("realm", "kind", "item")
    assert manifest.splits == {"train": 4, "test": 4}


def test_the_page_names_every_kind_and_data_set():
    text = PAGE.read_text()
    for name in (*KINDS, *DATASETS):
        assert name in text
    for entry in DATASETS.values():
        if entry.source:
            line = next(line for line in text.splitlines() if line.startswith(f"| `{entry.name}` |"))
            assert f"{entry.images:,}" in line
            assert " > ".join(f"{number:,}" for number in entry.classes) in line
            assert " > ".join(entry.levels) in line
