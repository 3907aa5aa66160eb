"""The scripts in examples/ run as they are, and what they print is true."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from happier.data import Manifest
from happier.data.fetching import fetched_manifest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


def run(name, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(folder.iterdir()) == [], "an example left something behind"
    return done.stdout


def numbers(line):
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+", line)]


def line_of(text, start):
    return next(line for line in text.splitlines() if line.strip("│ ").startswith(start))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_is_a_notebook_of_whole_cells(script):
    cells = re.split(r"^# %%.*\n", script.read_text(), flags=re.MULTILINE)
    assert cells[0] == ""
    assert script.read_text().startswith("# %% [markdown]\n# # ")
    assert len(cells) >= 5
    for cell in cells:
        ast.parse(cell)
    assert f"python examples/{script.name}" in cells[1]


@pytest.mark.slow
def test_training_with_lightning(tmp_path):
    printed = run("happier_with_lightning.py", tmp_path)
    for name in ("H-AP:", "AP/digit:", "R@1/digit:"):
        before, after = numbers(line_of(printed, name))
        assert after > before
    (best,) = numbers(line_of(printed, "best"))
    assert best >= numbers(line_of(printed, "H-AP:"))[1] - 1e-3


@pytest.mark.slow
def test_the_loss_in_a_loop(tmp_path):
    printed = run("happier_in_a_pml_loop.py", tmp_path)
    losses = [numbers(line)[0] for line in printed.splitlines() if line.startswith("  epoch")]
    assert len(losses) == 8
    assert losses[3] < losses[0]
    assert losses[7] < losses[4]
    softmax, tree = numbers(line_of(printed, "softmax:")), numbers(line_of(printed, "HAPPIER:"))
    for precision, ours, *_ in (softmax, tree):
        assert precision == pytest.approx(ours, abs=2e-3)  # ties may be ordered differently
    assert tree[2] > softmax[2]
    assert tree[3] > softmax[3]
    change, low, high = numbers(line_of(printed, "H-AP").replace("95%", ""))
    assert 0 < low < change < high
    assert change == pytest.approx(tree[2] - softmax[2], abs=1.1e-3)


@pytest.mark.slow
def test_emoji_by_their_keywords(tmp_path):
    """Only where the images have been fetched: tests need no network."""
    found = fetched_manifest("emoji", size=32)
    if found is None or "attributes" not in Manifest.read(found).table:
        pytest.skip("needs `happier data fetch emoji --size 32`")
    printed = run("emoji_by_keywords.py", tmp_path)
    losses = [numbers(line)[0] for line in printed.splitlines() if line.startswith("  epoch")]
    assert losses[-1] < losses[0]
    colours, trained = numbers(line_of(printed, "H-AP by keywords"))
    assert trained > colours + 0.03
