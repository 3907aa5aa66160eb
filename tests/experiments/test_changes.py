"""Changes of HAPPIER, one at a time, and their tables."""

import numpy as np
import pytest

from experiments import changes, results, tables
from experiments.results import RunResult, add_result
from happier.errors import ConfigError
from happier.training.compose import compose

ROWS = [(name, row) for name in changes.change_names() for row in changes.read_changes(name)]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_every_change_can_be_composed(name, row):
    run = changes.read_changes(name)[row][0]
    config = compose([*run.settings, "data.manifest=x", "run=x"])
    assert config.loss["name"] == run.loss
    keys = [text.split("=")[0] for text in run.settings]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", changes.change_names())
def test_every_row_changes_something(name):
    runs = [run for of_row in changes.read_changes(name).values() for run in of_row]
    assert len(set(runs)) == len(runs)


def test_an_unknown_study_is_named():
    with pytest.raises(ConfigError, match=r"no study 'alhpa' \(did you mean 'alpha'\?\)"):
        changes.read_changes("alhpa")


def test_nothing_is_changed_before_happier_is_tuned(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    with pytest.raises(ConfigError, match="HAPPIER is not tuned: python -m experiments tuned features"):
        changes.read_changes("alpha")


def test_the_table_has_the_gain_of_each_seed(tmp_path, monkeypatch):
    chosen, sigmoid, larger = "as it was chosen", "a sigmoid", "512 dimensions"
    runs = {row: changes.read_changes("candidates")[row][:2] for row in (chosen, sigmoid, larger)}
    monkeypatch.setattr(tables, "read_changes", lambda name: runs)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for row, values in {chosen: (0.50, 0.52), sigmoid: (0.53, 0.53)}.items():
        for run, value in zip(runs[row], values, strict=True):
            add_result(run, RunResult({"H-AP": value}, {}, np.empty(0), {"cpu_seconds": 9.0}))
    assert tables.candidate_table()[1:] == [
        [chosen, "2", "51.0 ± 1.4", "", "", "9"],
        [sigmoid, "2", "53.0 ± 0.0", "+2.0", "+1.0 to +3.0", "9"],
    ]
