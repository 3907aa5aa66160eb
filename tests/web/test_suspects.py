"""Suspects in the explorer: listed, judged with keys, kept in a file that only this server writes."""

import shutil
import threading

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient

from happier.curation.corrections import Correction, CorrectionsFile
from happier.data import Manifest
from happier.errors import DataError
from happier.search import Index
from happier.web import suspect_list
from happier.web.app import create_app
from happier.web.server import ExplorerServer, open_explorer

LOCAL = {"base_url": "http://127.0.0.1"}


@pytest.fixture(scope="module")
def mislabelled(place, tmp_path_factory):
    """An index of the shapes whose vectors say exactly what they show, with two wrong labels."""
    folder = tmp_path_factory.mktemp("suspects")
    shutil.copytree(place / "images", folder / "images")
    manifest = Manifest.read(
        place / "a.index" / next(p.name for p in (place / "a.index").glob("items*.parquet"))
    )
    table = manifest.table.drop(columns="position").iloc[:60]
    seen = pd.factorize(table["colour"] + table["shape"])[0]
    rng = np.random.default_rng(0)
    colours = pd.factorize(table["colour"])[0]
    vectors = 2 * np.eye(20)[colours] + np.eye(20)[4 + seen] + 0.05 * rng.normal(size=(60, 20))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    table = table.reset_index(drop=True)
    table.loc[1, ["tone", "colour", "shape"]] = ["cold", "blue", "square"]
    table.loc[6, "shape"] = "circle"
    wrong = Manifest(table, levels=manifest.levels, root=folder, name="shapes")
    Index.build(folder / "shapes.index", wrong, vectors, fingerprint="f" * 64)
    return folder, table["path"].tolist()


def client(folder, corrections=None):
    explorer = open_explorer(folder / "shapes.index", corrections=corrections)
    return TestClient(create_app(explorer), **LOCAL)


def listed(api, **values):
    while True:
        answer = api.get("/api/suspects", params=values).json()
        if answer["ready"]:
            return answer


def test_the_most_severe_comes_first(mislabelled):
    folder, paths = mislabelled
    with client(folder) as api:
        answer = listed(api, limit=2)
        assert [one["item"]["id"] for one in answer["suspects"]] == [paths[1], paths[6]]
        first = answer["suspects"][0]
        assert (first["severity"], first["label"], first["proposed"]) == (
            3,
            "cold/blue/square",
            "warm/red/circle",
        )
        assert {one["names"][-1] for one in first["evidence"]} == {"circle"}
        assert not answer["writable"]
        assert answer["decided"] == 0
        assert listed(api, kind="divided")["total"] == 0
        assert api.get("/api/suspects", params={"kind": "nonsense"}).status_code == 422
        refused = api.post(
            "/api/suspects", json={"id": paths[1], "label": "cold/blue/square", "decision": "right"}
        )
        assert refused.status_code == 422
        assert "only reads" in refused.json()["detail"]


def test_the_search_stops_when_nobody_needs_it(mislabelled, monkeypatch):
    """A thread that is left at the end of the process may abort it; a newer state needs other suspects."""
    folder, _ = mislabelled
    found = open_explorer(folder / "shapes.index").suspects
    first, release = threading.Event(), threading.Event()

    def compare(labelled, *, progress):
        first.set()
        release.wait()
        progress(1, 2)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(suspect_list, "find_suspects", compare)
        assert not found.page(None, 0, 9).ready
        first.wait()
        found.model.stop.set()
        release.set()
        found._thread.join()
        assert not found._done
        found.model.stop.clear()
        release.clear()
        first.clear()
        assert not found.page(None, 0, 9).ready, "it starts again where it is needed after all"
        first.wait()
        release.set()
        suspect_list._end(found._stop, found._thread)
        assert not found._thread.is_alive()
        assert not found._done


def test_decisions_are_kept(mislabelled, tmp_path):
    folder, paths = mislabelled
    file = tmp_path / "corrections.csv"
    wrong = {
        "id": paths[1],
        "label": "cold/blue/square",
        "decision": "wrong",
        "class_path": "warm/red/circle",
    }
    with client(folder, file) as api:
        assert listed(api)["writable"]
        assert api.post("/api/suspects", json=wrong).json() == {"decisions": 1}
        assert (
            api.post("/api/suspects", json={**wrong, "decision": "skip", "class_path": ""}).status_code == 200
        )
        assert api.post("/api/suspects", json=wrong).json() == {"decisions": 1}
        answer = listed(api)
        assert (answer["decided"], answer["suspects"][0]["decision"]) == (1, "wrong")
        for bad, status in (
            ({**wrong, "class_path": "warm/red/cube"}, 404),
            ({**wrong, "id": "nobody"}, 404),
            ({**wrong, "decision": "maybe"}, 422),
            ({**wrong, "class_path": ""}, 422),
        ):
            assert api.post("/api/suspects", json=bad).status_code == status, bad
        elsewhere = {"origin": "http://elsewhere.example"}
        assert api.post("/api/suspects", json=wrong, headers=elsewhere).status_code == 403
    assert CorrectionsFile(file).read() == [
        Correction(paths[1], "cold/blue/square", "wrong", "warm/red/circle")
    ]
    with client(folder, file) as again:
        assert listed(again)["decided"] == 1


def test_a_file_of_something_else_is_refused_at_the_start(mislabelled, tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="lacks the column 'id'"):
        client(mislabelled[0], tmp_path / "other.csv")
    assert (tmp_path / "other.csv").read_text() == "a,b\n1,2\n"


def test_too_many_images_for_a_page(mislabelled, monkeypatch):
    monkeypatch.setattr(suspect_list, "MOST_IMAGES", 10)
    with client(mislabelled[0]) as api:
        for _ in range(100):
            answer = api.get("/api/suspects")
            if answer.status_code != 200:
                break
        assert answer.status_code == 422
        assert "the index has 60: use `happier data suspects`" in answer.json()["detail"]


@pytest.mark.slow
def test_judging_with_keys(mislabelled, browser, tmp_path):
    folder, paths = mislabelled
    file = tmp_path / "corrections.csv"
    explorer = open_explorer(folder / "shapes.index", corrections=file)
    with ExplorerServer(explorer).running() as server:
        page = browser.new_page()
        page.goto(f"{server.address}/?view=suspects")
        page.wait_for_selector(f'.suspect[data-id="{paths[1]}"]')
        page.keyboard.press("w")
        page.wait_for_selector(f'.suspect[data-id="{paths[6]}"]')
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector(f'.suspect[data-id="{paths[1]}"] .note:has-text("wrong: warm/red/circle")')
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f'.suspect[data-id="{paths[6]}"]')
        page.keyboard.press("o")
        page.keyboard.type("star")
        page.wait_for_selector(".suspect .class-list button")
        page.keyboard.press("Enter")
        page.wait_for_function("(id) => document.querySelector('.suspect')?.dataset.id !== id", arg=paths[6])
        page.close()
    made = {one.id: one for one in CorrectionsFile(file).read()}
    assert made[paths[1]].class_path == "warm/red/circle"
    assert made[paths[6]].class_path.endswith(r"star\/cross")
