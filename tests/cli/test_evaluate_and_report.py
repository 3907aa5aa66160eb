"""``happier evaluate`` and ``happier report`` as a user runs them."""

import json

import numpy as np
import pandas as pd
import pytest

import happier
from happier.data import Manifest
from happier.evaluation import evaluate


def test_evaluate_prints_a_table(command, world):
    result = command(
        "evaluate", world / "tree.npy", "--manifest", world / "manifest.parquet", "--resamples", 20
    )
    assert result.exit_code == 0, result.output
    for word in ("H-AP", "AP/item", "R@10/kind", "severity@1", "leave-one-out", "96 queries"):
        assert word in result.output


def test_evaluate_writes_everything(command, world, tmp_path):
    result = command(
        "evaluate", world / "tree.npy", "--manifest", world / "manifest.parquet",
        "--against", world / "flat.npy", "--json", tmp_path / "f.json",
        "--per-query", tmp_path / "q.parquet", "--latex", tmp_path / "t.tex",
        "--resamples", 50, "--k", 1, "--k", 5,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    told = json.loads((tmp_path / "f.json").read_text())
    vectors, labels = np.load(world / "tree.npy"), Manifest.read(world / "manifest.parquet").labels()
    expected = evaluate(vectors, labels, ks=(1, 5), level_names=("group", "kind", "item"))
    assert told["runs"][0]["summary"]["H-AP"] == pytest.approx(expected.summary["H-AP"])
    assert [run["name"] for run in told["runs"]] == ["tree", "flat"]
    main = told["sets"][0]["metrics"][0]
    assert main["key"] == "H-AP"
    assert main["difference"]["p_value"] < 0.05
    table = pd.read_parquet(tmp_path / "q.parquet")
    assert len(table) == 96
    np.testing.assert_array_equal(table["H-AP"], expected.per_query["H-AP"])
    assert table["class"][0].startswith("a\\/b 0/")
    assert r"\toprule" in (tmp_path / "t.tex").read_text()


def test_json_and_latex_on_the_output(command, world):
    words = ["evaluate", world / "tree.npy", "--manifest", world / "manifest.parquet", "--resamples", 0]
    told = json.loads(command(*words, "--json", "-").output)
    assert told["sets"][0]["metrics"][0]["values"][0]["low"] is None
    assert command(*words, "--latex", "-").output.startswith("%")


def test_paper_counts_the_query_and_shows_the_published_rows(command, world, tmp_path):
    whole = Manifest.read(world / "manifest.parquet")
    table = whole.table.drop(columns="kind")
    Manifest(table, levels=("group", "item"), root=world, name="sop").write(tmp_path / "sop.parquet")
    words = ["evaluate", world / "tree.npy", "--manifest", tmp_path / "sop.parquet", "--resamples", 0]
    result = command(*words, "--paper")
    assert result.exit_code == 0, result.output
    assert "SOP as published" in result.output
    assert "59.4" in result.output
    told = json.loads(command(*words, "--paper", "--json", "-").output)
    labels = Manifest.read(tmp_path / "sop.parquet").labels()
    relevance = happier.HierarchyRelevance(count_query=True)
    expected = evaluate(np.load(world / "tree.npy"), labels, relevance=relevance)
    assert told["runs"][0]["summary"]["H-AP"] == pytest.approx(expected.summary["H-AP"])
    assert "count_query=True" in told["relevance"]
    assert "published" not in command(*words).output


def test_dyml_sets_are_shown(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for name in ("coarse", "middle", "fine"):
        for row in range(24):
            split = "query" if row < 8 else "gallery"
            rows.append((f"{name}{row}.png", split, f"{name} {row % 3}", "", "", name))
    table = pd.DataFrame(rows, columns=["path", "split", "coarse", "middle", "fine", "set"])
    levels = ("coarse", "middle", "fine")
    Manifest(table, levels=levels, root=tmp_path, name="dyml-vehicle").write(tmp_path / "m.parquet")
    np.save(tmp_path / "v.npy", rng.normal(size=(72, 5)).astype(np.float32))
    result = command(
        "evaluate", tmp_path / "v.npy", "--manifest", tmp_path / "m.parquet", "--paper", "--resamples", 0,
        "--per-query", tmp_path / "q.parquet",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for word in ("test set middle", "DyML protocol", "mAP, mean", "DyML-Vehicle as published"):
        assert word in result.output
    assert pd.read_parquet(tmp_path / "q.parquet")["set"].value_counts().to_dict() == dict.fromkeys(levels, 8)


def test_report_writes_a_page(command, world, tmp_path):
    result = command(
        "report", world / "tree.npy", "--manifest", world / "manifest.parquet",
        "--against", world / "flat.npy",
        "--name", "Tree", "--against-name", "Flat", "--resamples", 20, "--no-figures", "-o", tmp_path / "r",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "answers that Tree gives" in result.output
    page = (tmp_path / "r" / "index.html").read_text()
    assert "happier report" in page
    assert "Drawn by a test, CC0" in page


def test_more_than_two_models(command, world, tmp_path):
    words = [world / "tree.npy", "--manifest", world / "manifest.parquet", "--resamples", 20]
    words += ["--against", world / "flat.npy", "--against", world / "mixed.npy"]
    result = command(
        "report", *words, "--against-name", "Flat", "--against-name", "Both", "--no-figures",
        "-o", tmp_path / "r",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Shown beside: Both" in result.output
    told = json.loads((tmp_path / "r" / "data.json").read_text())
    assert [model["name"] for model in told["models"]] == ["tree", "Flat", "Both"]
    result = command("evaluate", *words)
    assert result.exit_code == 0, result.output
    assert "1st - 2nd" in result.output
    assert "mixed" in result.output
    two = command("evaluate", *words[:-2])
    assert "1st - 2nd" not in two.output
    told = json.loads(command("evaluate", *words, "--json", "-").output)
    assert [run["name"] for run in told["runs"]] == ["tree", "flat", "mixed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "x", "-o", "y", *["--against", "x"] * 4], "1 to 4 runs can be compared, got 5"),
        (["evaluate", "x", *["--against", "x"] * 4], "1 to 4 runs can be compared, got 5"),
        (
            ["report", "x", "-o", "y", "--against", "x", *["--against-name", "n"] * 2],
            "--against-name is given 2",
        ),
        (["evaluate", "nothing/here/at/all"], "no model at"),
        (["evaluate", "{world}/tree.npy"], "--manifest"),
        (
            ["evaluate", "{world}/tree.npy", "--manifest", "{world}/manifest.parquet", "--ties", "any"],
            "--ties",
        ),
        (["evaluate", "{world}/tree.npy", "--manifest", "{world}/manifest.parquet", "--split", "val"], "val"),
        (["report", "{world}/tree.npy", "--manifest", "{world}/manifest.parquet"], "-o"),
    ],
)
def test_mistakes_are_told_in_one_line(command, world, words, message):
    result = command(*(word.format(world=world) for word in words))
    assert isinstance(result.exception, happier.HappierError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
