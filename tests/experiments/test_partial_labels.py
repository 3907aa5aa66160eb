"""Which fine labels are removed, and what the table compares."""

import pandas as pd
import pytest

from experiments.partial_labels import REMOVED, PartialRun, partial_runs, partly_labelled
from experiments.tables import partial_figures, partial_table
from happier.data import Manifest

ROWS = [(f"{at}.png", "train" if at < 40 else "test", f"g{at % 2}", f"e{at % 8}") for at in range(60)]
TABLE = pd.DataFrame(ROWS, columns=["path", "split", "group", "emoji"])
WHOLE = Manifest(TABLE, levels=("group", "emoji"), root=".")


@pytest.mark.parametrize("removed", [0.0, 0.25, 0.9])
def test_the_same_images_lose_their_label_or_are_left_out(removed):
    kept, left = (
        partly_labelled(WHOLE, PartialRun("features", removed, one, seed=3)).table for one in (True, False)
    )
    poor = kept[kept["emoji"] == ""]
    assert len(poor) == round(40 * removed)
    assert set(poor["split"]) <= {"train"}
    assert list(kept["path"]) == [row[0] for row in ROWS]
    assert list(kept["group"]) == [row[2] for row in ROWS]
    assert set(left["path"]) == set(kept["path"]) - set(poor["path"])


def test_every_share_is_run_both_ways_but_none_removed():
    runs = partial_runs("features", (0,))
    assert len(runs) == 2 * len(REMOVED) - 1
    assert len({run.overrides for run in runs}) == len(runs)


def test_the_table_has_a_row_for_each_share():
    head, *rows = partial_table("features")
    assert [row[0] for row in rows] == [f"{share:.0%}" for share in REMOVED]
    figures = partial_figures("features")
    assert figures[True][0.0].jobs == figures[False][0.0].jobs
    assert rows[-1][2].startswith(f"{100 * figures[True][0.9].mean('H-AP'):.1f}")
    assert {len(row) for row in rows} == {len(head)}
