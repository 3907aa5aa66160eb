"""`happier data taxonomy`: make one, compare two."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from happier.cli import app
from happier.curation.labelled_vectors import read_labelled_vectors
from happier.data import Manifest
from happier.errors import HappierError
from happier.search import Index

CLASSES = {"bird": ["owl", "emu", "kiwi"], "tool": ["saw", "file", "plane"]}


def run(*arguments):
    return CliRunner().invoke(app, ["data", "taxonomy", *map(str, arguments)])


@pytest.fixture
def place(tmp_path):
    """A flat manifest, the right tree, vectors that fit it, and an index of them."""
    rng = np.random.default_rng(0)
    rows, vectors = [], []
    for kind, (branch, names) in enumerate(CLASSES.items()):
        for at, name in enumerate(names):
            for _ in range(4):
                rows.append((f"{len(rows)}.png", "train" if at else "test", branch, name))
                centre = np.eye(10)[kind] * 3 + np.eye(10)[2 + 3 * kind + at]
                vectors.append(centre + 0.05 * rng.normal(size=10))
    vectors = np.asarray(vectors, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = pd.DataFrame(rows, columns=["path", "split", "kind", "item"])
    Manifest(table, levels=["kind", "item"], root=tmp_path, name="right").write(tmp_path / "right.parquet")
    flat = Manifest(table.drop(columns="kind"), levels=["item"], root=tmp_path, name="flat")
    flat.write(tmp_path / "flat.parquet")
    np.save(tmp_path / "vectors.npy", vectors)
    Index.build(tmp_path / "flat.index", flat, vectors, fingerprint="x" * 64)
    return tmp_path


@pytest.mark.parametrize("source", ["vectors.npy", "flat.index"])
def test_clusters(place, source):
    options = ("--from", "clusters", "--sizes", "2", "--levels", "kind", "-o", place / "new.parquet")
    done = run(place / "flat.parquet", place / source, *options)
    assert done.exit_code == 0, done.output
    assert "24 images of 2 kind > 6 item" in done.output
    new = Manifest.read(place / "new.parquet")
    assert new.levels == ("kind", "item")
    groups = new.table.groupby("kind")["item"].agg(set).tolist()
    assert sorted(map(sorted, groups)) == [["emu", "kiwi", "owl"], ["file", "plane", "saw"]]
    trees = (place / "new.parquet", "--compare", place / "right.parquet")
    done = run(*trees, "--run", place / "vectors.npy", "--json")
    told = json.loads(done.output)
    assert told["classes"] == 6
    assert told["trees"] == {"share": 1.0, "decided": 18 / 20, "triples": 20}
    assert [one["share"] for one in told["vectors"]] == [1.0, 1.0]


def test_table_and_comparison(place):
    (place / "wrong.csv").write_text("kind,item\na,owl\na,saw\na,file\nb,emu\nb,kiwi\nb,plane\n")
    done = run(place / "flat.parquet", place / "wrong.csv", "--from", "table", "-o", place / "wrong.parquet")
    assert done.exit_code == 0, done.output
    done = run(place / "right.parquet", "--compare", place / "wrong.parquet", "--run", place / "flat.index")
    assert "both trees say which two are closest in 80.0%; there they agree in 25.0%" in done.output
    assert "The vectors agree with the first tree in 100.0% of the triples that it decides" in done.output


def refused(*arguments):
    done = run(*arguments)
    assert isinstance(done.exception, HappierError), done.output
    return str(done.exception)


def test_bad_input_in_one_line(place):
    flat, new = place / "flat.parquet", place / "new.parquet"
    assert refused(flat, "--from", "wordnets", "-o", new) == (
        "--from must be one of wordnet, clusters, table, inat, got 'wordnets' (did you mean 'wordnet'?)"
    )
    assert "give --from KIND and -o NEW" in refused(flat)
    assert "--from clusters needs an index" in refused(flat, "--from", "clusters", "-o", new)
    assert "is the input" in refused(flat, "--from", "wordnet", "-o", flat)
    assert "--sizes must be numbers" in refused(
        flat, place / "flat.index", "--from", "clusters", "--sizes", "two", "-o", new
    )
    one = Manifest.read(flat)
    one.take([0, 1]).write(place / "one.parquet")
    assert "level item has 1" in refused(place / "one.parquet", "--from", "wordnet", "-o", new)
    assert not new.exists()


def test_vectors_of_part_of_the_images(place):
    found = read_labelled_vectors(place / "flat.index", split="test")
    assert set(found.manifest.table["item"]) == {"owl", "saw"}
    relabelled = read_labelled_vectors(place / "flat.index", manifest=place / "right.parquet")
    assert relabelled.manifest.levels == ("kind", "item")
    np.testing.assert_allclose(np.linalg.norm(relabelled.vectors, axis=1), 1, rtol=1e-5)
    with pytest.raises(HappierError, match="no images of split 'val'"):
        read_labelled_vectors(place / "flat.index", split="val")


def test_ranks_of_real_names(tmp_path):
    names = ["Bubo bubo", "Strix aluco", "Columba livia", "Quercus robur"]
    rows = pd.DataFrame({"path": [f"{name}.jpg" for name in names], "split": "train", "species": names})
    path = Manifest(rows, levels=["species"], root=tmp_path).write(tmp_path / "m.parquet")
    done = run(path, "--from", "inat", "-o", tmp_path / "new.parquet", "--levels", "kingdom,order")
    assert done.exit_code == 0, done.output
    assert Manifest.read(tmp_path / "new.parquet").class_paths() == [
        "Animalia/Strigiformes/Bubo bubo",
        "Animalia/Strigiformes/Strix aluco",
        "Animalia/Columbiformes/Columba livia",
        "Plantae/Fagales/Quercus robur",
    ]
