"""Engines on servers: in step with ``index.json`` whatever is killed, changed by others, or gone."""

from __future__ import annotations

import itertools
import threading

import pytest

from happier.errors import SearchError
from happier.search import Index, milvus_engine, pgvector_engine, pgvector_server
from happier.search.settings import outside_name
from tests.search.index_worker import MODEL, OPERATIONS, after, held, images
from tests.search.milvus_standalone import Cable
from tests.search.servers import Killed, milvus, postgres

CHANGES = [name for name in OPERATIONS if name != "build"]
REAL = [pytest.param("milvus", marks=pytest.mark.slow), "postgres"]
ALL = ["milvus-lite", *REAL]


@pytest.fixture(autouse=True)
def _the_server_searches(monkeypatch):
    """Small branches are scanned here, and all of these are small."""
    monkeypatch.setattr(milvus_engine, "SCAN_ROWS", 0)
    monkeypatch.setattr(pgvector_engine, "SCAN_ROWS", 0)


@pytest.fixture(params=ALL)
def server(request, tmp_path):
    if request.param == "milvus-lite":
        return milvus(str(tmp_path / "catalogue.db"))
    if request.param == "milvus":
        return milvus(request.getfixturevalue("milvus_server").uri)
    runs = request.getfixturevalue("postgres")
    return postgres(runs.uri, runs.password)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "index"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "op"),
    [
        *(("milvus-lite", op) for op in CHANGES),
        *(("milvus", op) for op in ("add", "delete", "overwrite")),
        *(("postgres", op) for op in CHANGES),
    ],
    indirect=["server"],
)
def test_a_killed_change_leaves_the_old_state_or_the_new(server, directory, op):
    others = server.kept()
    server.build(directory, OPERATIONS["build"])
    for moment in itertools.count(1):
        state = held(directory)
        with pytest.MonkeyPatch.context() as patch:
            server.kill_at(patch, moment)
            try:
                server.change(op, directory)
                break
            except Killed:
                pass
        there = held(directory)
        assert there in (state, after(state, op))
        server.build(directory, OPERATIONS["build"], overwrite=True)
        if server.alone:
            assert server.kept() - others == {outside_name(Index.open(directory).head.settings)}
    assert held(directory) == after(state, op)
    assert moment > 5


@pytest.mark.parametrize("server", ["milvus-lite", "postgres"], indirect=True)
def test_a_killed_build_leaves_nothing_behind_for_long(server, directory):
    others = server.kept()
    for moment in range(1, 12):
        with pytest.MonkeyPatch.context() as patch:
            server.kill_at(patch, moment)
            with pytest.raises(Killed):
                server.build(directory, range(10))
    server.build(directory, range(10))
    assert held(directory) == set(range(10))
    assert len(server.kept() - others) == 1


def test_deleted_images_stay_away_until_the_server_forgets_them(server, directory, monkeypatch):
    server.build(directory, OPERATIONS["build"])
    with monkeypatch.context() as patch:
        for kind in (milvus_engine.MilvusEngine, pgvector_engine.PgvectorEngine):
            patch.setattr(kind, "clean", lambda self: False)
        server.change("delete", directory)
    index = Index.open(directory)
    assert index.head.settings["dead"] == [0, 1, 2, 3, 4]
    # All the others are found, although the server still holds the deleted ones.
    assert len(index.search(images([0])[1], k=95)[0]) == 95
    index.close()
    server.change("add", directory)
    assert Index.open(directory).head.settings["dead"] == []
    assert held(directory) == set(range(5, 120))


def test_what_something_else_changed_is_noticed(server, directory):
    server.build(directory, range(50))
    server.forget(outside_name(Index.open(directory).head.settings), [3, 4])
    with pytest.raises(SearchError, match="holds 48 of the index's 50 images"):
        Index.open(directory)
    server.build(directory, range(50), overwrite=True)
    assert held(directory) == set(range(50))


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_a_server_that_goes_and_comes_back(server, directory, monkeypatch):
    host, _, port = server.uri.partition("127.0.0.1:")
    number, _, rest = port.partition("/")
    cable = Cable(int(number))
    server = server.at(f"{host}127.0.0.1:{cable.port}/{rest}".rstrip("/"))
    monkeypatch.setenv("PGVECTOR_URI", server.uri)
    server.build(directory, OPERATIONS["build"])
    index = Index.open(directory)
    query = images([7])[1]
    before = (directory / "index.json").read_bytes()
    cable.cut()
    with monkeypatch.context() as patch:
        for module in (milvus_engine, pgvector_server):
            patch.setattr(module, "_SEARCH_SECONDS", 5)
            patch.setattr(module, "_RETRY_SECONDS", 1)
        patch.setattr(milvus_engine, "_CHANGE_SECONDS", 5)
        for attempt in (
            lambda: index.search(query, k=1),
            lambda: index.delete(["3.png"]),
            lambda: Index.open(directory),
        ):
            with pytest.raises(SearchError, match=r"(Milvus|PostgreSQL) at ") as raised:
                attempt()
            assert "\n" not in str(raised.value)
    assert (directory / "index.json").read_bytes() == before
    cable.mend()
    assert index.search(query, k=1)[0][0].id == "7.png"
    assert index.delete(["3.png"]) == 1
    assert held(directory) == set(OPERATIONS["build"]) - {3}
    index.close()
    cable.cut()


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_a_short_break_is_not_noticed(server, directory, monkeypatch):
    """Cut, and mended while the request is asked again."""
    host, _, port = server.uri.partition("127.0.0.1:")
    number, _, rest = port.partition("/")
    cable = Cable(int(number))
    server = server.at(f"{host}127.0.0.1:{cable.port}/{rest}".rstrip("/"))
    monkeypatch.setenv("PGVECTOR_URI", server.uri)
    server.build(directory, range(20))
    index = Index.open(directory)
    cable.cut()
    threading.Timer(0.6, cable.mend).start()
    assert index.search(images([7])[1], k=1)[0][0].id == "7.png"
    index.close()
    cable.cut()


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_several_clients_search_while_one_changes(server, directory):
    server.build(directory, OPERATIONS["build"])
    numbers = range(50, 100)  # none of the changes removes these
    queries = images(numbers)[1]
    wanted = [f"{number}.png" for number in numbers]
    stop = threading.Event()
    shared = Index.open(directory)  # one object in several threads, and objects of their own
    wrong = []

    def search(index):
        while not stop.is_set():
            mine = index or Index.open(directory)
            found = [hits[0].id for hits in mine.search(queries, k=1)]
            if found != wanted:
                wrong.append(found)
            if index is None:
                mine.close()

    readers = [threading.Thread(target=search, args=(one,)) for one in (None, None, shared, shared)]
    for reader in readers:
        reader.start()
    try:
        for op in ("add", "delete"):
            server.change(op, directory)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    shared.close()
    assert wrong == []
    assert held(directory) == set(range(5, 120))


@pytest.mark.parametrize("server", REAL, indirect=True)
def test_two_writers_lose_nothing(server, directory):
    server.build(directory, range(10))
    failed = []

    def add(numbers):
        index = Index.open(directory)
        for number in numbers:
            try:
                index.add(*images([number]), fingerprint=MODEL)
            except SearchError as error:
                failed.append(error)
        index.close()

    writers = [threading.Thread(target=add, args=(range(first, first + 3),)) for first in (100, 200)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failed == []
    assert held(directory) == {*range(10), *range(100, 103), *range(200, 203)}
