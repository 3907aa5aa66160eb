"""Changes of HAPPIER that might make it better, and their table."""

import numpy as np
import pytest

from experiments import candidates, results, tables
from experiments.results import RunResult, add_result, find_result
from happier.training.compose import compose


@pytest.mark.parametrize("change", candidates.CHANGES)
def test_every_change_can_be_composed_and_changes_something(change):
    before, after = (candidates.candidate_runs(name, (0,))[0] for name in (candidates.AS_CHOSEN, change))
    assert compose([*after.settings, "data.manifest=x", "run=x"]).loss["name"] == "happier"
    assert (after == before) == (change == candidates.AS_CHOSEN)
    assert after.folder == "candidates-emoji"
    keys = [text.split("=")[0] for text in after.settings]
    assert len(keys) == len(set(keys))


def test_the_table_has_the_gain_of_each_seed(tmp_path, monkeypatch):
    runs = {
        name: candidates.candidate_runs(name, (0, 1))
        for name in (candidates.AS_CHOSEN, "a sigmoid", "512 dimensions")
    }
    monkeypatch.setattr(tables, "candidate_runs", lambda name: runs.get(name, []))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for (name, seed), value in {
        (candidates.AS_CHOSEN, 0): 0.50,
        (candidates.AS_CHOSEN, 1): 0.52,
        ("a sigmoid", 0): 0.53,
        ("a sigmoid", 1): 0.53,
    }.items():
        add_result(runs[name][seed], RunResult({"H-AP": value}, {}, np.empty(0), {"cpu_seconds": 9.0}))
    assert find_result(runs["512 dimensions"][0]) is None
    assert tables.candidate_table()[1:] == [
        [candidates.AS_CHOSEN, "2", "51.0 ± 1.4", "", "", "9"],
        ["a sigmoid", "2", "53.0 ± 0.0", "+2.0", "+1.0 to +3.0", "9"],
    ]
