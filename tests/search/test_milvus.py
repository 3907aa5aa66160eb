"""The Milvus engine: addresses, and a token that goes nowhere else."""

from __future__ import annotations

import json
import threading
from contextlib import closing

import pytest
from pymilvus import MilvusClient

from happier.errors import EngineUnavailableError, OptionError, SearchError
from happier.search import Index, milvus_engine, milvus_server
from tests.search.index_worker import MODEL, OPERATIONS, held, images, rewrite_head
from tests.search.milvus_standalone import TOKEN, restart_server
from tests.search.servers import milvus


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


def test_a_server_is_waited_for_until_no_rows_are_pending(monkeypatch):
    """It answers that all rows are indexed while it merges parts, and searches slowly until that is done."""
    states = [(5, 5), (10, 6), (10, 0)]

    class Client:
        def describe_index(self, *_arguments, **_options):
            indexed, pending = states.pop(0)
            return {"indexed_rows": indexed, "total_rows": 10, "pending_index_rows": pending}

    monkeypatch.setattr(milvus_engine, "_POLL_SECONDS", 0)
    settings = milvus_engine.MilvusSettings(
        uri="http://127.0.0.1:1", collection="happier_" + 32 * "0", index_type="HNSW", effort=96, depth=1
    )
    milvus_engine.MilvusEngine(Client(), settings)._wait_for_structure()
    assert not states


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


def test_only_collections_of_ours_are_ever_named(tmp_path):
    directory = tmp_path / "index"
    milvus(str(tmp_path / "catalogue.db")).build(directory, range(10))
    path = directory / "index.json"
    head = json.loads(path.read_text())
    head["settings"]["collection"] = "customers"
    rewrite_head(directory, head)
    with pytest.raises(SearchError, match=r"index\.json is damaged: collection"):
        Index.open(directory)


def test_half_a_search_structure_is_built_again(tmp_path, caplog):
    """Milvus-lite writes it in place: a kill there leaves a file that it cannot read."""
    directory, uri = tmp_path / "index", tmp_path / "catalogue.db"
    milvus(str(uri)).build(directory, range(20))
    (structure,) = uri.rglob("*.idx")
    structure.write_bytes(structure.read_bytes()[:100])
    client = MilvusClient(str(uri))
    client.release_collection(client.list_collections()[0])  # as in a new process
    client.close()
    with closing(Index.open(directory)) as index:
        assert index.search(images([7])[1], k=1)[0][0].id == "7.png"
    assert f"{uri}: the search structure is damaged, and built again" in caplog.messages
    assert len(structure.read_bytes()) > 100


@pytest.mark.slow
def test_a_wrong_token_is_one_line(milvus_server, tmp_path, monkeypatch):
    monkeypatch.setenv("MILVUS_TOKEN", "root:wrong")
    with pytest.raises(SearchError, match="Milvus at http") as raised:
        milvus(milvus_server.uri).build(tmp_path / "index", range(10))
    assert "\n" not in str(raised.value)
    assert "wrong" not in str(raised.value)
    assert not (tmp_path / "index").exists()


@pytest.fixture
def the_server_searches(monkeypatch):
    monkeypatch.setattr(milvus_engine, "SCAN_ROWS", 0)


@pytest.mark.slow
def test_a_collection_that_somebody_released_is_loaded_again(milvus_server, tmp_path, the_server_searches):
    milvus(milvus_server.uri).build(tmp_path / "index", range(20))
    index = Index.open(tmp_path / "index")
    client = MilvusClient(milvus_server.uri, token=TOKEN)
    client.release_collection(index.head.settings["collection"])
    client.close()
    assert index.search(images([7])[1], k=1)[0][0].id == "7.png"
    index.close()


@pytest.mark.slow
def test_a_search_waits_for_the_last_change_and_no_longer(milvus_server, tmp_path, the_server_searches):
    server = milvus(milvus_server.uri)
    times = [0]
    for change in ("build", "add", "delete"):
        server.change(change, tmp_path / "index")
        index = Index.open(tmp_path / "index")
        times.append(index.head.settings["written_at"])
        query = images([50])[1]
        hits = index.search(query, k=len(index))[0]  # a search right after the change sees all of it
        assert sorted(hit.id for hit in hits) == sorted(index.ids)
        index.close()
    assert times == sorted(set(times))


@pytest.mark.slow
def test_a_server_that_restarts_in_the_middle(milvus_server, tmp_path, the_server_searches):
    """Killed, and started again with its data, while one client searches and another adds images."""
    directory = tmp_path / "index"
    milvus(milvus_server.uri).build(directory, OPERATIONS["build"])
    running = threading.Event()
    running.set()
    errors: list[SearchError] = []
    answers: list[str] = []
    added: list[int] = []

    def retried(work):
        while True:
            try:
                return work()
            except SearchError as error:
                errors.append(error)

    def search(index):
        query = images([7])[1]
        while running.is_set():
            answers.append(retried(lambda: index.search(query, k=1))[0][0].id)
        index.close()

    def add(index):
        while running.is_set():
            number = 100 + len(added)
            retried(lambda number=number: index.add(*images([number]), fingerprint=MODEL))
            added.append(number)
        index.close()

    clients = [threading.Thread(target=one, args=(Index.open(directory),)) for one in (search, add)]
    for client in clients:
        client.start()
    restart_server(milvus_server.folder)
    running.clear()  # each ends with an answer that it got after the restart
    for client in clients:
        client.join()
    assert set(answers) == {"7.png"}
    # None where it was back while clients went on asking.
    assert {type(one) for one in errors} <= {EngineUnavailableError}
    assert not any("\n" in str(one) for one in errors)
    assert held(directory) == {*OPERATIONS["build"], *added}
