"""``happier index``, ``search`` and ``unindex`` with a real model and real image files."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from happier.cli import app
from happier.data import Manifest
from happier.encoder import Encoder
from happier.errors import OptionError, SearchError
from happier.search import Index

COLOURS = {
    "warm/red": (220, 40, 40),
    "warm/yellow": (230, 220, 40),
    "cold/blue": (40, 60, 220),
    "cold/green": (30, 160, 60),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A saved model and a folder of coloured squares with their manifest."""
    place = tmp_path_factory.mktemp("commands")
    generator = np.random.default_rng(0)
    rows = []
    for path, colour in COLOURS.items():
        for number in range(6):
            noise = generator.integers(-25, 25, (40, 40, 3))
            pixels = np.clip(np.asarray(colour) + noise, 0, 255).astype(np.uint8)
            name = f"{path.replace('/', '-')}-{number}.png"
            Image.fromarray(pixels).save(place / name)
            kind, item = path.split("/")
            rows.append(
                {"path": name, "split": "test" if number < 5 else "query", "kind": kind, "item": item}
            )
    Manifest(pd.DataFrame(rows), levels=["kind", "item"], root=place).write(place / "all.parquet")
    Encoder("test_resnet", dim=16, transform="small", image_size=32).save_pretrained(place / "model")
    Encoder("test_resnet", dim=16, transform="small", image_size=32).save_pretrained(place / "other")
    return place


def run(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_index_search_add_and_unindex(place, tmp_path):
    target = tmp_path / "squares.index"
    outcome = json.loads(
        run("index", place / "model", place / "all.parquet", "-o", target, "--split", "test", "--json")
    )
    assert (outcome["images"], outcome["engine"], outcome["recall@10"]) == (20, "flat", 1.0)

    found = json.loads(run("search", target, place / "warm-red-5.png", "-k", 3, "--json"))
    assert len(found["hits"]) == 3
    inside = json.loads(run("search", target, place / "warm-red-5.png", "--within", "cold", "--json"))
    assert len(inside["hits"]) == 10
    assert {hit["class_path"].split("/")[0] for hit in inside["hits"]} == {"cold"}

    added = json.loads(run("index", place / "model", place / "all.parquet", "-o", target, "--add", "--json"))
    assert (added["images"], added["added"]) == (24, 4)
    again = json.loads(run("search", target, place / "warm-red-5.png", "-k", 1, "--json"))
    assert again["hits"][0]["id"] == "warm-red-5.png"
    assert again["hits"][0]["score"] == pytest.approx(1, abs=1e-5)
    assert "warm-red-5.png" in run("search", target, place / "warm-red-5.png", "-k", 1)

    assert "1 removed, 23 left" in run("unindex", target, "warm-red-5.png")
    assert len(Index.open(target)) == 23
    assert [path.name for path in tmp_path.iterdir()] == ["squares.index"]


def test_nothing_to_add_still_removes_what_a_killed_command_left(place, tmp_path):
    target, words = tmp_path / "index", (place / "model", place / "all.parquet", "-o", tmp_path / "index")
    run("index", *words)
    before = sorted(path.name for path in target.iterdir())
    (target / "items-0.parquet").write_bytes(b"of the state before, when the kill came after the commit")
    outcome = json.loads(run("index", *words, "--add", "--json"))
    assert (outcome["images"], outcome["added"]) == (24, 0)
    assert sorted(path.name for path in target.iterdir()) == before


@pytest.mark.parametrize("words", [("--overwrite",), ("--recall", "0.99"), ("--option", "effort=64")])
def test_an_addition_refuses_options_of_a_new_index(place, tmp_path, words):
    with pytest.raises(OptionError, match=f"leave out {words[0]}"):
        run("index", place / "model", place / "all.parquet", "-o", tmp_path / "index", "--add", *words)


def test_an_index_refuses_another_model(place, tmp_path):
    target = tmp_path / "index"
    run("index", place / "model", place / "all.parquet", "-o", target, "--split", "test")
    with pytest.raises(SearchError, match="two models cannot be compared"):
        run("index", place / "other", place / "all.parquet", "-o", target, "--add")
    # Nor does it take a model that was slipped in under it.
    model = Index.open(target).head.model
    for name in ("model.safetensors", "model.json"):
        (target / model / name).write_bytes((place / "other" / name).read_bytes())
    with pytest.raises(SearchError, match="differs from its checksum"):
        run("search", target, place / "warm-red-5.png")


def test_engine_options_come_from_the_command_line(place, tmp_path):
    target = tmp_path / "index"
    arguments = ("index", place / "model", place / "all.parquet", "-o", target, "--engine", "hnsw")
    with pytest.raises(OptionError, match="name=value"):
        run(*arguments, "--option", "effort")
    run(*arguments, "--option", "effort=32")
    assert Index.open(target).head.settings["search_options"]["effort"] == 32
    uri = tmp_path / "catalogue.db"
    run(*arguments[:4], tmp_path / "milvus", "--engine", "milvus", "--uri", uri)
    opened = Index.open(tmp_path / "milvus")
    assert len(opened.search_images([place / "cold-blue-5.png"], k=4, within="warm/red")[0]) == 4
    opened.close()


def test_a_misspelt_branch_names_what_there_is(place, tmp_path):
    target = tmp_path / "index"
    run("index", place / "model", place / "all.parquet", "-o", target)
    with pytest.raises(SearchError, match="it begins with cold, warm"):
        run("search", target, place / "warm-red-5.png", "--within", "hot")
