"""A server whose index is in PostgreSQL: the same answers, and 503 while the database is gone."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from happier.data import Manifest
from happier.search import Index, pgvector_engine, pgvector_server
from happier.web.app import create_app
from happier.web.explorer import Explorer

FIRST = "images/red-circle-0.png"


@pytest.fixture
def copy(place, tmp_path, postgres):
    """The images of an index in PostgreSQL."""
    index = Index.open(place / "a.index")
    return Index.build(
        tmp_path / "a.index",
        Manifest(index.items.table, levels=index.levels, root=index.head.root),
        index.vectors,
        fingerprint=index.head.fingerprint,
        engine="pgvector",
        options={"uri": postgres.uri},
    )


def test_answers_are_those_of_exact_search_and_a_database_that_is_gone_is_said(
    copy, place, postgres, monkeypatch
):
    monkeypatch.setattr(pgvector_engine, "SCAN_ROWS", 0)
    monkeypatch.setattr(pgvector_server, "_RETRY_SECONDS", 0.5)
    exact = Index.open(place / "a.index").search_id(FIRST, k=5)
    with TestClient(create_app(Explorer(copy)), base_url="http://127.0.0.1") as client:
        answer = client.get("/api/search", params={"id": FIRST, "k": 5})
        assert [hit["id"] for hit in answer.json()["hits"]] == [hit.id for hit in exact]
        postgres.stop()
        try:
            gone = client.get("/api/search", params={"id": FIRST, "k": 6})
        finally:
            postgres.start()
        assert gone.status_code == 503
        assert gone.headers["retry-after"] == "10"
        assert "PostgreSQL at 127.0.0.1" in gone.json()["detail"]
        assert client.get("/api/search", params={"id": FIRST, "k": 6}).status_code == 200
    copy.close()
