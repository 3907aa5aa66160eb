"""The guide to one's own images works as it stands, on drawn shapes."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from happier.cli import app

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "your-own-images.md"
# The test is about the commands, not about how good a model gets in 20 epochs.
SHORT = ["training.epochs=1", "training.batch_size=32", "model=tiny", "transform.size=32"]


def shapes():
    spec = importlib.util.spec_from_file_location("shapes", ROOT / "docs" / "figures" / "shapes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commands():
    blocks = re.findall(r"^```bash\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAPPIER_CACHE", str(tmp_path / "cache"))
    assert shapes().write_folder(tmp_path / "photos") == 576
    (table,) = re.findall(r"^```csv\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "table.csv").write_text(table)
    lines = commands()
    assert len(lines) == 13
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "serve":  # runs until it is stopped; tests/web is about it
            continue
        if words[0] == "fit" or (words[0] == "train" and "--show" not in words):
            words += SHORT
        monkeypatch.setattr(sys, "argv", ["happier", *words])
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
    assert (tmp_path / "report" / "index.html").exists()
    assert (tmp_path / "photos.index" / "index.json").exists()
    rows = pd.read_parquet("table.parquet")
    assert rows["family"].tolist() == ["round", "round", "angular"]
    assert rows["item"].tolist()[-1] in ("", None)
