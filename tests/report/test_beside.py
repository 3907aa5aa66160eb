"""Three and four models: the first two are compared as before, the others are shown alongside."""

import csv
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from happier.evaluation import evaluate
from happier.evaluation.result import Difference, Interval
from happier.evaluation.table import Metric, metric_rows, to_latex
from happier.evaluation.terminal import metrics_table
from happier.report import ReportOptions, write_report
from happier.report.level_colours import palette

FAST = ReportOptions(resamples=50, figures=False)


@pytest.fixture(scope="module")
def folders(four_runs, tmp_path_factory):
    """The folder of the report of so many models."""
    root = tmp_path_factory.mktemp("beside")
    for models in (2, 3, 4):
        write_report(four_runs[:models], root / str(models), options=replace(FAST, figures=models == 4))
    return {models: root / str(models) for models in (2, 3, 4)}


@pytest.fixture(scope="module")
def told(folders):
    return {models: json.loads((folder / "data.json").read_text()) for models, folder in folders.items()}


@pytest.mark.parametrize("models", [3, 4])
def test_every_model_has_its_own_figures(told, four_runs, models):
    data = told[models]
    assert [model["name"] for model in data["models"]] == ["tree", "flat", "mixed", "noisy"][:models]
    for place, run in enumerate(four_runs[:models]):
        result = evaluate(run.vectors, run.manifest.labels(), level_names=run.manifest.levels)
        for row in data["metrics"]:
            assert row["values"][place]["mean"] == pytest.approx(result.summary[row["key"]], rel=1e-5)
            assert row["values"][place]["low"] <= row["values"][place]["mean"] <= row["values"][place]["high"]
        assert data["curve"]["area"][place] == pytest.approx(result.summary["H-AP"], rel=1e-5)
        assert sum(data["severity"]["first_mistake"][place]) == pytest.approx(1, abs=1e-5)
    for per_model in (
        data["severity"]["shares"],
        data["curve"]["precision"],
        data["class_map"]["agreement"],
        data["class_map"]["points"][0]["at"],
        data["classes"][0]["confused"],
        data["provenance"]["configs"],
        *(item["answers"] for item in data["examples"]["items"]),
    ):
        assert len(per_model) == models


@pytest.mark.parametrize("models", [3, 4])
def test_what_is_said_of_the_first_two_does_not_change(told, models):
    two, more = told[2], told[models]
    for old, new in zip(two["metrics"], more["metrics"], strict=True):
        assert new["values"][:2] == old["values"]
        assert new["difference"] == old["difference"]
    assert more["title"] == two["title"]
    assert more["headline"].startswith(two["headline"])
    assert more["examples"]["rules"] == two["examples"]["rules"]
    for old, new in zip(two["examples"]["items"], more["examples"]["items"], strict=True):
        assert (new["reason"], new["file"], new["answers"][:2]) == (
            old["reason"],
            old["file"],
            old["answers"],
        )
    for old, new in zip(two["class_map"]["points"], more["class_map"]["points"], strict=True):
        assert new["at"][:2] == old["at"]


def test_the_headline_names_those_beside(told):
    assert "beside" not in told[2]["headline"]
    h_ap = [100 * value["mean"] for value in told[4]["metrics"][0]["values"]]
    assert told[4]["headline"].endswith(
        f"Shown beside: mixed with an H-AP of {h_ap[2]:.1f} and noisy with an H-AP of {h_ap[3]:.1f}."
    )


def test_every_map_is_turned_towards_the_first(told):
    # A rotation or mirror image of either would agree better with the first only by chance.
    places = np.array([point["at"] for point in told[3]["class_map"]["points"]])
    centred = places - places.mean(axis=0)
    for other in (1, 2):
        agreement = np.einsum("na,na->", centred[:, 0], centred[:, other])
        for x, y in ((-1, 1), (1, -1), (-1, -1)):
            assert agreement >= np.einsum("na,na->", centred[:, 0], centred[:, other] * (x, y))


def test_the_table_of_classes_has_a_column_for_each(folders):
    with (folders[3] / "classes.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert len(table[0]) == 2 + 6 * 3
    assert {len(row) for row in table} == {len(table[0])}
    assert {"H-AP (mixed)", "confused with (mixed)"} <= set(table[0])


def test_figures_of_four(folders):
    from PIL import Image

    names = {path.stem for path in (folders[4] / "figures").iterdir()}
    assert {"severity", "composition", "precision-recall", "map", "examples-gain"} <= names
    text = (folders[4] / "figures" / "precision-recall.svg").read_text()
    colours = palette(3).page
    for name in ("accent", "muted", "third", "fourth"):
        assert f"stroke: {colours[name]}" in text
    # Two by two, not four in a row.
    with Image.open(folders[4] / "figures" / "map.png") as image:
        assert image.width < 1.2 * image.height


@pytest.mark.parametrize(
    ("means", "higher", "best"),
    [
        ((0.1, 0.2, 0.3), True, 2),
        ((0.1, 0.2, 0.3), False, 0),
        ((0.1, 0.3, 0.2, 0.3), True, None),
        ((0.1, 0.3, 0.1), True, 1),
        ((0.1, math.nan, 0.3), True, None),
        ((0.1,), True, None),
    ],
)
def test_the_best_of_all(means, higher, best):
    values = tuple(Interval(mean, mean, mean) for mean in means)
    assert Metric("x", "x", "g", "percent", higher, values).best == best


def test_latex_has_a_line_for_each(four_runs):
    results = [evaluate(run.vectors, run.manifest.labels()) for run in four_runs]
    text = to_latex(metric_rows(results, resamples=20), ["a", "b", "c", "d"])
    assert sum(line.startswith(("a &", "b &", "c &", "d &")) for line in text.splitlines()) == 4


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_model_colours_keep_apart(theme):
    colours = palette(3, theme)
    new = [colours.page[name] for name in ("third", "fourth")]
    taken = (*new, colours.page["accent"], colours.page["muted"], *colours.levels, colours.query)

    def channels(colour):
        return np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)])

    for one, other in itertools.combinations(taken, 2):
        if one in new:
            assert np.abs(channels(one) - channels(other)).sum() >= 60, (one, other)


@pytest.mark.parametrize("models", [3, 4])
def test_long_names_cut_no_figure_short(models):
    values = tuple(Interval(0.123 + 0.1 * place, 0.1, 0.9) for place in range(models))
    difference = Difference(-0.1, -0.123, -0.045, 0.001)
    row = Metric("R@100/subgroup", "R@100", "recall", "percent", True, values, difference)
    names = [f"happier,optimizer.lr=0.002,training.epochs=4,seed={place}" for place in range(models)]
    console = Console(width=80)
    with console.capture() as captured:
        console.print(metrics_table([row], names, "emoji"))
    line = next(line for line in captured.get().splitlines() if "R@100" in line)
    expected = [f"{100 * value.mean:.1f}" for value in values]
    assert line.split() == ["R@100/subgroup", *expected, "-10.0", "-12.3..-4.5", "0.001"]
