"""Answers that are repeated: only complete ones, only of the same address, never of an older state."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from starlette.testclient import TestClient

from happier.search import Index
from happier.web.app import create_app
from happier.web.explorer import Explorer
from happier.web.middleware.answer_cache import AnswerCacheMiddleware

BASE = "http://127.0.0.1"
FIRST = "images/red-circle-0.png"


class Counting:
    """An application that answers with a number which rises with each request."""

    def __init__(self, *, status=200, pieces=1, size=4, during=lambda: None):
        self.calls = 0
        self._status, self._pieces, self._size, self._during = status, pieces, size, during

    async def __call__(self, scope, receive, send):
        self.calls += 1
        self._during()
        await send({"type": "http.response.start", "status": self._status, "headers": []})
        for left in reversed(range(self._pieces)):
            body = str(self.calls).encode().ljust(self._size)
            await send({"type": "http.response.body", "body": body, "more_body": left > 0})


def ask(app, path="/api/search", query=b"id=1", method="GET", headers=()):
    sent = []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": list(headers),
    }

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, None, send))
    return b"".join(message.get("body", b"") for message in sent).strip()


def test_an_answer_is_repeated_until_the_state_changes():
    state = ["a"]
    app = Counting()
    cached = AnswerCacheMiddleware(app, version=lambda: state[0])
    assert [ask(cached) for _ in range(3)] == [b"1"] * 3
    assert ask(cached, query=b"id=2") == b"2"
    assert ask(cached) == b"1"
    state[0] = "b"
    assert [ask(cached) for _ in range(2)] == [b"3"] * 2
    assert app.calls == 3


@pytest.mark.parametrize(
    "request_",
    [
        {"query": b"upload=0123"},
        {"query": b"k=3&upload=0123"},
        {"method": "POST"},
        {"method": "HEAD"},
        {"path": "/api/info"},
        {"path": "/api/mistakes"},
        {"path": "/thumbnails/a/1", "headers": [(b"if-none-match", b'"x"')]},
    ],
)
def test_what_may_differ_is_computed_each_time(request_):
    cached = AnswerCacheMiddleware(Counting(), version=lambda: 0)
    assert [ask(cached, **request_) for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("options", [{"status": 404}, {"status": 503}, {"pieces": 2}, {"size": 5_000}])
def test_only_whole_answers_that_fit_are_kept(options):
    app = Counting(**options)
    cached = AnswerCacheMiddleware(app, version=lambda: 0, limit=4_000)
    ask(cached)
    ask(cached)
    assert app.calls == 2


def test_an_answer_during_whose_making_the_state_changed_is_not_kept():
    state = ["a"]
    app = Counting(during=lambda: state.__setitem__(0, "b"))
    cached = AnswerCacheMiddleware(app, version=lambda: state[0])
    assert [ask(cached) for _ in range(3)] == [b"1", b"2", b"2"]


def test_memory_is_bounded():
    cached = AnswerCacheMiddleware(Counting(size=1_000), version=lambda: 0, limit=10_000)
    for number in range(50):
        ask(cached, query=f"id={number}".encode())
    assert len(cached._answers) == 4
    assert ask(cached, query=b"id=49") == b"50"


def test_the_server_never_repeats_an_answer_of_an_older_state(place, tmp_path):
    shutil.copytree(place / "a.index", tmp_path / "a.index")
    explorer = Explorer(Index.open(tmp_path / "a.index"))
    with TestClient(create_app(explorer), base_url=BASE) as client:

        def search():
            answer = client.get("/api/search", params={"id": FIRST, "k": 5}).json()
            return answer["version"], [hit["id"] for hit in answer["hits"]]

        version, ids = search()
        assert search() == (version, ids)
        Index.open(tmp_path / "a.index").delete(ids[:2])
        explorer.refresh()
        after, rest = search()
        assert after != version
        assert not set(rest) & set(ids[:2])
        # An image that is gone has no answer any more, although there was one.
        Index.open(tmp_path / "a.index").delete([FIRST])
        explorer.refresh()
        assert client.get("/api/search", params={"id": FIRST, "k": 5}).status_code == 404
