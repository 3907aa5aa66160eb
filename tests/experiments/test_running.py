"""From studies to a page, with runs of seconds."""

import os

import numpy as np
import pytest
import yaml
from shapes import make_shapes

from experiments import results, running, study, tables
from happier.errors import ConfigError
from happier.evaluation.protocol import evaluate_manifest
from happier.runs import read_run

METHODS = {"HAPPIER": ["loss=happier"], "NSM": {"overrides": ["loss=nsm"], "seeds": [0]}}
TINY = ["model=tiny", "transform.size=16", "training.epochs=1", "training.batch_size=16"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with two studies that were run, on drawn shapes that stand where the emoji would."""
    folder = tmp_path_factory.mktemp("experiments")
    make_shapes(folder / "cache" / "emoji-64")
    (folder / "studies").mkdir()
    common = {"about": "a test", "data": "emoji", "base": TINY}
    swept = {"HAPPIER": ["loss=happier", "optimizer.lr=1e-3,2e-3"], "NSM": ["loss=nsm", "optimizer.lr=1e-3"]}
    studies = {
        "tiny": common | {"seeds": [0, 1], "methods": METHODS},
        "tiny_rates": common | {"seeds": [0], "val": 0.25, "methods": swept},
    }
    for name, content in studies.items():
        (folder / "studies" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAPPIER_CACHE", str(folder / "cache"))
        for name, value in {"STUDIES": "studies", "RATES": "rates.yaml"}.items():
            patch.setattr(study, name, folder / value)
        patch.setattr(results, "RESULTS", folder / "results")
        with pytest.raises(ConfigError, match="has not run happier"):
            study.choose_rates(["tiny_rates"])
        with pytest.raises(ConfigError, match="no learning rate for happier on emoji"):
            running.run_job(study.read_study("tiny").jobs[0], runs=folder / "runs")
        run("tiny_rates", folder)
        study.choose_rates(["tiny_rates"])
        run("tiny", folder)
        yield folder


def stored_tables(folder):
    return {file.name: file.read_bytes() for file in (folder / "results").glob("*.parquet")}


def run(name, folder):
    for job in study.read_study(name).jobs:
        running.run_job(job, runs=folder / "runs")


def test_the_best_rate_is_chosen(tiny):
    scores = {
        (job.loss, result.details["learning_rate"]): result.summary["H-AP"]
        for job in study.read_study("tiny_rates").jobs
        for result in [results.find_result(job)]
    }
    assert len(scores) == 3
    # The first, unless the second is better by more than what counts as level.
    first, second = scores["happier", 1e-3], scores["happier", 2e-3]
    best = "0.002" if second - first > study.LEVEL else "0.001"
    rates = {"happier": [f"optimizer.lr={best}"], "nsm": ["optimizer.lr=0.001"]}
    assert study.read_rates() == {"emoji": rates}


@pytest.mark.parametrize(("gain", "chosen"), [(0.004, "0.001"), (0.02, "0.002")])
def test_rates_that_are_level_leave_the_first(tiny, tmp_path, monkeypatch, gain, chosen):
    jobs = [job for job in study.read_study("tiny_rates").jobs if job.loss == "happier"]
    monkeypatch.setattr(study, "RATES", tmp_path / "rates.yaml")
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for job, value in zip(study.read_study("tiny_rates").jobs, (0.5, 0.5 + gain, 0.3), strict=True):
        results.add_result(job, results.RunResult({"H-AP": value}, {}, np.zeros(1), {}))
    assert len(jobs) == 2
    assert study.choose_rates(["tiny_rates"])["emoji"]["happier"] == [f"optimizer.lr={chosen}"]


def test_a_method_that_names_a_rate_takes_no_tuned_one(tiny):
    named = study.read_study("tiny_rates").methods["NSM"][0]
    tuned = study.read_study("tiny").methods["NSM"][0]
    assert [text for text in named.overrides if "optimizer" in text] == ["optimizer.lr=0.001"]
    assert [text for text in tuned.overrides if "optimizer" in text] == ["optimizer.lr=0.001"]


def test_weights_that_are_not_there_are_trained_again(tiny, capfd):
    job = study.read_study("tiny").methods["NSM"][0]
    before, environment = stored_tables(tiny), dict(os.environ)
    found = running.run_directories({"NSM": job}, workers=1, runs=tiny / "anew")["NSM"]
    assert (found / "model.json").is_file()
    assert not (found / "checkpoint").exists()
    assert stored_tables(tiny) == before, "figures that stand are left as they are"
    assert dict(os.environ) == environment, "one thread is for the workers, not for whoever asks"
    assert "1/1  emoji nsm" in capfd.readouterr().out
    running.run_directories({"NSM": job}, workers=1, runs=tiny / "anew")
    assert not capfd.readouterr().out, "trained once"


def test_a_page_is_filled(tiny):
    page = tiny / "page.md"
    page.write_text("before\n<!-- table: tiny hierarchical -->\n<!-- end of table -->\nafter\n")
    assert tables.fill_page(page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    figures = tables.read_figures("tiny")
    values = figures["HAPPIER"].values("H-AP")
    assert len(values) == 2
    cell = f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"
    assert f"| HAPPIER | 2 | {cell} |" in text.replace("**", "")
    best = max(figures, key=lambda name: figures[name].mean("H-AP"))
    assert f"| {best} | {len(figures[best].jobs)} | **" in text
    assert not tables.fill_page(page), "filled twice, the page must stay as it is"


def test_figures_are_those_of_the_library(tiny):
    job = study.read_study("tiny").methods["NSM"][0]
    run = read_run(tiny / "runs" / job.folder / job.name, split="test")
    expected = evaluate_manifest(run.vectors, run.manifest, split="test").results[0]
    stored = results.find_result(job)
    assert stored.summary["H-AP"] == pytest.approx(expected.summary["H-AP"], abs=1e-6)
    per_query = tables.Figures("NSM", (job,)).per_query
    np.testing.assert_allclose(per_query[0], expected.per_query["H-AP"], atol=1e-6)
    assert stored.dyml.keys() >= {"mAP", "ASI", "R@1", "mAP/kind", "mAP/item"}


def test_a_run_that_is_done_is_not_run_again(tiny, capsys):
    jobs = study.read_study("tiny_rates").jobs
    before = stored_tables(tiny)
    running.run_jobs(jobs, workers=1, runs=tiny / "elsewhere")
    assert "3 of 3 runs are done" in capsys.readouterr().out
    assert stored_tables(tiny) == before
    assert not (tiny / "elsewhere").exists()
