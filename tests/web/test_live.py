"""A server whose index changes: new states are swapped in, images come and go over the network."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
import time
import weakref

import numpy as np
import pytest
from catalogue import COLOURS, as_bytes, draw
from starlette.testclient import TestClient

from happier.errors import SearchError
from happier.search import Index
from happier.web.app import create_app
from happier.web.explorer import Explorer
from happier.web.limits import Limits
from happier.web.live import watch
from happier.web.metrics import ServerMetrics
from happier.web.server import access_for, open_explorer
from happier.web.workers import Workers

BASE = "http://127.0.0.1"
WRITER, READER = "w" * 20, "r" * 20
FIRST = "images/red-circle-0.png"


@pytest.fixture
def copy(place, tmp_path):
    """An index of its own to change; the images stay where they are."""
    shutil.copytree(place / "a.index", tmp_path / "a.index")
    return tmp_path / "a.index"


@pytest.fixture
def tokens(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(f'[anna]\ntoken = "{WRITER}"\nrole = "write"\n[ben]\ntoken = "{READER}"\n')
    return file


def client_for(explorer, tokens, token=WRITER, **limits):
    access = access_for("127.0.0.1", token=None, token_file=tokens)
    app = create_app(explorer, access=access, limits=Limits(**limits))
    return TestClient(app, base_url=BASE, headers={"authorization": f"Bearer {token}"})


def post(client, image, **values):
    return client.post("/api/images", files={"file": ("x.png", as_bytes(image), "image/png")}, data=values)


def new_image(seed=7):
    return draw(COLOURS["warm"]["red"], "circle", np.random.default_rng(seed))


def test_a_change_on_disk_is_seen_and_the_old_state_goes(copy):
    explorer = Explorer(Index.open(copy))
    old = explorer.model("a")
    assert not explorer.refresh()
    assert explorer.model("a") is old
    Index.open(copy).delete([FIRST])
    assert explorer.refresh()
    new = explorer.model("a")
    assert (len(old.index), len(new.index)) == (61, 60)
    assert new.version != old.version
    assert FIRST in old.index  # a request that holds the old state goes on with it
    assert FIRST not in new.index
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is None


def test_an_index_that_is_gone_leaves_the_old_state_open(copy):
    explorer = Explorer(Index.open(copy))
    shutil.rmtree(copy)
    with pytest.raises(SearchError):
        explorer.refresh()
    assert len(explorer.model("a").index) == 61


def test_a_server_watches_its_index(copy):
    explorer = open_explorer(copy)
    with TestClient(create_app(explorer, limits=Limits(refresh_seconds=0.01)), base_url=BASE) as client:
        before = client.get("/api/info").json()["sides"][0]["version"]
        item = client.get("/api/items", params={"limit": 2}).json()["items"][1]
        embedder = explorer.model("a").embedder
        Index.open(copy).delete([FIRST])
        while client.get("/api/info").json()["sides"][0]["version"] == before:
            pass
        assert client.get("/api/search", params={"id": FIRST}).status_code == 404
        # Rows have moved; an address that a page got before still shows its image.
        again = client.get("/api/items", params={"limit": 1}).json()["items"][0]
        assert (again["id"], again["row"], item["row"]) == (item["id"], 0, 1)
        assert client.get(item["thumbnail"]).content == client.get(again["thumbnail"]).content
        assert explorer.model("a").embedder is embedder  # the model is not loaded again


def test_an_unexpected_error_does_not_end_the_watching(caplog):
    outcomes = [
        OSError("too many open files"),
        OSError("too many open files"),
        SearchError("gone"),
        KeyboardInterrupt,
    ]

    class Failing:
        def refresh(self):
            raise outcomes.pop(0)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(watch(Failing(), 0, ServerMetrics()))
    assert [record.message for record in caplog.records] == [
        "the state of the index before stays open: too many open files",
        "the state of the index before stays open: gone",
    ]


def test_a_state_that_another_thread_has_opened_is_looked_at():
    """The refresh of this request finds nothing to do: another one has swapped the states meanwhile."""
    states = [SearchError("no such image"), "found"]

    def work():
        outcome = states.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    workers = Workers(1, refresh=lambda: False)
    assert asyncio.run(workers.run(work)) == "found"
    workers.close()


def test_no_request_fails_while_states_are_swapped(copy):
    explorer = Explorer(Index.open(copy))
    keep = "images/blue-square-0.png"
    versions, ended = set(), threading.Event()

    def change():
        index = Index.open(copy)
        for one in ("images/red-circle-1.png", "images/red-circle-2.png", "images/red-circle-3.png"):
            index.delete([one])
        ended.set()

    with TestClient(create_app(explorer, limits=Limits(refresh_seconds=0.001)), base_url=BASE) as client:
        thread = threading.Thread(target=change)
        thread.start()
        while not ended.is_set() or versions == set():
            answer = client.get("/api/search", params={"id": keep, "k": 60})
            assert answer.status_code == 200
            body = answer.json()
            generation = int(body["version"].rpartition("-")[2])
            assert len(body["hits"]) == 60 - (generation - 1)  # one state from beginning to end
            versions.add(generation)
        thread.join()


def test_images_are_added_found_and_removed(copy, tokens, tmp_path):
    explorer = open_explorer(copy, writes=tmp_path / "added")
    with client_for(explorer, tokens) as client:
        added = post(client, new_image(), class_path="warm/red/circle", id="mine")
        assert (added.status_code, added.json()["ids"], added.json()["images"]) == (201, ["mine"], 62)
        found = client.get("/api/search", params={"id": "mine", "k": 3}).json()
        assert found["version"] == added.json()["version"]
        assert found["query"]["class_path"] == "warm/red/circle"
        upload = {"file": ("x.png", as_bytes(new_image()), "image/png")}
        first = client.post("/api/search", files=upload).json()["hits"][0]
        assert (first["id"], round(first["score"], 4)) == ("mine", 1.0)
        assert client.get(first["thumbnail"]).status_code == 200
        # The same image again is refused, and an unknown class depth, too.
        assert post(client, new_image(), id="mine").status_code == 422
        assert post(client, new_image(), class_path="a/b/c/d").status_code == 422
        again = post(client, new_image(), id="other")
        assert (again.status_code, again.json()["detail"].count("\n")) == (422, 0)
        assert "with the id 'mine'" in again.json()["detail"]
        # The command line and the server change the same index.
        Index.open(copy).delete([FIRST])
        removed = client.delete("/api/images", params={"id": "mine"})
        assert (removed.status_code, removed.json()["images"]) == (200, 60)
        assert client.delete("/api/images", params={"id": "mine"}).status_code == 404
    assert len(Index.open(copy)) == 60


def test_several_images_of_a_new_class_in_one_request(copy, tokens, tmp_path):
    explorer = open_explorer(copy, writes=tmp_path / "added")
    files = [("file", ("x.png", as_bytes(new_image(seed)), "image/png")) for seed in (1, 2)]
    with client_for(explorer, tokens) as client:
        answer = client.post("/api/images", files=files, data={"class_path": "warm/pink"})
        assert (answer.status_code, answer.json()["images"]) == (201, 63)
        assert client.get("/api/items", params={"within": "warm/pink"}).json()["total"] == 2
        same = [("file", ("x.png", as_bytes(new_image(3)), "image/png"))] * 2
        refused = client.post("/api/images", files=same, data={"id": ["one", "two"]})
        assert (refused.status_code, refused.json()["detail"]) == (422, "two of the images are the same")
        twice = [files[0], ("file", ("bad.png", b"not an image", "image/png"))]
        assert client.post("/api/images", files=twice).status_code == 400
        assert client.get("/api/info").json()["sides"][0]["images"] == 63


def test_a_refused_addition_leaves_no_file(copy, tokens, tmp_path):
    explorer = open_explorer(copy, writes=tmp_path / "added")
    image = ("x.png", as_bytes(new_image()), "image/png")
    with client_for(explorer, tokens) as client:
        for ids in ([FIRST], [""], [" "], ["x" * 5000], ["one", "two"]):
            refused = client.post("/api/images", files={"file": image}, data={"id": ids})
            assert refused.status_code == 422, ids
            assert "\n" not in refused.json()["detail"]
        files = [("file", image), ("file", ("bad.png", b"not an image", "image/png"))]
        assert client.post("/api/images", files=files).status_code == 400
    assert list((tmp_path / "added").iterdir()) == []


def test_a_change_is_answered_once_every_process_shows_it(copy, tokens, tmp_path):
    file = tmp_path / "metrics.f64"
    ServerMetrics.create(file, 2)
    mine, other = (ServerMetrics(processes=2, slot=slot, file=file) for slot in range(2))
    explorer, elsewhere = open_explorer(copy, writes=tmp_path / "added"), Explorer(Index.open(copy))
    create_app(elsewhere, metrics=other)  # says what its row holds
    other.update()
    seen = threading.Event()

    def follow():
        while explorer.model("a").index.head.generation < 2:
            time.sleep(0.01)
        time.sleep(0.3)
        elsewhere.refresh()
        seen.set()
        other.update()

    access = access_for("127.0.0.1", token=None, token_file=tokens)
    app = create_app(explorer, access=access, metrics=mine)
    with TestClient(app, base_url=BASE, headers={"authorization": f"Bearer {WRITER}"}) as client:
        thread = threading.Thread(target=follow)
        thread.start()
        assert client.delete("/api/images", params={"id": FIRST}).status_code == 200
        assert seen.is_set()
        thread.join()


@pytest.mark.parametrize("case", ["reader", "no folder", "no token"])
def test_without_a_token_that_may_write_nothing_changes(copy, tokens, tmp_path, case):
    explorer = Explorer(Index.open(copy), writes=None if case == "no folder" else tmp_path / "added")
    token = READER if case == "reader" else WRITER
    with client_for(explorer, None if case == "no token" else tokens, token) as client:
        assert post(client, new_image()).status_code == 403
        assert client.delete("/api/images", params={"id": FIRST}).status_code == 403
    assert len(Index.open(copy)) == 61


def test_an_upload_is_embedded_again_for_a_new_model(place, copy, photo):
    explorer = open_explorer(copy)
    with TestClient(create_app(explorer), base_url=BASE) as client:
        key = client.post("/api/uploads", files={"file": ("x.png", photo, "image/png")}).json()["upload"]
        assert client.get("/api/search", params={"upload": key}).status_code == 200
        source = Index.open(place / "b.index")
        fingerprint = source.head.fingerprint
        Index.build(
            copy,
            source.items,
            source.vectors,
            fingerprint=fingerprint,
            encoder=source.encoder(),
            overwrite=True,
        )
        explorer.refresh()  # or the server has seen it already
        assert explorer.model("a").index.head.fingerprint == fingerprint
        assert client.get("/api/search", params={"upload": key}).status_code == 404
        again = client.post("/api/uploads", files={"file": ("x.png", photo, "image/png")}).json()["upload"]
        assert client.get("/api/search", params={"upload": again}).status_code == 200
