"""How the data of the study are changed."""

import pandas as pd
import pytest

from experiments.hierarchy_gain import CHANGES, LOSSES, Change, changed, gain_runs
from happier.data import Manifest

ROWS = [
    (f"{at}.png", "train" if at % 20 < 10 else "test", f"g{at % 20 % 2}", f"s{at % 20 % 6}", f"e{at % 20}")
    for at in range(100)
]
TABLE = pd.DataFrame(ROWS, columns=["path", "split", "group", "subgroup", "emoji"])
WHOLE = Manifest(TABLE, levels=("group", "subgroup", "emoji"), root=".")


def _places(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop_duplicates("emoji").set_index("emoji")[["group", "subgroup"]]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_classes_move_and_subgroups_keep_their_sizes(share):
    found = changed(WHOLE, Change(moved=share), seed=1).table
    before, after = _places(WHOLE.table), _places(found)
    assert (found.groupby("emoji")["subgroup"].nunique() == 1).all()
    assert sorted(after["subgroup"]) == sorted(before["subgroup"])
    assert set(map(tuple, after.to_numpy())) <= set(map(tuple, before.to_numpy()))
    moved = (after.loc[before.index] != before).any(axis=1).sum()
    assert moved == 0 if share == 0 else 0 < moved <= share * 20
    assert list(found["path"]) == list(WHOLE.table["path"])


def test_only_training_images_become_fewer():
    found = changed(WHOLE, Change(images=2), seed=0).table
    counts = found.groupby(["split", "emoji"]).size()
    assert set(counts["train"]) == {2}
    assert set(counts["test"]) == {5}


def test_each_change_is_run_with_both_losses():
    runs = gain_runs((0, 1))
    assert len(runs) == 2 * len(CHANGES) * len(LOSSES)
    assert len({(run.overrides, run.seed) for run in runs}) == len(runs)
    assert len({str(change) for change in CHANGES}) == len(CHANGES)
