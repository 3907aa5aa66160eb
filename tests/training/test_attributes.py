"""Training on attributes instead of labels, and the evaluation of such a run."""

import json

import numpy as np
import pytest
from drawings import command
from training_runs import kill_at

import happier
from happier.data import Manifest
from happier.errors import CheckpointError, ConfigError, InputError, ManifestError, OptionError
from happier.evaluation.protocol import evaluate_manifest
from happier.relevance import AttributeRelevance, jaccard
from happier.runs import read_run
from happier.training.compose import compose
from happier.training.loop import train

__all__ = ["command"]

BY_ATTRIBUTES = ["loss=hap_attributes", "sampler=attributes"]


@pytest.fixture
def with_attributes(shapes, small, tmp_path):
    """Overrides of a run on the same shapes with other attributes."""

    def make(attributes):
        rows = Manifest.read(shapes)
        table = rows.table.drop(columns="attributes")
        if attributes is not None:
            table = table.assign(attributes=attributes)
        path = tmp_path / "manifest.parquet"
        Manifest(table, levels=rows.levels, root=rows.root, name="shapes").write(path)
        return [*small, *BY_ATTRIBUTES, f"data.manifest={path}", f"run={tmp_path / 'run'}"]

    return make


def by_hand(run):
    """H-AP of a run's test rows, by the share of attributes in common."""
    rows = run.manifest
    has, _ = rows.attributes()
    found = happier.evaluate(run.vectors, None, relevance=lambda queries: jaccard(has[queries], has))
    return found.summary["H-AP"]


def test_a_run_is_trained_and_evaluated_by_attributes(small, tmp_path, command):
    options = [*small, *BY_ATTRIBUTES, f"run={tmp_path / 'run'}", "evaluation.every=4"]
    result = train(compose([*options, "training.epochs=12", "evaluation.start=true"]))
    run = read_run(tmp_path / "run")
    expected = by_hand(run)
    assert result.metrics["H-AP"] == pytest.approx(expected, abs=1e-4)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    start = next(line["metrics"]["H-AP"] for line in lines if line["kind"] == "evaluation")
    assert result.metrics["H-AP"] > start + 0.03

    found = command("evaluate", tmp_path / "run", "--resamples", 0, "--json", tmp_path / "f.json")
    assert found.exit_code == 0, found.output
    assert "H-AP is by the share of attributes in common" in found.output
    told = json.loads((tmp_path / "f.json").read_text())
    assert told["relevance"] == "AttributeRelevance()"
    assert told["runs"][0]["summary"]["H-AP"] == pytest.approx(expected)

    labelled = command("evaluate", tmp_path / "run", "--resamples", 0, "--by", "labels", "--json", "-")
    by_labels = json.loads(labelled.output)["runs"][0]["summary"]
    assert by_labels["H-AP"] == pytest.approx(evaluate_manifest(run.vectors, run.manifest).summary()["H-AP"])
    assert by_labels["AP/item"] == pytest.approx(told["runs"][0]["summary"]["AP/item"])
    for words, text in ((["--paper"], "--by labels"), (["--by", "colour"], "--by must be labels or attrib")):
        refused = command("evaluate", tmp_path / "run", *words)
        assert isinstance(refused.exception, OptionError)
        assert text in str(refused.exception)


def test_a_run_on_labels_can_be_evaluated_by_attributes(small, tmp_path, command):
    train(compose([*small, f"run={tmp_path / 'run'}", "training.epochs=1"]))
    found = command("evaluate", tmp_path / "run", "--resamples", 0, "--by", "attributes", "--json", "-")
    summary = json.loads(found.output)["runs"][0]["summary"]
    assert summary["H-AP"] == pytest.approx(by_hand(read_run(tmp_path / "run")))


def test_steps_choose_the_batch_by_the_images_that_have_attributes(with_attributes):
    rows = np.arange(160)
    options = with_attributes(np.where(rows % 8 == 0, "red; round", ""))  # 20 images, 15 of them trained on
    result = train(compose([*options, "training.steps=7", "evaluation.every=0"]))
    assert result.steps == 7  # of 12 images, the most that are whole groups of four


def test_labels_may_be_unknown(shapes, small, tmp_path):
    rows = Manifest.read(shapes)
    path = tmp_path / "manifest.parquet"
    table = rows.table.drop(columns="item").assign(kind="")
    Manifest(table, levels=["kind"], root=rows.root).write(path)
    options = [*small, *BY_ATTRIBUTES, f"data.manifest={path}", f"run={tmp_path / 'run'}"]
    result = train(compose([*options, "evaluation.every=4"]))
    assert 0 < result.metrics["H-AP"] < 1
    assert np.isnan(result.metrics["AP/kind"])


@pytest.mark.parametrize(("queries", "gallery"), [("query", "gallery"), ("test", "test")])
def test_each_test_set_has_its_own_attributes(shapes, queries, gallery):
    """Two test sets, and a query that is not in its gallery: rows are matched by number."""
    rows = Manifest.read(shapes)
    number = np.arange(len(rows))
    split = np.where(number % 3 == 0, queries, gallery)
    sets = np.where(number % 2 == 0, "even", "odd")
    rows = Manifest(rows.table.assign(split=split, set=sets), levels=rows.levels, root=rows.root)
    vectors = np.random.default_rng(0).normal(size=(len(rows), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    has, _ = rows.attributes()
    found = evaluate_manifest(vectors, rows, relevance=AttributeRelevance(has))
    for name, result in zip(("even", "odd"), found.results, strict=True):
        asked = np.flatnonzero((split == queries) & (sets == name))
        searched = np.flatnonzero((split == gallery) & (sets == name))
        expected = [
            happier.graded_h_ap(
                jaccard(has[[query]], has[others])[:, np.argsort(-vectors[others] @ vectors[query])]
            )[0]
            for query in asked
            for others in [searched[searched != query]]
        ]
        np.testing.assert_allclose(result.per_query["H-AP"], expected)


def test_no_column_of_attributes(with_attributes):
    options = with_attributes(None)
    for more in ([], ["sampler=m_per_class"]):
        with pytest.raises(ManifestError, match="no column 'attributes'"):
            train(compose([*options, *more]))


def test_no_image_has_an_attribute(with_attributes, shapes, tmp_path):
    options = with_attributes("")
    with pytest.raises(OptionError, match="a batch of 32 needs as many images with attributes, got 0"):
        train(compose(options))
    with pytest.raises(ManifestError, match="the column 'attributes' is empty in the rows to train on"):
        train(compose([*options, "sampler=m_per_class"]))
    trained = Manifest.read(shapes).table["split"] == "train"
    options = with_attributes(np.where(trained, "red", ""))
    with pytest.raises(InputError, match="no image has any attribute"):
        train(compose([*options, "evaluation.every=1", f"run={tmp_path / 'other'}"]))


def test_attributes_are_for_a_loss_that_takes_them(small):
    with pytest.raises(ConfigError, match="sampler=attributes is for loss=hap_attributes; loss=happier"):
        compose([*small, "sampler=attributes"])


def test_a_run_does_not_go_on_with_other_attributes(with_attributes, shapes):
    whole = Manifest.read(shapes).table["attributes"]
    options = [*with_attributes(whole), "sampler=m_per_class", "training.checkpoint_steps=3"]
    assert kill_at(["4:step"], options) == [-9]
    with_attributes(whole.str.replace("dark", "light"))
    with pytest.raises(CheckpointError, match="images or labels are not those"):
        train(compose(options))
