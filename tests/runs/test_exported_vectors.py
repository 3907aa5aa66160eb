"""Vectors, labels and scores for other programs, as those read them."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from google.protobuf import text_format
from noise import write_noise
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from typer.testing import CliRunner

from happier import Encoder
from happier.cli import app
from happier.data import Manifest
from happier.errors import InputError
from happier.evaluation.options import EvaluationOptions
from happier.runs import read_run
from happier.runs.exported_vectors import export_vectors
from happier.runs.stored_evaluation import evaluate_run


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model, its manifest and its vectors; one label has a tab."""
    root = tmp_path_factory.mktemp("export")
    rows = []
    for number in range(8):
        write_noise(root / f"{number}.png", number)
        rows.append((f"{number}.png", "test", "a\tb" if number < 4 else "c", f"item{number // 2}"))
    table = pd.DataFrame(rows, columns=["path", "split", "kind", "item"])
    manifest = Manifest(table, levels=["kind", "item"], root=root).write(root / "m.parquet")
    Encoder("test_resnet", dim=4, transform="small", image_size=32).save_pretrained(root / "model")
    vectors = Encoder.from_pretrained(root / "model").embed(Manifest.read(manifest).files())
    return root, manifest, vectors


def export(exported, to, path, *more):
    root, manifest, _ = exported
    command = ["export", str(root / "model"), str(path), "--to", to, "--manifest", str(manifest), *more]
    return CliRunner().invoke(app, command)


def scores(exported):
    root, manifest, _ = exported
    run = read_run(root / "model", manifest=manifest)
    return evaluate_run(run, EvaluationOptions()).results[0].per_query["H-AP"]


def test_embedding_atlas(exported, tmp_path):
    done = export(exported, "atlas", tmp_path / "atlas.parquet")
    assert done.exit_code == 0, done.output
    table = pd.read_parquet(tmp_path / "atlas.parquet")
    np.testing.assert_allclose(np.stack(table["vector"]), exported[2], atol=1e-6)
    assert table["class"].tolist()[7] == "c/item3"
    assert table["path"].tolist()[3] == str(exported[0] / "3.png")
    np.testing.assert_allclose(table["H-AP"], scores(exported))


def test_projector(exported, tmp_path):
    for _ in range(2):  # the second replaces the first
        assert export(exported, "projector", tmp_path / "logs").exit_code == 0
    config = text_format.Parse((tmp_path / "logs" / "projector_config.pbtxt").read_text(), ProjectorConfig())
    (one,) = config.embeddings
    np.testing.assert_allclose(np.loadtxt(tmp_path / "logs" / one.tensor_path), exported[2], atol=1e-6)
    with (tmp_path / "logs" / one.metadata_path).open() as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) == 8
    assert [row["kind"] for row in rows[3:5]] == ["a b", "c"]
    assert float(rows[5]["H-AP"]) == pytest.approx(scores(exported)[5])


def test_fiftyone(exported, tmp_path):
    assert export(exported, "fiftyone", tmp_path / "fo").exit_code == 0
    content = json.loads((tmp_path / "fo" / "labels.json").read_text())
    places = json.loads((tmp_path / "fo" / "data.json").read_text())
    assert list(content["labels"]) == list(places)
    row = content["labels"]["0000006"]
    assert content["classes"][row["label"]] == "c/item3"
    assert row["attributes"]["kind"] == "c"
    assert row["attributes"]["H-AP"] == pytest.approx(scores(exported)[6])
    assert places["0000006"] == str(exported[0] / "6.png")
    np.testing.assert_allclose(np.load(tmp_path / "fo" / "vectors.npy"), exported[2], atol=1e-6)


def test_wrong_arguments(exported, tmp_path):
    done = export(exported, "atlass", tmp_path / "x")
    assert "--to must be one of onnx, atlas, projector, fiftyone, got 'atlass'" in str(done.exception)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").touch()
    done = export(exported, "projector", tmp_path / "full")
    assert "holds something other than such an export" in str(done.exception)
    done = export(exported, "onnx", tmp_path / "x.onnx")
    assert "--manifest and --split choose vectors" in str(done.exception)


def test_fiftyone_needs_files(exported, tmp_path):
    _, manifest, vectors = exported
    rows = Manifest.read(manifest)
    rows.table["path"] = [f"x.tar@{number}+5" for number in range(8)]
    np.save(tmp_path / "v.npy", vectors)
    run = read_run(tmp_path / "v.npy", manifest=rows.write(tmp_path / "rows.parquet"))
    with pytest.raises(InputError, match="is a part of a larger file; FiftyOne opens images that are files"):
        export_vectors(run, evaluate_run(run, EvaluationOptions()), tmp_path / "fo", "fiftyone")
