"""``/api/identify``: the same answers as the index, for its own images and for uploads; and the page."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from happier.search import Index
from happier.web.app import create_app


@pytest.fixture(scope="module")
def client(explorer):
    with TestClient(create_app(explorer), base_url="http://127.0.0.1") as client:
        yield client


def test_an_image_of_the_index_is_named_by_the_others(client, place):
    with_id = {"id": "images/red-circle-0.png", "sure": 0.5}
    answer = client.get("/api/identify", params=with_id).json()
    own = Index.open(place / "a.index").identify_id("images/red-circle-0.png", sure=0.5)
    assert answer["answer"]["class_path"] == own.answer.class_path
    assert [step["class_path"] for step in answer["steps"]] == [step.class_path for step in own.steps]
    assert answer["steps"][1]["probability"] == pytest.approx(own.steps[1].probability)
    assert [hit["id"] for hit in answer["neighbours"]] == [hit.id for hit in own.neighbours]
    assert answer["rough"]
    inside = client.get("/api/identify", params={**with_id, "within": "cold"}).json()
    assert all(step["names"][0] == "cold" for step in inside["steps"])


def test_an_upload_is_named(client, photo):
    key = client.post("/api/uploads", files={"file": ("my.png", photo, "image/png")}).json()["upload"]
    answer = client.get("/api/identify", params={"upload": key, "sure": 0.01}).json()
    assert answer["answer"]["level"] >= 1
    assert answer["answer"]["class_path"] == answer["steps"][answer["answer"]["level"]]["class_path"]


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({}, 422),
        ({"id": "nowhere.png"}, 404),
        ({"id": "images/red-circle-0.png", "within": "hot"}, 404),
        ({"id": "images/red-circle-0.png", "sure": 0}, 422),
        ({"id": "images/red-circle-0.png", "sure": 1.1}, 422),
    ],
)
def test_refusals_say_why(client, values, status):
    answer = client.get("/api/identify", params=values)
    assert answer.status_code == status
    assert answer.json()["detail"]
