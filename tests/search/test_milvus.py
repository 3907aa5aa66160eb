"""The Milvus engine: a collection in step with ``index.json``, a token that goes nowhere else."""

from __future__ import annotations

import itertools
import json
import threading

import pytest
from pymilvus import MilvusClient

from happier.errors import OptionError, SearchError
from happier.search import Index, milvus_engine, milvus_server, store
from tests.search.index_worker import MODEL, OPERATIONS, after, held, images, rewrite_head
from tests.search.milvus_standalone import Cable

CHANGES = [name for name in OPERATIONS if name != "build"]


@pytest.fixture(autouse=True)
def _the_server_searches(monkeypatch):
    """Small branches are scanned here, and all of these are small."""
    monkeypatch.setattr(milvus_engine, "SCAN_ROWS", 0)


class Killed(BaseException):
    """Stands for the end of the process: nothing that comes after it takes place."""


def kill_at(patch, wanted):
    """Raise before the n-th step of a change, and let no clean-up run afterwards."""
    seen = itertools.count(1)
    dead = False

    def counted(real):
        def step(*arguments, **more):
            nonlocal dead
            dead = dead or next(seen) == wanted
            if dead:
                raise Killed
            return real(*arguments, **more)

        return step

    def unless_dead(real):
        return lambda *arguments: None if dead else real(*arguments)

    patch.setattr(milvus_engine.MilvusEngine, "_ask", counted(milvus_engine.MilvusEngine._ask))
    for name in ("write_head", "write_items", "write_vectors", "write_json"):
        patch.setattr(store, name, counted(getattr(store, name)))
    leftovers = store.IndexStore._remove_leftovers
    patch.setattr(store.IndexStore, "_remove_leftovers", unless_dead(leftovers))


BOTH = pytest.mark.parametrize(
    "directory", ["lite", pytest.param("server", marks=pytest.mark.slow)], indirect=True
)
URI: dict[str, str] = {}


@pytest.fixture(params=["lite"])
def directory(request, tmp_path, monkeypatch):
    """Where the index goes; its vectors are in milvus-lite, or in a real server."""
    uri = str(tmp_path / "catalogue.db")
    if request.param == "server":
        uri = request.getfixturevalue("milvus_server").uri
    monkeypatch.setitem(URI, "uri", uri)
    return tmp_path / "index"


def build(directory, numbers, **more):
    options = {**URI, "index_type": "FLAT"}
    manifest, vectors = images(numbers)
    index = Index.build(
        directory, manifest, vectors, fingerprint=MODEL, engine="milvus", options=options, **more
    )
    index.close()


def change(op, directory):
    if op in ("build", "overwrite"):
        build(directory, OPERATIONS[op], overwrite=op == "overwrite")
        return
    index = Index.open(directory)
    try:
        if op.startswith("add"):
            index.add(*images(OPERATIONS[op]), fingerprint=MODEL)
        else:
            index.delete([f"{number}.png" for number in OPERATIONS[op]])
    finally:
        index.close()


def collections():
    client = MilvusClient(URI["uri"])
    found = set(client.list_collections())
    client.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("directory", "op"),
    [*(("lite", op) for op in CHANGES), ("server", "delete")],
    indirect=["directory"],
)
def test_a_killed_change_leaves_the_old_state_or_the_new(directory, op):
    others = collections()
    build(directory, OPERATIONS["build"])
    for moment in itertools.count(1):
        state = held(directory)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, moment)
            try:
                change(op, directory)
                break
            except Killed:
                pass
        there = held(directory)
        assert there in (state, after(state, op))
        build(directory, OPERATIONS["build"], overwrite=True)
        if "://" not in URI["uri"]:  # other tests use the server, too
            assert collections() - others == {Index.open(directory).head.settings["collection"]}
    assert held(directory) == after(state, op)
    assert moment > 5


def test_a_killed_build_leaves_no_collection_behind_for_long(directory):
    others = collections()
    for moment in range(1, 12):
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, moment)
            with pytest.raises(Killed):
                build(directory, range(10))
    build(directory, range(10))
    assert held(directory) == set(range(10))
    assert len(collections() - others) == 1


@BOTH
def test_deleted_images_stay_away_until_the_collection_forgets_them(directory, monkeypatch):
    build(directory, OPERATIONS["build"])
    with monkeypatch.context() as patch:
        patch.setattr(milvus_engine.MilvusEngine, "clean", lambda self: False)
        change("delete", directory)
    index = Index.open(directory)
    assert index.head.settings["dead"] == [0, 1, 2, 3, 4]
    # All the others are found, although the server still holds the deleted ones.
    assert len(index.search(images([0])[1], k=95)[0]) == 95
    index.close()
    change("add", directory)
    assert Index.open(directory).head.settings["dead"] == []
    assert held(directory) == set(range(5, 120))


def test_a_file_in_use_by_another_process_is_named(tmp_path):
    import fcntl

    directory = tmp_path / "index"
    uri = tmp_path / "other.db"
    uri.mkdir()
    with (uri / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        manifest, vectors = images(range(10))
        with pytest.raises(SearchError, match="another process is using it"):
            Index.build(
                directory, manifest, vectors, fingerprint=MODEL, engine="milvus", options={"uri": str(uri)}
            )
    assert not directory.exists()


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("catalogue", "named NAME.db"),
        ("{file}", "is not a file of milvus-lite"),
        ("/proc/catalogue.db", "choose a place that you may write to"),
        ("{long}", "choose a place that you may write to"),
        ("ftp://host", "is given as http://HOST:19530"),
        ("http://", "is given as http://HOST:19530"),
        ("http://a:b:c", "not the address of a server"),
        ("http://user:secret@host:19530", "give user and password in MILVUS_TOKEN"),
        ("two\nlines.db", "needs a uri"),
        ("http://127.0.0.1:1", "cannot connect to Milvus"),
    ],
)
def test_a_bad_uri_is_one_line(tmp_path, uri, message):
    (tmp_path / "file.db").write_text("text")
    uri = uri.format(file=tmp_path / "file.db", long=tmp_path / ("n" * 300 + ".db"))
    manifest, vectors = images(range(10))
    with pytest.raises((OptionError, SearchError), match=message) as raised:
        Index.build(
            tmp_path / "index", manifest, vectors, fingerprint=MODEL, engine="milvus", options={"uri": uri}
        )
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "index").exists()


class Client:
    """Stands for the network: notes what would be sent."""

    sent: list = []  # noqa: RUF012

    def __init__(self, uri, token, **_):
        self.sent.append((uri, token))
        raise milvus_server.MilvusException(message="no network here")


@pytest.fixture
def sent(monkeypatch):
    monkeypatch.setattr(milvus_server, "MilvusClient", Client)
    monkeypatch.setattr(milvus_server, "_allowed", set())
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret;1")
    monkeypatch.delenv("MILVUS_URI", raising=False)
    Client.sent = []
    return Client.sent


def test_an_index_from_elsewhere_does_not_get_the_token(tmp_path, sent, monkeypatch):
    build_flat = tmp_path / "index"
    manifest, vectors = images(range(10))
    Index.build(build_flat, manifest, vectors, fingerprint=MODEL)
    head = json.loads((build_flat / "index.json").read_text())
    uri = "http://evil.example:19530"
    settings = {
        "uri": uri,
        "collection": "happier_" + "0" * 32,
        "depth": 2,
        "index_type": "HNSW",
        "effort": 96,
    }
    head = {**head, "engine": "milvus", "settings": settings, "options": {"uri": uri}}
    rewrite_head(build_flat, head)
    for elsewhere in ("", "http://mine.example:19530", "https://evil.example:19530", "http://evil.example:1"):
        monkeypatch.setenv("MILVUS_URI", elsewhere)
        with pytest.raises(SearchError, match="MILVUS_TOKEN is sent only to servers that you name"):
            Index.open(build_flat)
    assert sent == []
    monkeypatch.setenv("MILVUS_URI", f"http://mine.example:19530, {uri}")
    with pytest.raises(SearchError, match="no network here"):
        Index.open(build_flat)
    assert sent == [(uri, "root:secret;1")]
    # Without a token there is nothing to take.
    monkeypatch.delenv("MILVUS_TOKEN")
    monkeypatch.delenv("MILVUS_URI")
    with pytest.raises(SearchError, match="no network here"):
        Index.open(build_flat)
    assert sent[1:] == [(uri, "")]


def test_a_server_that_the_user_names_gets_the_token(tmp_path, sent):
    manifest, vectors = images(range(10))
    uri = "http://mine.example:19530"
    with pytest.raises(SearchError, match="no network here"):
        Index.build(
            tmp_path / "index", manifest, vectors, fingerprint=MODEL, engine="milvus", options={"uri": uri}
        )
    assert sent == [(uri, "root:secret;1")]


@pytest.mark.parametrize("token", [" ", "\n", "root:secret\nother: header", "\t\t"])
def test_a_malformed_token_is_refused(tmp_path, sent, monkeypatch, token):
    monkeypatch.setenv("MILVUS_TOKEN", token)
    manifest, vectors = images(range(10))
    options = {"uri": "http://mine.example:19530"}
    with pytest.raises(OptionError, match="one line of printable text"):
        Index.build(
            tmp_path / "index", manifest, vectors, fingerprint=MODEL, engine="milvus", options=options
        )
    assert sent == []


def test_only_collections_of_ours_are_ever_named(directory):
    build(directory, range(10))
    path = directory / "index.json"
    head = json.loads(path.read_text())
    head["settings"]["collection"] = "customers"
    rewrite_head(directory, head)
    with pytest.raises(SearchError, match=r"index\.json is damaged: collection"):
        Index.open(directory)


@BOTH
def test_a_collection_that_something_else_changed_is_noticed(directory):
    build(directory, range(50))
    index = Index.open(directory)
    client = MilvusClient(URI["uri"])
    client.delete(index.head.settings["collection"], ids=[3, 4])
    client.close()
    index.close()
    with pytest.raises(SearchError, match="holds 48 of the index's 50 images"):
        Index.open(directory)
    build(directory, range(50), overwrite=True)
    assert held(directory) == set(range(50))


@pytest.mark.slow
def test_a_server_that_goes_and_comes_back(milvus_server, tmp_path, monkeypatch):
    cable = Cable(milvus_server.port)
    monkeypatch.setitem(URI, "uri", f"http://127.0.0.1:{cable.port}")
    directory = tmp_path / "index"
    build(directory, OPERATIONS["build"])
    index = Index.open(directory)
    query = images([7])[1]
    before = (directory / "index.json").read_bytes()
    cable.cut()
    with monkeypatch.context() as patch:
        patch.setattr(milvus_engine, "_SEARCH_SECONDS", 5)
        patch.setattr(milvus_engine, "_CHANGE_SECONDS", 5)
        patch.setattr(milvus_engine, "_RETRY_SECONDS", 1)
        for attempt in (
            lambda: index.search(query, k=1),
            lambda: index.delete(["3.png"]),
            lambda: Index.open(directory),
        ):
            with pytest.raises(SearchError, match="Milvus at http") as raised:
                attempt()
            assert "\n" not in str(raised.value)
    assert (directory / "index.json").read_bytes() == before
    cable.mend()
    assert index.search(query, k=1)[0][0].id == "7.png"
    assert index.delete(["3.png"]) == 1
    assert held(directory) == set(OPERATIONS["build"]) - {3}
    index.close()
    cable.cut()


@pytest.mark.slow
def test_several_clients_search_while_one_changes(milvus_server, tmp_path, monkeypatch):
    monkeypatch.setitem(URI, "uri", milvus_server.uri)
    directory = tmp_path / "index"
    build(directory, OPERATIONS["build"])
    numbers = range(50, 100)  # none of the changes removes these
    queries = images(numbers)[1]
    wanted = [f"{number}.png" for number in numbers]
    stop = threading.Event()
    wrong = []

    def search():
        while not stop.is_set():
            index = Index.open(directory)
            found = [hits[0].id for hits in index.search(queries, k=1)]
            if found != wanted:
                wrong.append(found)
            index.close()

    readers = [threading.Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for op in ("add", "delete"):
            change(op, directory)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert held(directory) == set(range(5, 120))
