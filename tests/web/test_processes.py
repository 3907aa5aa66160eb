"""Several processes on one address: they share uploads and counters, and one that dies is replaced."""

from __future__ import annotations

import os
import shutil
import signal
import time

import httpx
import pytest

from happier.bench.http_load import serve
from happier.bench.soak import ranking_fault, soak

pytestmark = pytest.mark.slow
TOKEN = "w" * 20


def test_processes_share_and_are_replaced(place, tmp_path, photo):
    shutil.copytree(place / "a.index", tmp_path / "a.index")
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[anna]\ntoken = "{TOKEN}"\nrole = "write"\n')
    headers = {"authorization": f"Bearer {TOKEN}"}

    def ask(method, path, **options):
        """Each request on a connection of its own, so that any process may take it."""
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers, timeout=60) as client:
            while True:
                try:
                    return client.request(method, path, **options)
                except httpx.TransportError:  # its process was killed
                    time.sleep(0.05)

    with serve(tmp_path / "a.index", "2", str(tmp_path / "added"), str(tokens)) as server:
        files = {"file": ("x.png", photo, "image/png")}
        key = ask("POST", "/api/uploads", files=files).json()["upload"]
        while len(server.workers()) < 2:
            time.sleep(0.05)
        assert all(ask("GET", f"/uploads/{key}").status_code == 200 for _ in range(10))
        added = ask("POST", "/api/images", files=files, data={"id": "mine"})
        assert added.status_code == 201
        # At once in every process, also in one that had another state open.
        assert {ask("GET", "/api/items").json()["version"] for _ in range(10)} == {added.json()["version"]}
        assert {ask("GET", "/api/search?id=mine").status_code for _ in range(10)} == {200}
        removed = ask("DELETE", "/api/images?id=mine")
        assert {ask("GET", "/api/items").json()["total"] for _ in range(10)} == {removed.json()["images"]}
        killed = server.workers()[0]
        killed.kill()
        while killed in server.workers() or len(server.workers()) < 2:
            assert ask("GET", f"/api/search?upload={key}").status_code == 200
        # A reload reaches all processes: the token is no longer valid.
        tokens.write_text(f'[ben]\ntoken = "{"b" * 20}"\n')
        os.kill(server.process.pid, signal.SIGHUP)
        while ask("GET", "/api/info").status_code != 401:
            time.sleep(0.05)


def test_a_short_soak_finds_nothing_wrong():
    found = soak(minutes=0.1, clients=3, images=120)
    assert (found.wrong, found.failed, found.lost, found.faults) == (0, 0, 0, ())
    assert found.checked > 10
    assert found.added > 0


def test_a_wrong_ranking_is_found():
    ids, scores = ["a", "b", "c"], [0.9, 0.5, 0.1]

    def hits(*pairs):
        return [{"id": one, "score": score, "rank": rank} for rank, (one, score) in enumerate(pairs, 1)]

    right = hits(("b", 0.5), ("c", 0.1))
    assert ranking_fault(right, ids, scores, "a") == ""
    assert "2 expected" in ranking_fault(right[:1], ids, scores, "a")
    assert "rank 1" in ranking_fault(hits(("c", 0.1), ("b", 0.5)), ids, scores, "a")
    assert "not in this state" in ranking_fault(hits(("x", 0.5), ("c", 0.1)), ids, scores, "a")
    assert "has the score" in ranking_fault(hits(("b", 0.7), ("c", 0.1)), ids, scores, "a")
    assert "2 results, 1 different" in ranking_fault(hits(("b", 0.5), ("b", 0.5)), ids, scores, "a")
