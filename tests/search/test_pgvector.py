"""The pgvector engine: addresses, a password that goes nowhere else, and tables to join with."""

from __future__ import annotations

import json
import os
import signal

import psycopg
import pytest

from happier.errors import OptionError, SearchError
from happier.search import Index, measure_recall, pgvector_engine, pgvector_server
from happier.search.pgvector_server import PostgresAddress
from tests.search.index_worker import MODEL, OPERATIONS, held, images, rewrite_head
from tests.search.servers import postgres as on_postgres

URI = "postgresql://me@db.example:5433/photos?sslmode=require"


def build(directory, numbers, uri, *, overwrite=False, **options):
    manifest, vectors = images(numbers)
    options["uri"] = uri
    return Index.build(
        directory,
        manifest,
        vectors,
        fingerprint=MODEL,
        engine="pgvector",
        options=options,
        overwrite=overwrite,
    )


def sql(server, statement, *values):
    with psycopg.connect(server.uri, password=server.password, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def test_an_address_is_taken_apart():
    assert PostgresAddress.parse(URI) == PostgresAddress("db.example", 5433, "require", "photos", "me")
    socket = PostgresAddress.parse("postgresql:///photos?host=/var/run/postgresql")
    assert socket == PostgresAddress("/var/run/postgresql", 5432, "", "photos", "")
    assert PostgresAddress.parse("postgres://[::1]/a%20b").database == "a b"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "needs a uri"),
        ("two\nlines", "needs a uri"),
        ("catalogue.db", "is given as postgresql://USER@HOST"),
        ("mysql://host/db", "is given as postgresql://USER@HOST"),
        ("postgresql:///db", "is given as postgresql://USER@HOST"),
        ("postgresql://one,two/db", "is given as postgresql://USER@HOST"),
        ("postgresql://host:port/db", "not the address of a database"),
        ("postgresql://me:secret@host/db", "give the password in PGPASSWORD"),
        ("postgresql://host/db?password=secret", "got 'password'"),
        ("postgresql://host/db?hostaddr=6.6.6.6", "got 'hostaddr'"),
        ("postgresql://host/db?passfile=/tmp/x", "got 'passfile'"),
        ("postgresql://host/db?host=evil.example", "the folder of a socket"),
        ("postgresql://host/db?host=/tmp", "the only host"),
        ("postgresql://host/db?sslmode=maybe", "sslmode must be one of"),
        ("postgresql://127.0.0.1:1/db", "failed to answer: connection failed"),
    ],
)
def test_a_bad_uri_is_one_line(tmp_path, uri, message, monkeypatch):
    monkeypatch.setattr(pgvector_server, "_RETRY_SECONDS", 0.1)
    with pytest.raises((OptionError, SearchError), match=message) as raised:
        build(tmp_path / "index", range(10), uri)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert not (tmp_path / "index").exists()


@pytest.fixture
def sent(monkeypatch):
    """Notes where the password would be sent."""
    connected = []

    def connect(host, port, sslmode, **_):
        connected.append((host, port, sslmode))
        raise psycopg.OperationalError("FATAL: no network here")

    monkeypatch.setattr(pgvector_server.psycopg, "connect", connect)
    monkeypatch.setattr(pgvector_server, "_allowed", set())
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.delenv("PGVECTOR_URI", raising=False)
    return connected


def test_an_index_from_elsewhere_does_not_get_the_password(tmp_path, sent, monkeypatch):
    directory = tmp_path / "index"
    Index.build(directory, *images(range(10)), fingerprint=MODEL)
    head = json.loads((directory / "index.json").read_text())
    settings = {
        "uri": URI,
        "schema_name": "public",
        "table": "happier_" + "0" * 32,
        "depth": 2,
        "index_type": "hnsw",
        "effort": 96,
    }
    rewrite_head(directory, {**head, "engine": "pgvector", "settings": settings, "options": {"uri": URI}})
    for this, that in ((URI, ""), ("db.", "my."), ("5433", "5432"), ("require", "prefer")):
        monkeypatch.setenv("PGVECTOR_URI", URI.replace(this, that))
        with pytest.raises(SearchError, match="PGPASSWORD is sent only to servers that you name"):
            Index.open(directory)
    assert sent == []
    monkeypatch.setenv("PGVECTOR_URI", f"postgresql://mine.example/x, {URI}")
    with pytest.raises(SearchError, match="no network here"):
        Index.open(directory)
    assert sent == [("db.example", 5433, "require")]
    # Without a password there is nothing to take.
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.delenv("PGVECTOR_URI")
    with pytest.raises(SearchError, match="no network here"):
        Index.open(directory)


def test_a_server_that_the_user_names_gets_the_password(tmp_path, sent):
    with pytest.raises(SearchError, match="no network here"):
        build(tmp_path / "index", range(10), URI)
    assert sent == [("db.example", 5433, "require")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "Photos; DROP TABLE x"}, "lower-case letters, digits and underscores"),
        ({"index_type": "ivfflat"}, "one of hnsw, flat"),
        ({"effort": 1001}, "from 1 to 1,000"),
    ],
)
def test_options_are_checked(tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        build(tmp_path / "index", range(10), URI, **options)


def test_vectors_too_long_for_the_graph_are_refused():
    with pytest.raises(OptionError, match="up to 2,000 dimensions, these have 2,048"):
        pgvector_engine.choose_pgvector(2048, {"uri": URI})


def test_a_wrong_password_is_one_line_at_once(tmp_path, postgres, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(SearchError, match="password authentication failed") as raised:
        build(tmp_path / "index", range(10), postgres.uri)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "index").exists()


def test_the_password_is_not_written(tmp_path, postgres):
    build(tmp_path / "index", range(10), postgres.uri).close()
    for path in (tmp_path / "index").rglob("*"):
        assert not path.is_file() or postgres.password.encode() not in path.read_bytes()


def test_other_queries_join_with_the_view(tmp_path, postgres):
    directory = tmp_path / "index"
    sql(postgres, "DROP TABLE IF EXISTS prices CASCADE")
    sql(postgres, "CREATE TABLE prices AS SELECT '7.png' AS id, 12 AS euros")
    build(directory, range(50), postgres.uri, view="photos").close()
    joined = "SELECT class_path, euros FROM photos JOIN prices USING (id)"
    assert sql(postgres, joined) == [("a/b", 12)]
    # The name stays when the table behind it is another one.
    table = Index.open(directory).head.settings["table"]
    Index.open(directory).delete([f"{number}.png" for number in range(20, 50)])
    assert Index.open(directory).head.settings["table"] != table
    assert sql(postgres, joined) == [("a/b", 12)]
    assert sql(postgres, "SELECT count(*) FROM photos") == [(20,)]
    Index.open(directory).add(*images([60]), fingerprint=MODEL)
    assert sql(postgres, "SELECT count(*) FROM photos") == [(21,)]
    # The nearest, straight from the database.
    vector = str(images([7])[1][0].tolist())
    nearest = "SELECT id FROM photos ORDER BY embedding <#> %s::vector LIMIT 1"
    assert sql(postgres, nearest, vector) == [("7.png",)]
    with pytest.raises(SearchError, match=r"public\.prices already exists in the database"):
        build(tmp_path / "other", range(10), postgres.uri, view="prices")
    assert not (tmp_path / "other").exists()


def test_a_view_that_went_missing_comes_back(tmp_path, postgres):
    build(tmp_path / "index", range(50), postgres.uri, view="pictures").close()
    sql(postgres, "DROP VIEW pictures")
    Index.open(tmp_path / "index").delete(["3.png"])
    assert sql(postgres, "SELECT count(*) FROM pictures") == [(49,)]


def test_only_tables_of_ours_are_ever_named(tmp_path, postgres):
    directory = tmp_path / "index"
    build(directory, range(10), postgres.uri).close()
    head = json.loads((directory / "index.json").read_text())
    head["settings"]["table"] = "customers"
    rewrite_head(directory, head)
    with pytest.raises(SearchError, match=r"index\.json is damaged: table"):
        Index.open(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP TABLE {}", "has no table public.happier_"),
        ("ALTER TABLE {} DROP COLUMN position", "failed to count its rows"),
        ("TRUNCATE {}", "holds 0 of the index's 10 images"),
    ],
)
def test_a_table_that_somebody_changed_is_one_line(tmp_path, postgres, change, message):
    directory = tmp_path / "index"
    build(directory, range(10), postgres.uri).close()
    sql(postgres, change.format(Index.open(directory).head.settings["table"]))
    with pytest.raises(SearchError, match=message) as raised:
        Index.open(directory)
    assert "\n" not in str(raised.value)
    build(directory, range(10), postgres.uri, overwrite=True).close()
    assert held(directory) == set(range(10))


def test_the_graph_finds_what_a_filter_leaves(tmp_path, postgres, new_catalogue, monkeypatch):
    """Where a filter hides most of what the graph found, the rest comes from a scan."""
    monkeypatch.setattr(pgvector_engine, "SCAN_ROWS", 0)
    catalogue = new_catalogue(3000)
    options = {"uri": postgres.uri, "effort": 10}
    index = Index.build(
        tmp_path / "index",
        catalogue.manifest,
        catalogue.vectors,
        fingerprint=MODEL,
        engine="pgvector",
        options=options,
    )
    assert index.head.recall.kept
    assert measure_recall(index, queries=100) >= 0.95
    hits = index.search(catalogue.vectors[:20], k=1500)
    assert [len(found) for found in hits] == [1500] * 20
    hits = index.search(catalogue.vectors[:20], k=300, within="kind 1")
    assert [len(found) for found in hits] == [300] * 20
    assert {hit.class_path.split("/")[0] for found in hits for hit in found} == {"kind 1"}
    index.close()


def test_a_server_that_restarts_in_the_middle(tmp_path, postgres):
    directory = tmp_path / "index"
    server = on_postgres(postgres.uri, postgres.password)
    server.build(directory, OPERATIONS["build"])
    index = Index.open(directory)
    query = images([7])[1]
    assert index.search(query, k=1)[0][0].id == "7.png"
    for how in (signal.SIGINT, signal.SIGQUIT):  # a restart, and a crash
        postgres.stop(how)
        postgres.start()
        assert index.search(query, k=1)[0][0].id == "7.png"
    server.change("add", directory)
    assert held(directory) == {*OPERATIONS["build"], *OPERATIONS["add"]}
    index.close()


def test_a_process_that_dies_inside_a_transaction_leaves_none_of_it(tmp_path, postgres):
    directory = tmp_path / "index"
    build(directory, range(30), postgres.uri).close()
    table = Index.open(directory).head.settings["table"]
    child = os.fork()
    if child == 0:
        real = psycopg.Copy.write_row
        seen = []

        def write_row(self, row):
            seen.append(row)
            if len(seen) == 10:
                os._exit(9)
            real(self, row)

        psycopg.Copy.write_row = write_row
        Index.open(directory).add(*images(range(100, 120)), fingerprint=MODEL)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert sql(postgres, f"SELECT count(*) FROM {table}") == [(30,)]
    assert held(directory) == set(range(30))
    Index.open(directory).add(*images(range(100, 120)), fingerprint=MODEL)
    assert held(directory) == {*range(30), *range(100, 120)}
