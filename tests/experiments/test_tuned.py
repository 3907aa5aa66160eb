"""The protocols: the same effort for every method, then several seeds of what is chosen."""

import shutil
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import yaml
from shapes import make_shapes

from experiments import results, running, tables, tuned
from happier.errors import ConfigError
from happier.evaluation.protocol import evaluate_manifest
from happier.losses import LOSSES
from happier.runs import read_run
from happier.storage.lock import locked
from happier.training.compose import compose

PROTOCOL = {
    "configurations": 2,
    "seeds": [0, 1],
    "val": 0.25,
    "reference": "HAPPIER",
    "base": ["recipe=folder_head", "model.dim=8", "model.hidden=8", "training.batch_size=16"],
    "sets": {"tiny": {"data": "emoji", "size": 64, "model": "tiny", "base": ["training.steps=3"]}},
    "space": {"optimizer.lr": [1e-3, 1e-2]},
    "proxies": {"optimizer.proxies.lr": [0.01, 0.1]},
    "rounds": [
        {"HAPPIER": {"loss": "happier", "space": {"loss.tau": [0.01, 0.1]}, "proxies": True}},
        {"Smooth-AP": {"loss": "smooth_ap", "space": {"loss.tau": [0.01, 0.1]}}},
    ],
}


@contextmanager
def as_protocol(folder):
    """Let the protocol and the results of a folder stand for the real ones; yields the runs that are done."""
    done = []

    def in_this_process(task, jobs, workers):
        for job in jobs:
            done.append(job)
            print(task(job))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAPPIER_CACHE", str(folder / "cache"))
        patch.setattr(tuned, "PROTOCOLS", folder / "protocols.yaml")
        patch.setattr(tuned, "side_by_side", in_this_process)
        patch.setattr(results, "RESULTS", folder / "results")
        yield done


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study that was run, on drawn shapes that stand where the emoji would, and its runs."""
    folder = tmp_path_factory.mktemp("features")
    make_shapes(folder / "cache" / "emoji-64")
    (folder / "protocols.yaml").write_text(yaml.safe_dump({"features": PROTOCOL}))
    with as_protocol(folder) as done:
        tuned.run_protocol("features", "tiny", workers=1, runs=folder / "runs")
    return folder, done


@pytest.fixture
def tiny(study):
    """The same, standing for the real one."""
    with as_protocol(study[0]):
        yield study


def test_every_method_is_tuned_then_run_with_every_seed(tiny):
    _, done = tiny
    assert [(run.split, run.seed) for run in done] == 2 * [("val", 0), ("val", 0), ("test", 0), ("test", 1)]
    for method in (one for methods in tuned.read_methods("features", "tiny") for one in methods):
        values = [results.find_result(run).summary["H-AP"] for run in method.tuning]
        assert method.final[0].settings == method.tuning[int(np.argmax(values))].settings
        assert set(method.results) == {0, 1}


def test_what_has_a_result_is_not_run_again(tiny):
    folder, _ = tiny
    with as_protocol(folder) as done:
        tuned.run_protocol("features", "tiny", workers=1, runs=folder / "runs")
    assert not done
    assert not [path for path in (folder / "runs" / "features-tiny").rglob("*") if path.is_file()]


def test_a_run_that_another_process_trains_is_left_to_it(tiny, tmp_path):
    run = tuned.TunedRun(
        "features", "tiny", "val", tuned.read_methods("features", "tiny")[1][0].tuning[0].settings, seed=7
    )
    shutil.copytree(tiny[0] / "runs" / "features", tmp_path / "features")
    held, free = threading.Event(), threading.Event()

    def other():
        with locked(run.directory(tmp_path)):
            held.set()
            free.wait()

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    assert tuned.run_one(run, runs=tmp_path).endswith("left to another process")
    free.set()
    thread.join()
    assert results.find_result(run) is None


def test_the_classes_make_up_the_mean(tiny):
    """What is stored of each class gives the H-AP over the queries."""
    for one in tables.tuned_figures("features", "tiny").values():
        for seed, values in one.per_query.items():
            assert len(values) == 40  # 8 test classes of 5 images
            assert values.mean() == pytest.approx(tuned.find_result(one.jobs[seed]).summary["H-AP"], abs=1e-5)


def test_figures_are_those_of_the_library(tiny, tmp_path):
    run = tuned.read_methods("features", "tiny")[0][0].final[0]
    shutil.copytree(tiny[0] / "runs" / "features", tmp_path / "features")
    trained = read_run(tuned.train_tuned(run, tmp_path), split="test")
    expected = evaluate_manifest(trained.vectors, trained.manifest, split="test").results[0]
    stored = results.find_result(run)
    assert stored.summary["H-AP"] == pytest.approx(expected.summary["H-AP"], abs=1e-6)
    means, numbers = running.class_means(expected.per_query["H-AP"], expected.classes)
    np.testing.assert_allclose(stored.h_ap, means, atol=1e-6)
    assert results.query_classes(run.folder).tolist() == numbers.tolist()
    assert stored.dyml.keys() >= {"mAP", "ASI", "R@1", "mAP/kind", "mAP/item"}


def test_a_page_is_filled(tiny, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: features-tiny hierarchical -->\n<!-- end of table -->\nafter\n")
    assert tables.fill_page(page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    figures = tables.tuned_figures("features", "tiny")
    values = figures["HAPPIER"].values("H-AP")
    cell = f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"
    assert f"| HAPPIER | 2 | {cell} |" in text.replace("**", "")
    best = max(figures, key=lambda name: figures[name].mean("H-AP"))
    assert f"| {best} | 2 | **" in text
    assert not tables.fill_page(page), "filled twice, the page must stay as it is"


def test_tables(tiny):
    table = tables.hierarchical_table(tables.tuned_figures("features", "tiny"), "HAPPIER")
    assert [row[:2] for row in table[1:]] == [["HAPPIER", "2"], ["Smooth-AP", "2"]]
    assert table[1][-1] == ""
    assert " to " in table[2][-1]
    tuning = tables.tuning_table("features", "tiny")
    assert [row[1] for row in tuning[1:]] == ["2 of 2", "2 of 2"]
    assert tables.progress_table("features")[1:] == [["tiny", "4 of 4", "4 of 4"]]


def test_without_results(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    assert tables.tuned_figures("features", "tiny") == {}
    assert tables.tuning_table("features", "tiny")[1][1] == "0 of 2"
    method = tuned.read_methods("features", "tiny")[0][0]
    assert method.final == (), "nothing is chosen before every configuration was tried"


def test_an_unknown_set_protocol_or_method_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no set 'emojis' \(did you mean 'emoji'\?\)"):
        tuned.read_methods("features", "emojis")
    with pytest.raises(ConfigError, match=r"no protocol 'feature' \(did you mean 'features'\?\)"):
        tuned.read_methods("feature", "emoji")
    with pytest.raises(ConfigError, match=r"features has no method 'HAPIER' \(did you mean 'HAPPIER'"):
        tuned.run_protocol("features", "emoji", workers=1, runs=tmp_path, methods=["HAPIER"])


def test_draws():
    ranges = {"a": [1e-3, 1e-1], "b": [0, 0.3, 0.5]}
    drawn = tuned.draw(ranges, 200, seed=1)
    assert drawn == tuned.draw(ranges, 200, seed=1)
    values = [dict(text.split("=") for text in one) for one in drawn]
    logs = np.log10([float(one["a"]) for one in values])
    assert -3 <= logs.min() < -2.9 < -1.1 < logs.max() <= -1
    assert abs(logs.mean() + 2) < 0.15
    assert {one["b"] for one in values} == {"0", "0.3", "0.5"}


def test_class_means():
    means, classes = running.class_means(np.array([0.5, 1.0, np.nan, 0.25]), np.array([7, 7, 2, 2]))
    assert means.tolist() == [0.25, 0.75]
    assert classes.tolist() == [1, 1, 0]


SETS = [
    (protocol, set_name)
    for protocol in (tuned.FEATURES, tuned.FINE_TUNING)
    for set_name in tuned.read_protocol(protocol)["sets"]
]


@pytest.mark.parametrize(("protocol", "set_name"), SETS)
def test_every_run_of_the_protocol_can_be_composed(protocol, set_name):
    configurations = tuned.read_protocol(protocol)["configurations"]
    methods = [one for methods in tuned.read_methods(protocol, set_name) for one in methods]
    assert {len(one.tuning) for one in methods} == {configurations}
    for method in methods if set_name == "emoji" else methods[:1]:
        config = compose([*method.tuning[1].settings, "data.manifest=x", "run=x"])
        assert config.model.train == ("head" if protocol == tuned.FEATURES else "all")
        assert protocol == tuned.FEATURES or config.model.freeze_batch_norm
        assert LOSSES[config.loss["name"]]
    assert len({run for one in methods for run in one.tuning}) == len(methods) * configurations
