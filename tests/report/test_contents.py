"""What a report says is what the evaluation found."""

import csv
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from happier.data import Manifest
from happier.data.class_path import split
from happier.errors import DataError, InputError, OptionError
from happier.evaluation import evaluate
from happier.evaluation.paper_tables import PUBLISHED
from happier.evaluation.table import metric_rows, to_latex
from happier.report import ReportOptions, write_report
from happier.report.examples import choose
from happier.runs import Run
from happier.runs.comparison import with_different_names

FAST = ReportOptions(resamples=50, commands=("happier report tree --against flat",), figures=False)


@pytest.fixture(scope="module")
def folder(runs, tmp_path_factory):
    place = tmp_path_factory.mktemp("out") / "report"
    write_report(runs, place, options=replace(FAST, figures=True))
    return place


@pytest.fixture(scope="module")
def data(folder):
    return json.loads((folder / "data.json").read_text())


@pytest.fixture(scope="module")
def results(runs):
    return [evaluate(run.vectors, run.manifest.labels(), level_names=run.manifest.levels) for run in runs]


def test_the_figures_are_those_of_evaluate(data, results):
    for row in data["metrics"]:
        for value, result in zip(row["values"], results, strict=True):
            assert value["mean"] == pytest.approx(result.summary[row["key"]], rel=1e-5)
        first, second = (value["mean"] for value in row["values"])
        assert row["difference"]["mean"] == pytest.approx(first - second, abs=1e-5)
    assert data["metrics"][0]["key"] == "H-AP"
    assert data["metrics"][0]["difference"]["mean"] > 0.1


def test_the_area_under_the_curve_is_h_ap(data, results):
    for area, precision, result in zip(
        data["curve"]["area"], data["curve"]["precision"], results, strict=True
    ):
        assert area == pytest.approx(result.summary["H-AP"], rel=1e-5)
        assert np.mean(precision) == pytest.approx(result.summary["H-AP"], rel=1e-4)


def test_severity_adds_up_and_agrees_with_the_evaluation(data, results):
    severity = data["severity"]
    for first, never, shares, result in zip(
        severity["first_mistake"], severity["never_wrong"], severity["shares"], results, strict=True
    ):
        assert sum(first) == pytest.approx(1, abs=1e-5)
        assert never == 0
        distance = sum((3 - level) * share for level, share in enumerate(first))
        assert distance == pytest.approx(result.summary["first_mistake"], rel=1e-4)
        np.testing.assert_allclose(np.sum(shares, axis=0), 1, atol=1e-4)
        at_ten = severity["ks"].index(10)
        for level, name in enumerate(("none", "group", "kind", "item")):
            assert shares[level][at_ten] == pytest.approx(result.summary[f"share@10/{name}"], abs=1e-5)
    # A model that knows the tree goes wrong nearby.
    assert sum(severity["first_mistake"][0][1:]) > sum(severity["first_mistake"][1][1:])


def test_the_headline_asks_for_no_more_than_a_class_can_fill(data):
    (depth,) = re.findall(r"Of the first (\d+) answers", data["headline"])
    size, coarse = data["data"]["gallery"], data["data"]["classes"][0]
    assert int(depth) == max(k for k in data["severity"]["ks"] if k <= size // coarse)
    assert int(depth) < data["severity"]["ks"][-1]


def test_names_are_measured_as_evaluate_does(data, world, command):
    """`happier evaluate --identify` and the report have one computation."""
    words = ("evaluate", world / "tree.npy", "--manifest", world / "manifest.parquet", "--resamples", 0)
    asked = json.loads(command(*words, "--identify", "--json", "-").stdout)["identify"][0]
    told = data["identification"][0]
    assert len(data["identification"]) == 2
    assert [one["name"] for one in told["methods"]] == [one["name"] for one in asked["methods"]]
    for mine, theirs in zip(told["methods"], asked["methods"], strict=True):
        assert mine["accuracy"] == pytest.approx(theirs["accuracy"], rel=1e-5)
        assert mine["answers"]["depth"] == pytest.approx(theirs["answers"]["depth"], rel=1e-5)
    np.testing.assert_allclose(told["curves"], asked["curves"], rtol=1e-5)
    assert (told["queries"], told["indexed"]) == (asked["queries"], asked["indexed"])


def test_names_that_cannot_be_measured_are_left_out(world, runs, tmp_path):
    table = runs[0].manifest.table.drop_duplicates(list(runs[0].manifest.levels))
    rows = table.index.to_numpy()
    alone = replace(runs[0], manifest=runs[0].manifest.take(rows), vectors=runs[0].vectors[rows])
    report = write_report([alone], tmp_path / "report", options=FAST)
    assert report.identification == ()
    assert "each class needs two or more" in report.provenance.settings["Naming images"]
    assert 'id="naming"' not in (tmp_path / "report" / "index.html").read_text()


def test_the_map_groups_what_the_model_groups(data):
    drawn = data["class_map"]
    assert len(drawn["points"]) == 24
    assert sorted(drawn["coarse"]) == ["a/b 0", "a/b 1", "a/b 2"]
    assert drawn["agreement"][0] > drawn["agreement"][1] + 0.2
    places = np.array([point["at"] for point in drawn["points"]])
    assert places.shape == (24, 2, 2)
    assert places.min() >= 0
    assert places.max() <= 1


def test_examples_are_chosen_by_the_difference(data, results):
    difference = results[0].per_query["H-AP"] - results[1].per_query["H-AP"]
    items = data["examples"]["items"]
    gains = [item["h_ap"][0] - item["h_ap"][1] for item in items if item["reason"] == "gain"]
    losses = [item["h_ap"][0] - item["h_ap"][1] for item in items if item["reason"] == "loss"]
    assert gains[0] == pytest.approx(difference.max(), abs=1e-5)
    assert losses[0] == pytest.approx(difference.min(), abs=1e-5)
    low, high = np.quantile(difference, [0.38, 0.62])
    for item in items:
        assert item["reason"] != "typical" or low <= item["h_ap"][0] - item["h_ap"][1] <= high
        for answers in item["answers"]:
            assert len(answers) == 10
            assert [a["score"] for a in answers] == sorted((a["score"] for a in answers), reverse=True)
            for answer in answers:
                shared = 0
                for mine, theirs in zip(split(item["path"]), split(answer["path"]), strict=True):
                    if mine != theirs:
                        break
                    shared += 1
                assert answer["level"] == shared
                assert answer["file"] != item["file"]
    assert "seed 0" in data["examples"]["rules"]["typical"]


def test_examples_of_one_reason_are_of_different_classes_and_defined():
    values = np.array([0.9, 0.8, np.nan, 0.7, 0.0, -0.5, -0.4])
    classes = np.array([1, 1, 2, 3, 4, 5, 5])
    chosen = choose(values, classes, each=2, seed=0)
    assert chosen["gain"] == [0, 3]
    assert chosen["loss"] == [5, 4]
    assert choose(np.full(3, np.nan), classes[:3], each=2, seed=0) == {"gain": [], "typical": [], "loss": []}
    drawn = choose(np.linspace(1, 0, 100), np.arange(100), each=3, seed=1)["typical"]
    assert all(40 <= query < 60 for query in drawn)
    assert drawn == choose(np.linspace(1, 0, 100), np.arange(100), each=3, seed=1)["typical"]


def test_classes_and_their_confusions(data, folder, results):
    rows = data["classes"]
    assert len(rows) == 24
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)
    codes = np.repeat(np.arange(24), 4)
    mean = results[0].per_query["AP/item"].reshape(24, 4).mean(axis=1)
    assert sorted(row["ap"][0] for row in rows) == pytest.approx(sorted(mean), rel=1e-4)
    assert len(codes) == 96
    for row in rows:
        for found in row["confused"]:
            assert found["path"] != row["path"]
            same = [a == b for a, b in zip(split(found["path"]), split(row["path"]), strict=True)]
            assert found["distance"] == 3 - ([*same, False].index(False))
            assert 0 < found["share"] <= 1
    with (folder / "classes.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert len(table) == 25
    assert table[0][:2] == ["class", "queries"]
    assert len({len(row) for row in table}) == 1


def test_every_figure_is_there_in_every_format(folder):
    names = {path.stem for path in (folder / "figures").iterdir()}
    assert names == {
        "severity", "composition", "precision-recall", "coverage", "map",
        "examples-gain", "examples-typical", "examples-loss",
    }  # fmt: skip
    for name in names:
        for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
            assert (folder / "figures" / f"{name}.{kind}").read_bytes().startswith(start)


def test_a_report_replaces_a_report_and_nothing_else(runs, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(DataError, match="is not a report"):
        write_report(runs[:1], tmp_path, options=FAST)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    place = tmp_path / "r"
    write_report(runs[:1], place, options=FAST)
    write_report(runs[:1], place, options=replace(FAST, title="Second"))
    assert "Second" in (place / "index.html").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"precious.txt", "r"}
    (place / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds 'notes\.txt', which is not part of a report"):
        write_report(runs[:1], place, options=FAST)
    assert (place / "notes.txt").read_text() == "mine"
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("my own page")
    with pytest.raises(DataError, match="is not a report"):
        write_report(runs[:1], site, options=FAST)
    assert (site / "index.html").read_text() == "my own page"


def test_a_report_that_breaks_off_leaves_nothing(runs, tmp_path):
    def stop(what):
        if what == "drawing the map":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(runs, tmp_path / "r", options=FAST, status=stop)
    assert not list(tmp_path.iterdir())


def test_the_same_data_gives_the_same_pictures_and_figures(runs, folder, tmp_path):
    write_report(runs, tmp_path / "again", options=replace(FAST, figures=True))
    for name in ("figures/map.svg", "figures/severity.png", "figures/examples-gain.pdf", "classes.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_runs_of_other_rows_are_not_compared(runs):
    other = runs[1].manifest.take(np.arange(95))
    with pytest.raises(InputError, match="different data"):
        write_report([runs[0], replace(runs[1], manifest=other, vectors=runs[1].vectors[:95])], "never")
    turned = runs[1].manifest.take(np.arange(96)[::-1])
    with pytest.raises(InputError, match="different images or labels"):
        write_report([runs[0], replace(runs[1], manifest=turned)], "never")
    with pytest.raises(OptionError, match="1 to 4 runs can be compared, got 5"):
        write_report([*runs, *runs, runs[0]], "never")


def test_two_runs_of_one_name_are_told_apart(runs, tmp_path):
    same = [
        replace(run, name="HAPPIER", source=f"runs/{letter}") for run, letter in zip(runs, "ab", strict=True)
    ]
    report = write_report(same, tmp_path / "r", options=FAST)
    assert [model.name for model in report.models] == ["a", "b"]


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (("runs/a", "runs/b", "runs/c"), ["a", "NSM", "c"]),
        (("here/a", "runs/b", "there/a"), ["here/a", "NSM", "there/a"]),
        (("runs/NSM", "runs/b", "runs/c"), ["runs/NSM", "runs/b", "c"]),
    ],
)
def test_a_run_with_a_name_of_its_own_keeps_it(runs, sources, names):
    given = [
        replace(runs[0], name=name, source=source)
        for name, source in zip(("HAPPIER", "NSM", "HAPPIER"), sources, strict=True)
    ]
    assert [run.name for run in with_different_names(given)] == names


def test_one_level_and_few_classes_give_a_report_too(world, runs, tmp_path):
    manifest = Manifest(
        runs[0].manifest.table.drop(columns=["kind", "item"]), levels=["group"], root=world, name="flat"
    )
    report = write_report([Run("x", "x", runs[0].vectors, manifest)], tmp_path / "r", options=FAST)
    assert report.class_map is None
    assert report.data.depth == 1
    assert report.metric("H-AP").values[0].mean == pytest.approx(report.metric("AP/group").values[0].mean)
    assert (tmp_path / "r" / "index.html").is_file()


def test_unknown_labels_and_queries_without_positives(world, runs, tmp_path):
    table = runs[0].manifest.table.copy()
    table.loc[:3, ["kind", "item"]] = ""
    table.loc[4, ["group", "kind", "item"]] = ["alone", "alone", "alone"]
    manifest = Manifest(table, levels=runs[0].manifest.levels, root=world)
    report = write_report([Run("x", "x", runs[0].vectors, manifest)], tmp_path / "r", options=FAST)
    assert report.data.queries_without_positives == 1
    json.loads((tmp_path / "r" / "data.json").read_text())


def test_rows_without_resamples_have_no_intervals(results):
    rows = metric_rows(results, resamples=0)
    assert all(math.isnan(value.low) for row in rows for value in row.values)
    assert all(row.difference is None and row.improved is None for row in rows)


def test_better_is_higher_but_for_severity(results):
    rows = {row.key: row for row in metric_rows(results, resamples=50)}
    assert rows["H-AP"].best == 0
    assert rows["H-AP"].improved is True
    assert rows["severity@10"].difference.mean < 0
    assert rows["severity@10"].best == 0
    assert rows["severity@10"].improved is True


def test_latex_has_one_line_per_model_and_escapes(results):
    text = to_latex(metric_rows(results, resamples=20), ["HAPPIER_F", "50 %"])
    assert r"HAPPIER\_F & " in text
    odd = to_latex(metric_rows(results, resamples=20), [r"a\b~c", "{d}^2"])
    assert r"a\textbackslash{}b\textasciitilde{}c & " in odd
    assert r"\{d\}\textasciicircum{}2 & " in odd
    assert r"50 \% & " in text
    assert text.count(r"\textbf") >= 5
    widths = {line.count("&") for line in text.splitlines() if "&" in line}
    assert len(widths) == 1


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_tables_are_whole(name):
    table = PUBLISHED[name]
    assert len(table.columns) == len(table.keys)
    assert all(len(values) == len(table.columns) for values in table.rows.values())
    assert "HAPPIER" in table.rows
    best = max(table.rows, key=lambda method: table.rows[method][0] or 0)
    assert best == "HAPPIER"  # the paper's claim, and a check of the columns


def test_own_figures_stand_under_the_published_columns():
    summary = {
        "H-AP": 0.5,
        "ASI": 0.4,
        "NDCG": 0.3,
        "R@1/product": 0.2,
        "AP/product": 0.1,
        "AP/category": 0.6,
    }
    own = PUBLISHED["sop"].own(summary, ["category", "product"])
    assert own == pytest.approx((50, 40, 30, 20, 10, 60))
    with pytest.raises(InputError, match="other levels"):
        PUBLISHED["inat-full"].own(summary, ["category", "product"])
