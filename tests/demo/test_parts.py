"""The parts of the demo that need no training."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from happier.demo.eta import Clock
from happier.demo.run import BUDGETS, LOSSES, default_folder, summary_lines, training_seconds
from happier.demo.training import Job, threads_of_each, train_together
from happier.errors import TrainingError


class Told:
    """A clock that is set by hand, and what was told at each time."""

    def __init__(self):
        self.time = 100.0
        self.moments = []

    def now(self):
        return self.time

    def tell(self, moment):
        self.moments.append(moment)

    @property
    def last(self):
        return self.moments[-1]


def test_the_guess_gives_way_to_the_pace():
    told = Told()
    clock = Clock({"images": 60.0, "train": 400.0, "report": 40.0}, told.tell, told.now)
    clock.start("images", "getting")
    assert told.last.seconds_left == 500
    told.time += 5
    clock.start("train", "training")  # the images were there
    assert told.last.seconds_left == 440
    told.time += 100
    clock.update(0.5, "training")  # twice as fast as guessed
    assert told.last.seconds_left == pytest.approx(100 + 40)
    assert told.last.fraction == pytest.approx(105 / 245)
    told.time += 100
    clock.start("report", "reporting")
    told.time += 20
    clock.update(1.0, "reporting")
    assert told.last.seconds_left == pytest.approx(0)
    assert told.last.fraction == pytest.approx(1)


def test_what_was_done_before_does_not_count_as_pace():
    told = Told()
    clock = Clock({"train": 400.0}, told.tell, told.now)
    clock.start("train", "training", fraction=0.5)
    assert told.last.seconds_left == 200
    told.time += 50
    clock.update(0.75, "training")
    assert told.last.seconds_left == pytest.approx(50)


def test_early_steps_hardly_move_the_estimate():
    told = Told()
    clock = Clock({"train": 400.0}, told.tell, told.now)
    clock.start("train", "training")
    told.time += 60  # starting up took a minute
    clock.update(0.001, "training")
    assert told.last.seconds_left < 1100


def test_each_demo_has_its_own_folder():
    folders = {
        default_folder(BUDGETS["default"], None, 0, None),
        default_folder(BUDGETS["quick"], None, 0, None),
        default_folder(BUDGETS["full"], None, 0, None),
        default_folder(BUDGETS["default"], None, 1, None),
        default_folder(BUDGETS["default"], Path("photos"), 0, None),
        default_folder(BUDGETS["default"], None, 0, 3),
    }
    assert len(folders) == 6
    assert Path("runs/demo") in folders


def test_the_guess_counts_models_and_cores():
    seconds = {cores: training_seconds(BUDGETS["default"], len(LOSSES), cores) for cores in (1, 2, 3, 8)}
    assert len(LOSSES) == 3
    assert seconds[1] == pytest.approx(3 * seconds[3])
    assert seconds[3] == seconds[8]
    # The third model comes after the first two, with both cores to itself.
    assert 1.5 * seconds[3] <= seconds[2] < 2 * seconds[3]


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("jobs", [0, 1, 2, 3, 4, 5])
def test_no_core_is_idle_or_asked_for_twice(jobs, cores):
    threads = threads_of_each(jobs, cores)
    assert len(threads) == jobs
    for start in range(0, jobs, cores):
        wave = threads[start : start + cores]
        assert cores - len(wave) < sum(wave) <= cores


def written(folder, names):
    """The part of ``data.json`` that the summary reads."""
    rows = {"H-AP": 0.4, "AP/kind": 0.5, "AP/thing": 0.3, "R@1/thing": 0.6}
    content = {
        "models": [{"name": name} for name in names],
        "data": {"levels": ["kind", "thing"], "queries": 1200, "classes": [2, 34]},
        "severity": {
            "ks": [1, 100],
            "shares": [
                [[0.1, 0.5 - place / 10], [0.4, 0.3], [0.5, 0.2 + place / 10]] for place in range(len(names))
            ],
        },
        "metrics": [
            {
                "key": key,
                "values": [{"mean": mean + place / 100} for place in range(len(names))],
                "difference": {"low": -0.012, "high": -0.008},
            }
            for key, mean in rows.items()
        ],
    }
    (folder / "data.json").write_text(json.dumps(content))
    return folder / "index.html"


def test_the_summary_shows_all_three_and_the_difference_of_two(tmp_path):
    lines = summary_lines(written(tmp_path, ["HAPPIER", "NSM", "HAPPIER_S"]))
    assert len(lines) == 6
    assert lines[0].split("  ")[-1] == "HAPPIER - NSM"
    assert lines[0].split()[:3] == ["HAPPIER", "NSM", "HAPPIER_S"]
    assert lines[1].split() == ["H-AP", "40.0", "41.0", "42.0", "-1.0", "(-1.2", "to", "-0.8)"]
    assert lines[4].split() == ["R@1,", "thing", "60.0", "61.0", "62.0", "-1.0"]
    assert lines[5] == (
        "Of the first 100 answers, of the right kind: HAPPIER 50%, NSM 60%, HAPPIER_S 70% "
        "(1,200 queries of 34 classes)."
    )
    # Every figure ends below its name.
    for name, figure in (("HAPPIER", "40.0"), ("NSM", "41.0"), ("HAPPIER_S", "42.0")):
        ends = [lines[0].index(f"{name}  ") + len(name), lines[1].index(figure) + len(figure)]
        assert ends[0] == ends[1]


def job(folder, *overrides, steps=100):
    return Job("nsm", folder, overrides, steps)


def test_steps_are_read_from_the_run(tmp_path):
    one = job(tmp_path)
    assert one.steps_done() == 0
    lines = [json.dumps({"kind": "train", "step": step, "note": "x" * 200}) for step in range(0, 80, 2)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"kind": "tra')
    assert one.steps_done() == 78
    (tmp_path / "model.json").write_text("{}")
    assert one.is_done
    assert one.steps_done() == 100


def test_a_failed_training_tells_its_last_line(tmp_path):
    with pytest.raises(TrainingError, match=r"training nsm failed: .*unknown key trainning\.epochs"):
        train_together(
            [job(tmp_path / "nsm", "recipe=small", "data.manifest=none.csv", "trainning.epochs=2")],
            lambda done: None,
            log_folder=tmp_path / "logs",
        )


def test_nothing_is_started_for_what_is_done(tmp_path):
    (tmp_path / "model.json").write_text("{}")
    train_together([job(tmp_path, "this=would fail")], lambda done: None, log_folder=tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


def happier(*words, folder, **environment):
    return subprocess.run(
        [sys.executable, "-m", "happier", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_network_the_way_out_is_named(tmp_path):
    # A registry that nobody serves, asked once.
    found = happier(
        "demo",
        folder=tmp_path,
        HAPPIER_CACHE=str(tmp_path / "cache"),
        npm_config_registry="http://127.0.0.1:9/",
        npm_config_fetch_retries="0",
    )
    assert found.returncode == 2
    assert "happier demo --data FOLDER" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_is_none(tmp_path):
    found = happier("demo", "--data", "nothing", folder=tmp_path)
    assert found.returncode == 2
    assert "neither a folder of images nor a manifest" in found.stderr
