"""Embeddings from wherever they come: arrays, directories, saved models; embedded once."""

import os

import numpy as np
import pandas as pd
import pytest

from happier import Encoder
from happier.data import Manifest
from happier.encoder.features import Features
from happier.errors import CheckpointError, InputError, ManifestError
from happier.runs import read_run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import torch

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    Encoder("test_resnet", dim=8, transform="small", image_size=32).save_pretrained(folder)
    return folder


@pytest.fixture
def run(tmp_path, model, world):
    """A run directory as training leaves it, for the world's images."""
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    text = f"recipe: small\nseed: 3\nloss: {{name: nsm}}\ndata: {{manifest: {world}/manifest.parquet}}\n"
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "metrics.jsonl").write_text(
        '{"kind": "train", "step": 1, "epoch": 1, "loss": 2.0}\n{"kind": "tr'
    )
    return tmp_path


def test_an_array_with_its_manifest(world):
    found = read_run(world / "tree.npy", manifest=world / "manifest.parquet")
    assert found.name == "tree"
    assert found.vectors.shape == (96, 12)
    assert found.manifest.levels == ("group", "kind", "item")


def test_an_array_of_the_test_rows_alone(world, tmp_path):
    whole = Manifest.read(world / "manifest.parquet")
    table = pd.concat([whole.table.assign(split="train", path=whole.table["path"]), whole.table])
    Manifest(table, levels=whole.levels, root=world).write(tmp_path / "both.parquet")
    found = read_run(world / "tree.npy", manifest=tmp_path / "both.parquet")
    assert set(found.manifest.splits) == {"test"}


def test_an_array_needs_a_manifest_of_its_length(world, tmp_path):
    with pytest.raises(ManifestError, match="--manifest"):
        read_run(world / "tree.npy")
    np.save(tmp_path / "short.npy", np.ones((3, 4), dtype=np.float32))
    with pytest.raises(ManifestError, match="3 vectors"):
        read_run(tmp_path / "short.npy", manifest=world / "manifest.parquet")
    (tmp_path / "not.npy").write_text("text")
    with pytest.raises(InputError, match=r"not\.npy"):
        read_run(tmp_path / "not.npy", manifest=world / "manifest.parquet")


def test_a_run_is_embedded_once(run):
    told = []
    first = read_run(run, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (96, 96)
    assert first.name == "NSM"
    assert first.config["seed"] == 3
    assert len(first.history) == 1
    told.clear()
    again = read_run(run, progress=lambda done, total: told.append((done, total)))
    assert not told
    np.testing.assert_array_equal(first.vectors, again.vectors)


def test_other_weights_are_embedded_again(run):
    read_run(run)
    Encoder("test_resnet", dim=8, transform="small", image_size=32).save_pretrained(run)
    told = []
    read_run(run, progress=lambda done, total: told.append(done))
    assert told


def test_a_directory_of_embeddings(run):
    vectors = read_run(run).vectors
    found = read_run(run / "evaluation" / "embeddings")
    np.testing.assert_array_equal(found.vectors, vectors)
    assert found.fingerprint == read_run(run).fingerprint


def test_a_manifest_chooses_among_the_embeddings(run, world):
    read_run(run)
    whole = Manifest.read(world / "manifest.parquet")
    part = whole.take(np.array([5, 2, 9]))
    part.write(world / "part.parquet")
    found = read_run(run / "evaluation" / "embeddings", manifest=world / "part.parquet")
    np.testing.assert_array_equal(found.vectors, read_run(run).vectors[[5, 2, 9]])


def test_classes_that_were_trained_on_are_noticed(run, world, tmp_path_factory):
    assert read_run(run).unseen_classes is None
    whole = Manifest.read(world / "manifest.parquet")
    every_other = np.arange(len(whole)) % 2 == 0
    for train, unseen in ((every_other, False), (whole.table["group"] == "a/b 2", True)):
        table = whole.table.assign(split=np.where(train, "train", "test"))
        path = tmp_path_factory.mktemp("m") / "manifest.parquet"
        Manifest(table, levels=whole.levels, root=world).write(path)
        assert read_run(run, manifest=path).unseen_classes is unseen


def test_a_model_without_a_manifest_says_so(model):
    with pytest.raises(ManifestError, match="--manifest"):
        read_run(model)


def test_nothing_there(tmp_path):
    with pytest.raises(CheckpointError):
        read_run(tmp_path / "nothing")


def header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"\x80\x04N.",
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }\n") + bytes(64),
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (8, 4, }\n"),
        header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000, 4), }\n"),
        header(b"(" * 30_000),
        np.float32(1),
        np.ones(4, np.float32),
        np.ones((4, 2), np.int64),
        np.ones((4, 2), np.complex64),
        None,
    ],
)
def test_files_that_are_no_arrays_are_one_line(tmp_path, world, content):
    path = tmp_path / "x.npy"
    if content is None:
        os.mkfifo(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    manifest = Manifest.read(world / "manifest.parquet")
    for read in (lambda: read_run(path, manifest=world / "manifest.parquet"),
                 lambda: Features.from_array(path, manifest)):  # fmt: skip
        with pytest.raises(InputError, match=r"x\.npy") as error:
            read()
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 500
