"""Figures that `happier evaluate` stored are read again only where they are of the same inputs."""

from dataclasses import replace

import numpy as np
import pytest

from happier.evaluation import kernel_engine
from happier.evaluation.inputs import Vectors
from happier.evaluation.options import EvaluationOptions
from happier.relevance import HierarchyRelevance
from happier.report import ReportOptions, write_report
from happier.runs import RunDirectory
from happier.runs.comparison import compare_runs, store
from happier.runs.stored_evaluation import evaluate_run

OPTIONS = EvaluationOptions()
FAST = ReportOptions(resamples=20, figures=False)


@pytest.fixture
def run(runs, tmp_path):
    """A run of `happier train`, as far as an evaluation is concerned."""
    RunDirectory(tmp_path).write_config("loss: {name: nsm}\n")
    return replace(runs[0], directory=tmp_path, config={"loss": {"name": "nsm"}})


@pytest.fixture
def count(monkeypatch):
    """How often a gallery is ranked, and how often vectors are checked and hashed."""
    counts = {"ranked": 0, "prepared": 0}
    tally, init = kernel_engine.tally, Vectors.__init__

    def counted_tally(*arguments):
        counts["ranked"] += 1
        return tally(*arguments)

    def counted_init(self, *values, **options):
        counts["prepared"] += 1
        init(self, *values, **options)

    monkeypatch.setattr(kernel_engine, "tally", counted_tally)
    monkeypatch.setattr(Vectors, "__init__", counted_init)
    return counts


def test_a_report_prepares_each_model_once(runs, tmp_path, count):
    write_report(runs, tmp_path / "report", options=FAST)
    assert count == {"ranked": 2, "prepared": 2}


def test_a_report_reads_what_evaluate_stored(run, tmp_path, count):
    stored = compare_runs([run], OPTIONS, resamples=20)
    store(stored)
    count["ranked"] = 0
    report = write_report([run], tmp_path / "report", options=FAST)
    assert count["ranked"] == 0
    assert report.metrics == stored.rows[0]


def test_what_comes_back_is_what_was_stored(run):
    fresh = compare_runs([run], OPTIONS, resamples=0)
    store(fresh)
    again = evaluate_run(run, OPTIONS, reuse=True)
    assert again.summary() == pytest.approx(fresh.evaluations[0].summary(), nan_ok=True, abs=0, rel=0)
    for name, values in fresh.evaluations[0].results[0].per_query.items():
        np.testing.assert_array_equal(again.results[0].per_query[name], values)
    assert again.results[0].schema == fresh.evaluations[0].results[0].schema


def other_labels(run, options):
    table = run.manifest.table.assign(item=run.manifest.table["item"].to_numpy()[::-1])
    kind = type(run.manifest)
    return replace(run, manifest=kind(table, levels=run.manifest.levels, root=run.manifest.root)), options


def other_relevance(run, options):
    return run, replace(options, relevance=HierarchyRelevance(alpha=3))


def other_ties(run, options):
    return run, replace(options, ties="best")


def other_ks(run, options):
    return run, replace(options, ks=(1, 5))


@pytest.mark.parametrize("change", [other_labels, other_relevance, other_ties, other_ks])
def test_anything_else_is_computed_anew(run, count, change):
    store(compare_runs([run], OPTIONS, resamples=0))
    count["ranked"] = 0
    evaluate_run(*change(run, OPTIONS), reuse=True)
    assert count["ranked"] == 1


def test_other_vectors_are_computed_anew(run, count):
    store(compare_runs([run], OPTIONS, resamples=0))
    changed = np.array(run.vectors)
    changed[7, 3] = np.nextafter(changed[7, 3], np.float32(1))
    count["ranked"] = 0
    evaluate_run(replace(run, vectors=changed), OPTIONS, reuse=True)
    assert count["ranked"] == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "text", "gone", "summary", "digit"])
def test_damaged_files_are_computed_anew(run, count, damage):
    fresh = compare_runs([run], OPTIONS, resamples=0)
    store(fresh)
    directory = RunDirectory(run.directory)
    content = bytearray(directory.per_query_file.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        directory.per_query_file.write_bytes(content)
    elif damage == "cut":
        directory.per_query_file.write_bytes(content[:100])
    elif damage == "text":
        directory.per_query_file.write_text("text")
    elif damage == "gone":
        directory.per_query_file.unlink()
    elif damage == "digit":
        text = directory.summary_file.read_text()
        changed = text.replace('"without_positives": 0', '"without_positives": 4')
        assert changed != text
        directory.summary_file.write_text(changed)
    else:
        directory.summary_file.write_text('{"stored": 3}')
    count["ranked"] = 0
    again = evaluate_run(run, OPTIONS, reuse=True)
    assert count["ranked"] == 1
    assert again.summary() == pytest.approx(fresh.evaluations[0].summary(), nan_ok=True)


def test_vectors_without_a_run_store_nothing(runs, world):
    before = sorted(world.iterdir())
    store(compare_runs(runs, OPTIONS, resamples=0))
    assert sorted(world.iterdir()) == before
