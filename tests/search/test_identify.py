"""``Index.identify`` and ``happier identify``: real indexes, real commands."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from happier.cli import app
from happier.data import Manifest
from happier.data.class_path import split
from happier.encoder import Encoder
from happier.errors import OptionError, SearchError
from happier.search import Index
from happier.search.index_json import read_head, write_head


def build(place, catalogue, **options):
    return Index.build(place, catalogue.manifest, catalogue.vectors, fingerprint="model", **options)


@pytest.fixture(scope="module")
def index(catalogue, tmp_path_factory):
    return build(tmp_path_factory.mktemp("identify") / "i", catalogue)


def likely(found):
    return [(step.class_path, step.probability, step.new) for step in found.steps]


def test_it_names_images_as_deep_as_it_is_sure(index, new_catalogue):
    new = new_catalogue(200, seed=9, unknown=False)
    answers = [one.answer for one in index.identify(new.vectors, sure=0.9)]
    right = [
        path.startswith(one.class_path) for path, one in zip(new.manifest.class_paths(), answers, strict=True)
    ]
    assert np.mean(right) > 0.9
    assert np.mean([one.level for one in answers]) > 1.5
    assert all(one.probability >= 0.9 for one in answers if one.level)
    careless = [one.answer.level for one in index.identify(new.vectors, sure=0.3)]
    assert all(less >= one.level for less, one in zip(careless, answers, strict=True))


def test_an_image_of_the_index_is_named_by_the_others(index):
    found = index.identify_id(index.ids[0])
    assert index.ids[0] not in [hit.id for hit in found.neighbours]
    assert found.neighbours[0].score >= found.neighbours[-1].score


def test_answers_do_not_depend_on_the_order(index, catalogue, new_catalogue, tmp_path):
    order = np.random.default_rng(2).permutation(len(catalogue.vectors))
    other = build(tmp_path / "i", catalogue.part(order))
    new = new_catalogue(40, seed=3).vectors
    for one, two in zip(index.identify(new), other.identify(new), strict=True):
        assert one.answer.class_path == two.answer.class_path
        for mine, theirs in zip(likely(one), likely(two), strict=True):
            assert mine[0] == theirs[0]
            assert mine[1:] == pytest.approx(theirs[1:], abs=1e-3)


@settings(max_examples=30, deadline=None)
@given(
    row=st.integers(0, 699), depth=st.integers(1, 3), query=st.integers(0, 10_000), sure=st.floats(0.05, 1)
)
def test_within_never_leaves_the_branch(index, row, depth, query, sure):
    names = split(index.class_paths[row])[:depth]
    branch = "/".join(name.replace("/", r"\/") for name in names)
    vector = np.random.default_rng(query).standard_normal((1, 32)).astype(np.float32)
    found = index.identify(vector / np.linalg.norm(vector), sure=sure, within=branch)[0]
    assert found.steps[0].probability == 1
    paths = [found.answer.class_path, *(one.class_path for one in found.answer.alternatives)]
    paths += [step.class_path for step in found.steps] + [hit.class_path for hit in found.neighbours]
    assert all(split(path)[: len(names)] == names for path in paths)


def test_calibration_is_stored_and_renewed(catalogue, tmp_path):
    half = np.arange(300)
    index = build(tmp_path / "i", catalogue.part(half))
    assert index.head.calibration is not None
    assert Index.open(tmp_path / "i").head.calibration == index.head.calibration
    rest = catalogue.part(np.arange(300, 700))
    index.add(rest.manifest, rest.vectors, fingerprint="model")
    assert index.head.calibration.images > 600
    assert Index.open(tmp_path / "i").head.calibration == index.head.calibration


def test_an_index_of_an_earlier_version_is_calibrated_on_demand(index, catalogue, tmp_path):
    old = build(tmp_path / "i", catalogue)
    head = read_head(tmp_path / "i")
    write_head(tmp_path / "i", head.model_copy(update={"calibration": None}))
    opened = Index.open(tmp_path / "i")
    assert opened.head.calibration is None
    assert opened.calibration == old.head.calibration


def test_bad_input_is_one_line(index, catalogue, tmp_path):
    with pytest.raises(SearchError, match="no branch 'kind 9'"):
        index.identify(catalogue.vectors[:1], within="kind 9")
    for sure in (0, -1, 1.5, float("nan")):
        with pytest.raises(OptionError, match="sure must be above 0"):
            index.identify(catalogue.vectors[:1], sure=sure)
    table = catalogue.manifest.table
    for name, labels, message in (
        ("none", {"kind": "", "group": "", "item": ""}, "no labels"),
        ("one", {"kind": "bird", "group": "owl", "item": ""}, r"one class only \(bird . owl\)"),
    ):
        part = Manifest(table.assign(**labels), levels=catalogue.manifest.levels, root=tmp_path)
        flat = Index.build(tmp_path / name, part, catalogue.vectors, fingerprint="model")
        with pytest.raises(SearchError, match=message):
            flat.identify(catalogue.vectors[:1])


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    """An index of coloured squares with a model, and two new images."""
    place = tmp_path_factory.mktemp("squares")
    generator = np.random.default_rng(0)
    colours = {
        ("warm", "red"): (220, 40, 40),
        ("warm", "yellow"): (230, 220, 40),
        ("cold", "blue"): (40, 60, 220),
    }
    rows = []
    for (kind, item), colour in colours.items():
        for number in range(8):
            pixels = np.clip(np.asarray(colour) + generator.integers(-25, 25, (40, 40, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{item}-{number}.png")
            rows.append({"path": f"{item}-{number}.png", "split": "test", "kind": kind, "item": item})
    manifest = Manifest(pd.DataFrame(rows), levels=["kind", "item"], root=place)
    encoder = Encoder("test_resnet", dim=16, transform="small", image_size=32)
    index = [row for row in range(len(manifest)) if row % 8]
    part = manifest.take(index)
    Index.build(
        place / "i", part, encoder.embed(part.files()), fingerprint=encoder.fingerprint, encoder=encoder
    )
    return place


def test_the_command_prints_lines_json_and_csv(squares):
    def run(*options):
        images = [squares / "red-0.png", squares / "blue-0.png"]
        return CliRunner().invoke(app, ["identify", *map(str, (squares / "i", *images, *options))])

    lines = run("--sure", "0.2")
    assert lines.exit_code == 0
    assert "warm \u203a red" in lines.stdout
    assert "rough" in lines.stderr
    data = json.loads(run("--json", "--sure", "0.2").stdout)
    assert data["rough"]
    assert [one["answer"]["class_path"] for one in data["images"]] == ["warm/red", "cold/blue"]
    table = list(csv.DictReader(io.StringIO(run("--csv").stdout)))
    assert [row["likeliest"] for row in table] == ["warm/red", "cold/blue"]
    inside = json.loads(run("--json", "--within", "warm").stdout)
    assert all(one["steps"][0]["class_path"] == "warm" for one in inside["images"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--within", "hot"], "the taxonomy has no branch 'hot'; it begins with cold, warm"),
        (["--sure", "2"], "sure must be above 0 and at most 1, got 2.0"),
        (["--json", "--csv"], "choose --json or --csv, not both"),
    ],
)
def test_the_command_refuses_in_one_line(squares, options, message):
    result = CliRunner().invoke(app, ["identify", str(squares / "i"), str(squares / "red-0.png"), *options])
    assert str(result.exception) == message
