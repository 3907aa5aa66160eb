"""No command writes its result over what it reads, or over a part of it."""

import shutil

import numpy as np
import pytest

from happier.data import Manifest
from happier.search import Index


@pytest.fixture
def inputs(world, tmp_path):
    """Copies of a manifest and vectors, and an index of them, which a command could destroy."""
    manifest, vectors = tmp_path / "manifest.parquet", tmp_path / "vectors.npy"
    shutil.copy(world / "manifest.parquet", manifest)
    shutil.copy(world / "tree.npy", vectors)
    rows = Manifest.read(manifest)
    Index.build(tmp_path / "index", rows, np.load(vectors), fingerprint="f" * 32).close()
    return tmp_path


def test_vectors_too_long_to_measure_are_one_line(command, inputs):
    np.save(inputs / "large.npy", np.full_like(np.load(inputs / "vectors.npy"), 1e30))
    done = command("data", "suspects", inputs / "large.npy", "--manifest", inputs / "manifest.parquet")
    assert "vectors must be finite and not zero" in str(done.exception)  # a warning would be an error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("data suspects vectors.npy --manifest manifest.parquet -o manifest.parquet", "is the input"),
        ("data suspects index -o suspects.xyz", "are written as .csv or .parquet, got 'suspects.xyz'"),
        ("data suspects index -o index/items-1.parquet", "may be a file of index"),
        ("data taxonomy manifest.parquet vectors.npy --from clusters -o vectors.npy", "is the input"),
        ("evaluate vectors.npy --manifest manifest.parquet --per-query manifest.parquet", "is the input"),
        ("evaluate vectors.npy --manifest manifest.parquet --json vectors.npy", "is the input"),
        ("export vectors.npy manifest.parquet --manifest manifest.parquet --to atlas", "is the input"),
    ],
)
def test_what_is_read_is_never_overwritten(command, inputs, monkeypatch, words, message):
    monkeypatch.chdir(inputs)
    before = {path: path.read_bytes() for path in inputs.rglob("*") if path.is_file()}
    done = command(*words.split())
    assert message in str(done.exception)
    assert {path: path.read_bytes() for path in inputs.rglob("*") if path.is_file()} == before
