"""The guide to making a taxonomy works as it stands, on a small catalogue of shapes."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
from small_wordnet import small_wordnet
from typer.testing import CliRunner

from happier.cli import app
from happier.data import Manifest
from happier.data.taxonomies.wordnet import WordNet
from happier.errors import TaxonomyError
from happier.search import Index

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "taxonomy.md"
WORDS = ["parrot", "owl", "sparrow", "salmon", "trout", "saw", "hammer", "screwdriver"]
BRANCHES = {"circle": "round", "bar": "angular"}


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE.read_text(), flags=re.MULTILINE | re.DOTALL)


def catalogue(folder):
    """Six classes of shapes, an index whose vectors fit them, and the same classes without their tree."""
    rows = [
        (f"{family}/{shape}/{colour} {shape}/{number}.png", "train", family, shape, f"{colour} {shape}")
        for shape, family in BRANCHES.items()
        for colour in ("red", "blue", "green")
        for number in range(4)
    ]
    table = pd.DataFrame(rows, columns=["path", "split", "family", "shape", "item"])
    manifest = Manifest(table, levels=["family", "shape", "item"], root=folder, name="shapes")
    manifest.write(folder / "photos.parquet")
    flat = table.drop(columns=["family", "shape"])
    Manifest(flat, levels=["item"], root=folder).write(folder / "flat.parquet")
    centres = 2 * np.eye(8)[np.repeat([0, 1], 12)] + np.eye(8)[2 + np.repeat(np.arange(6), 4)]
    vectors = centres + 0.05 * np.random.default_rng(0).normal(size=centres.shape)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    Index.build(folder / "photos.index", manifest, vectors, fingerprint="f" * 64)
    words = pd.DataFrame({"path": [f"{word}.png" for word in WORDS], "split": "train", "item": WORDS})
    Manifest(words, levels=["item"], root=folder).write(folder / "words.parquet")
    tree, corrections = blocks("csv")
    (folder / "tree.csv").write_text(tree)
    (folder / "corrections.csv").write_text(corrections)


def test_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Tests do without the network; the format of the files is that of the real database.
    monkeypatch.setattr(WordNet, "fetch", small_wordnet)
    catalogue(tmp_path)
    lines = [line for block in blocks("bash") for line in block.replace("\\\n", " ").splitlines()]
    assert len(lines) == 11
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "serve":  # runs until it is stopped; tests/web is about it
            continue
        done = CliRunner().invoke(app, words)
        if words[2:] == ["words.parquet", "--from", "wordnet", "-o", "names.parquet"]:
            assert isinstance(done.exception, TaxonomyError)
            assert "1 of 8 classes are not clear: 1 have several meanings" in str(done.exception)
            choices = pd.read_csv("names.choices.csv", keep_default_na=False)
            choices["choose"] = np.where(choices["meaning"] == "saw.n.02", "x", "")
            choices.to_csv("names.choices.csv", index=False)
            continue
        assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"
    table = Manifest.read("table.parquet")
    assert table.class_paths() == Manifest.read("photos.parquet").class_paths()
    names = dict(zip(WORDS, Manifest.read("names.parquet").class_paths(), strict=True))
    assert names["owl"] == "animal/bird/owl"
    assert names["saw"] == "tool/tool/saw"
    looks = Manifest.read("looks.parquet").table
    assert looks.groupby("family")["item"].nunique().tolist() == [3, 3]
    assert "Taxonomy of shapes" in Path("tree.html").read_text()
    corrected = Manifest.read("corrected.parquet").class_paths()
    assert corrected[0] == "round/circle"
    assert corrected[1:] == Manifest.read("photos.parquet").class_paths()[1:]
    assert Path("suspects.csv").exists()
