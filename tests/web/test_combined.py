"""Several images as one query over HTTP: the ranking and its effect on H-AP, against slow loops."""

from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient
from oracle import h_ap, level_of

from happier import HierarchyRelevance
from happier.web.app import create_app

LOCAL = {"base_url": "http://127.0.0.1"}
WANTED = ["images/red-circle-0.png", "images/red-circle-3.png"]
UNWANTED = ["images/blue-square-1.png"]


@pytest.fixture(scope="module")
def client(explorer):
    with TestClient(create_app(explorer), **LOCAL) as client:
        yield client


def slow_ranking(index, wanted, unwanted):
    """Rows from best to worst, without those of the query: one image, one number at a time."""
    query = []
    for at in range(index.head.dim):
        value = sum(float(index.vector(index.row(one))[at]) for one in wanted) / len(wanted)
        for one in unwanted:
            value -= 0.25 * float(index.vector(index.row(one))[at]) / len(unwanted)
        query.append(value)
    used = {*wanted, *unwanted}
    scored = []
    for row, item in enumerate(index.ids):
        if item not in used:
            vector = index.vector(row)
            scored.append((sum(a * float(b) for a, b in zip(query, vector, strict=True)), row))
    return [row for _, row in sorted(scored, reverse=True)]


def slow_value(index, first, rows):
    """H-AP of a ranking for the class of a row, by its definition."""
    levels = [level_of(index.labels[first].tolist(), index.labels[row].tolist()) for row in rows]
    counts = [levels.count(level) for level in range(len(index.levels) + 1)]
    relevance = HierarchyRelevance()(np.array([counts]))[0].tolist()
    return h_ap(levels, relevance, counts)


@pytest.mark.parametrize(("more", "less"), [(1, 0), (2, 0), (1, 1), (2, 1)])
def test_the_ranking_is_that_of_the_loop(client, explorer, more, less):
    index = explorer.model("a").index
    wanted, unwanted = WANTED[:more], UNWANTED[:less]
    expected = slow_ranking(index, wanted, unwanted)
    answer = client.get("/api/search", params={"id": wanted, "less": unwanted, "k": 30}).json()
    assert [hit["row"] for hit in answer["hits"]] == expected[:30]
    assert [one["name"] for one in answer["positive"]] == wanted
    assert [one["name"] for one in answer["negative"]] == unwanted
    assert answer["total"] == len(expected)
    # H-AP of the class of the first image, with and without the others, over the same images.
    first = index.row(wanted[0])
    assert answer["metrics"]["h_ap"] == pytest.approx(slow_value(index, first, expected), abs=1e-9)
    if more + less == 1:
        assert answer["alone"] is None
        return
    used = {index.row(one) for one in (*wanted, *unwanted)}
    alone = [row for row in slow_ranking(index, wanted[:1], []) if row not in used]
    assert answer["alone"]["h_ap"] == pytest.approx(slow_value(index, first, alone), abs=1e-9)
    assert answer["alone"]["counts"] == answer["metrics"]["counts"]


def test_pages_of_a_ranking_fit_together(client):
    whole = client.get("/api/search", params={"id": WANTED, "k": 30}).json()["hits"]
    parts = [
        client.get("/api/search", params={"id": WANTED, "k": 10, "offset": offset}).json()["hits"]
        for offset in (0, 10, 20)
    ]
    assert [hit for part in parts for hit in part] == whole
    assert [hit["rank"] for hit in whole] == list(range(1, 31))
    assert client.get("/api/search", params={"id": WANTED, "k": 10, "offset": 100}).json()["hits"] == []


def test_uploads_are_wanted_or_unwanted(client, explorer, photo):
    key = client.post("/api/uploads", files={"file": ("mine.png", photo)}).json()["upload"]
    index = explorer.model("a").index
    upload = explorer.uploads.get(key).vector(index.head.fingerprint)
    vector = index.vector(index.row(WANTED[0]))
    for name, query in (
        ("upload", (vector.astype(float) + upload) / 2),
        ("less_upload", vector.astype(float) - 0.25 * upload),
    ):
        answer = client.get("/api/search", params={"id": WANTED[0], name: key, "k": 5}).json()
        scores = index.vectors @ (query / np.linalg.norm(query))
        scores[index.row(WANTED[0])] = -2
        assert [hit["row"] for hit in answer["hits"]] == np.argsort(-scores)[:5].tolist()
        side = answer["positive" if name == "upload" else "negative"]
        assert side[-1]["upload"] == key
    # The upload comes first: it says what is being looked for.
    mixed = client.get("/api/search", params={"upload": key, "more": WANTED, "label": "warm/red"}).json()
    assert [one["name"] for one in mixed["positive"]] == ["mine.png", *WANTED]
    assert mixed["query"]["upload"] == key
    assert client.get("/api/search", params={"more": WANTED}).status_code == 422
    said = client.get("/api/search", params={"upload": key, "label": "warm/red", "less": UNWANTED}).json()
    assert said["metrics"]["h_ap"] is not None
    assert said["query"]["class_path"] == "warm/red"


def test_up_to_four_models_answer(place):
    from happier.errors import OptionError
    from happier.search import Index
    from happier.web.explorer import Explorer

    indexes = [Index.open(place / f"{name}.index") for name in "abab"]
    explorer = Explorer(indexes[0], indexes[1:])
    assert list(explorer.models) == ["a", "b", "c", "d"]
    with TestClient(create_app(explorer), **LOCAL) as client:
        assert [side["side"] for side in client.get("/api/info").json()["sides"]] == ["a", "b", "c", "d"]
        found = {
            side: client.get("/api/search", params={"id": WANTED[0], "side": side}).json() for side in "abcd"
        }
        ids = {side: [hit["id"] for hit in answer["hits"]] for side, answer in found.items()}
        assert ids["a"] == ids["c"] != ids["b"] == ids["d"]
        assert client.get(found["d"]["hits"][0]["thumbnail"]).status_code == 200
    with pytest.raises(OptionError, match="at most 4 indexes can be compared, got 5"):
        Explorer(indexes[0], indexes)
