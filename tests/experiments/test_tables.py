"""Differences between methods, over seeds and classes."""

import re
from pathlib import Path

import numpy as np
import pytest

from experiments import tables
from experiments.results import query_classes
from experiments.tuned import find_method
from happier.evaluation import Difference
from happier.losses import LOSSES

DOCS = Path(__file__).parents[2] / "docs"
GENERATOR = np.random.default_rng(0)
CLASSES = np.repeat(np.arange(40), 10)
REFERENCE = {seed: GENERATOR.random(400) for seed in range(3)}


@pytest.fixture(autouse=True)
def known_classes(monkeypatch):
    monkeypatch.setattr(tables, "query_classes", lambda folder: CLASSES)


def figures(name, per_query):
    job = find_method("features", "emoji", "HAPPIER").final[0]
    made = tables.Figures(name, (job,))
    made.__dict__["per_query"] = per_query
    return made


def cells(**methods):
    table = {"HAPPIER": figures("HAPPIER", REFERENCE)}
    table |= {name: figures(name, values) for name, values in methods.items()}
    return tables.against(table, "HAPPIER")


def test_the_same_gap_everywhere_is_certain():
    assert cells(one={seed: values + 0.1 for seed, values in REFERENCE.items()}) == [
        "",
        "+10.0 (+10.0 to +10.0) *",
    ]


def test_one_seed_has_no_interval_and_a_mark():
    # Only seeds that both have count.
    assert cells(one={1: REFERENCE[1] + 0.1, 7: REFERENCE[1] + 5}) == ["", "+10.0 †"]
    assert cells(one={7: REFERENCE[1]}) == ["", ""]


def test_seeds_that_disagree_leave_nothing_certain():
    gaps = zip(REFERENCE.items(), (-0.1, 0, 0.1), strict=True)
    assert cells(one={seed: values + gap for (seed, values), gap in gaps})[1] == "+0.0 (-24.8 to +24.8)"


def test_several_rows_need_more_than_one():
    # The same gap, p of about 0.03: alone it is a star, among ten it is none.
    gaps = zip(REFERENCE.items(), (0.04, 0.05, 0.08), strict=True)
    one = {seed: values + gap for (seed, values), gap in gaps}
    assert cells(one=one)[1].endswith("*")
    assert not any(cell.endswith("*") for cell in cells(**{f"method {i}": one for i in range(10)}))


def test_a_difference_without_an_interval_or_without_seeds():
    assert tables._difference_cell(None, np.nan) == ""
    assert tables._difference_cell(Difference(0.012, -0.001, 0.025, 0.2), 0.2) == "+1.2 (-0.1 to +2.5)"


# Drawn at 192 px, one image fewer of the emoji differs from all others than at 64 px.
@pytest.mark.parametrize(
    ("folder", "queries", "classes"), [("features-emoji", 4570, 926), ("features-wesnoth", 1940, 105)]
)
def test_the_classes_of_every_query_are_stored(folder, queries, classes):
    stored = query_classes(folder)
    assert (len(stored), len(np.unique(stored))) == (queries, classes)
    assert query_classes("nothing") is None


def table(name):
    """Rows of a table of docs/results.md, by method: their figures by column, without the spread."""
    text = (DOCS / "results.md").read_text().partition(f"<!-- table: {name} -->")[2].partition("<!-- end")[0]
    header, _, *rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {
        cells[0]: {column: cell.strip("*").split(" ")[0] for column, cell in zip(header, cells, strict=False)}
        for cells in rows
    }


def test_figures_of_the_guide_to_losses_are_those_of_the_studies():
    columns = [
        (table(f"{protocol}-emoji {kind}"), column)
        for protocol in ("features", "fine-tuning")
        for kind, column in (("hierarchical", "H-AP"), ("levels", "AP emoji"))
    ]
    guide = (DOCS / "guides" / "choose-a-loss.md").read_text().partition("| heads: H-AP |")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.*)$", guide, flags=re.MULTILINE)
    assert len(rows) == 11
    for name, cells in rows:
        method = LOSSES[name].display_name
        expected = [study[method][column] if method in study else "" for study, column in columns]
        assert [cell.strip(" *") for cell in cells.split("|")[:4]] == expected
