"""The JSON API: search, browse, mistakes, pictures, and what it refuses."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import threading
import time

import numpy as np
import pytest
from PIL import Image
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient

import happier
from happier.search import Index
from happier.web.app import create_app
from happier.web.routes import pages

BASE = "http://127.0.0.1"


@pytest.fixture(scope="module")
def client(explorer):
    with TestClient(create_app(explorer), base_url=BASE) as client:
        yield client


@pytest.fixture(scope="module")
def both(comparison):
    with TestClient(create_app(comparison), base_url=BASE) as client:
        yield client


def wait_ready(client, address, /, **values):
    while True:
        answer = client.get(address, params=values)
        assert answer.status_code == 200, answer.text
        if answer.json()["ready"]:
            return answer.json()
        time.sleep(0.05)


def test_health_and_info(client):
    assert client.get("/api/health").json()["status"] == "ok"
    info = client.get("/api/info").json()
    assert info["levels"] == ["tone", "colour", "shape"]
    assert [(side["name"], side["images"], side["embeds"]) for side in info["sides"]] == [("a", 61, True)]


def test_search_by_id_is_the_indexs_own_search(client, place):
    index = Index.open(place / "a.index")
    one = index.ids[7]
    answer = client.get("/api/search", params={"id": one, "k": 12}).json()
    expected = index.search_id(one, k=12)
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in expected]
    assert [hit["rank"] for hit in answer["hits"]] == list(range(1, 13))
    mine = index.class_paths[7].split("/")
    for hit in answer["hits"]:
        theirs = hit["class_path"].split("/")
        assert hit["level"] == next((at for at in range(3) if mine[at : at + 1] != theirs[at : at + 1]), 3)


def test_query_metrics_are_those_of_evaluate(client, place):
    index = Index.open(place / "a.index")
    labels, numbers = index.labels, np.arange(len(index))
    result = happier.evaluate(
        index.vectors, labels, index.vectors, labels, numbers, numbers, ks=(1, 10), level_names=index.levels
    )
    for row in (0, 8, 33):
        metrics = client.get("/api/search", params={"id": index.ids[row]}).json()["metrics"]
        assert metrics["h_ap"] == pytest.approx(result.per_query["H-AP"][row], abs=1e-6)
        assert metrics["severity"]["10"] == pytest.approx(result.per_query["severity@10"][row], abs=1e-6)
        assert metrics["average_precision"]["colour"] == pytest.approx(
            result.per_query["AP/colour"][row], abs=1e-6
        )
        assert sum(metrics["counts"]) == len(index) - 1


def test_a_query_of_unknown_class_has_no_levels(client):
    answer = client.get("/api/search", params={"id": "images/red-circle-9.png"}).json()
    assert answer["metrics"] is None
    assert {hit["level"] for hit in answer["hits"]} == {None}


def test_a_branch_restricts_the_search(client):
    answer = client.get(
        "/api/search", params={"id": "images/red-circle-0.png", "within": "cold/blue", "k": 50}
    ).json()
    assert len(answer["hits"]) == 15
    assert all(hit["class_path"].startswith("cold/blue/") for hit in answer["hits"])
    # A slash inside a name is written with a backslash.
    inside = client.get("/api/items", params={"within": r"cold/blue/star\/cross"}).json()
    assert inside["total"] == 5
    assert inside["items"][0]["names"] == ["cold", "blue", "star/cross"]


def test_upload_then_search_by_its_key(client, photo):
    answer = client.post("/api/uploads", files={"file": ("my.png", photo, "image/png")})
    assert answer.status_code == 201
    key = answer.json()["upload"]
    found = client.get("/api/search", params={"upload": key, "k": 5}).json()
    assert found["metrics"] is None
    assert found["query"]["name"] == "my.png"
    labelled = client.get("/api/search", params={"upload": key, "k": 5, "label": "warm/red/circle"}).json()
    assert labelled["metrics"]["counts"][3] == 5
    assert [hit["id"] for hit in labelled["hits"]] == [hit["id"] for hit in found["hits"]]
    # Only a part of the class may be known.
    coarse = client.get("/api/search", params={"upload": key, "label": "warm"}).json()
    assert {hit["level"] for hit in coarse["hits"]} <= {0, 1}
    image = client.get(answer.json()["thumbnail"])
    assert Image.open(io.BytesIO(image.content)).format == "WEBP"
    at_once = client.post(
        "/api/search", params={"k": 5}, files={"file": ("my.png", photo, "image/png")}
    ).json()
    assert [hit["id"] for hit in at_once["hits"]] == [hit["id"] for hit in found["hits"]]


def test_an_uploaded_image_of_the_index_finds_itself(client, place):
    data = (place / "images" / "blue-square-3.png").read_bytes()
    answer = client.post("/api/search", params={"k": 1}, files={"file": ("x.png", data, "image/png")}).json()
    assert answer["hits"][0]["id"] == "images/blue-square-3.png"
    assert answer["hits"][0]["score"] == pytest.approx(1, abs=1e-4)


def test_browse_the_tree(client):
    root = client.get("/api/tree").json()
    assert [(child["name"], child["count"]) for child in root["children"]] == [("cold", 30), ("warm", 30)]
    warm = client.get("/api/tree", params={"path": "warm/red"}).json()
    assert [child["name"] for child in warm["children"]] == ["circle", "square", "star/cross"]
    found = client.get("/api/classes", params={"text": "CROSS"}).json()["classes"]
    assert {one["path"] for one in found} == {
        rf"{branch}/star\/cross" for branch in ("warm/red", "warm/yellow", "cold/blue", "cold/green")
    }
    spread = client.get("/api/items", params={"spread": True, "limit": 12}).json()["items"]
    assert len({one["class_path"] for one in spread}) >= 10


def test_worst_mistakes_come_first(client, place):
    index = Index.open(place / "a.index")
    answer = wait_ready(client, "/api/mistakes", sort="severity", limit=200)
    levels = [one["result"]["level"] for one in answer["mistakes"]]
    assert levels == sorted(levels)
    assert len(answer["mistakes"]) == answer["total"] > 0
    for one in answer["mistakes"]:
        first = index.search_id(one["query"]["id"], k=1)[0]
        assert first.id == one["result"]["id"]
        assert one["result"]["level"] < 3
    lowest = wait_ready(client, "/api/mistakes", sort="h-ap", within="warm", limit=200)["mistakes"]
    assert [one["h_ap"] for one in lowest] == sorted(one["h_ap"] for one in lowest)
    assert all(one["query"]["names"][0] == "warm" for one in lowest)
    assert client.get("/api/mistakes", params={"sort": "gain"}).status_code == 404


def test_two_models_are_compared_query_by_query(both):
    gains = wait_ready(both, "/api/mistakes", sort="gain", limit=200)["mistakes"]
    losses = wait_ready(both, "/api/mistakes", sort="loss", side="b", limit=200)["mistakes"]
    differences = [one["h_ap"] - one["other_h_ap"] for one in gains]
    assert differences == sorted(differences, reverse=True)
    assert min(differences) > 0
    assert [one["query"]["id"] for one in gains] == [one["query"]["id"] for one in losses]
    answers = [
        both.get("/api/search", params={"id": "images/red-circle-0.png", "side": side}).json()
        for side in "ab"
    ]
    assert [hit["id"] for hit in answers[0]["hits"]] != [hit["id"] for hit in answers[1]["hits"]]


def test_class_view_says_what_a_class_is_taken_for(client):
    answer = wait_ready(client, "/api/class", path="warm/red")
    assert answer["node"]["h_ap"] is not None
    assert answer["confusions"]
    assert all(one["path"] != "warm/red" and 0 < one["share"] <= 1 for one in answer["confusions"])
    assert {one["path"]: one["level"] for one in answer["confusions"]}.get("warm/yellow", 1) == 1
    shares = [one["share"] for one in answer["confusions"]]
    assert shares == sorted(shares, reverse=True)


def test_pictures_are_cached_and_small(client):
    item = client.get("/api/items", params={"limit": 1}).json()["items"][0]
    answer = client.get(item["thumbnail"])
    assert answer.headers["content-type"] == "image/webp"
    assert "immutable" in answer.headers["cache-control"]
    again = client.get(item["thumbnail"], headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    # Without the state of the index in the address it must be asked for again.
    assert "no-cache" in client.get(item["thumbnail"].split("?")[0]).headers["cache-control"]
    assert client.get(item["image"]).status_code == 200


@pytest.mark.parametrize(
    ("path", "values", "status"),
    [
        ("/api/search", {"id": "nobody"}, 404),
        ("/api/search", {"upload": "0" * 32}, 404),
        ("/api/search", {}, 422),
        ("/api/search", {"id": "images/red-circle-0.png", "upload": "0"}, 404),
        ("/api/search", {"less": "images/red-circle-0.png"}, 422),
        ("/api/search", {"id": "images/red-circle-0.png", "less": "images/red-circle-0.png"}, 422),
        ("/api/search", {"id": ["images/red-circle-0.png"] * 17}, 422),
        ("/api/search", {"id": "images/red-circle-0.png", "offset": 801}, 422),
        ("/api/map/items", {"row": 61, "version": "x"}, 404),
        ("/api/search", {"id": "images/red-circle-0.png", "k": 0}, 422),
        ("/api/search", {"id": "images/red-circle-0.png", "k": 100000}, 422),
        ("/api/search", {"id": "images/red-circle-0.png", "within": "hot"}, 404),
        ("/api/search", {"id": "images/red-circle-0.png", "side": "b"}, 404),
        ("/api/tree", {"path": "nowhere"}, 404),
        ("/thumbnails/a/99999", {}, 404),
        ("/thumbnails/a/-1", {}, 404),
        ("/thumbnails/c/0", {}, 404),
        ("/thumbnails/e/0", {}, 422),
        ("/api/nothing", {}, 404),
        ("/static/app.py", {}, 404),
    ],
)
def test_refusals_say_why(client, path, values, status):
    answer = client.get(path, params=values)
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_the_page_has_its_code_in_one_file_and_other_views_in_theirs(client):
    code = client.get("/static/app.js").text
    assert "function showSearch(" in code
    assert "function showMap(" not in code  # loaded when somebody opens the map
    assert not re.findall(r"^import ", code, re.MULTILINE)
    shared = set(re.findall(r"^const (\$\w+) = \(", code, re.MULTILINE))
    for name in {"map.js", *re.findall(r'import\("\./static/([\w.]+)"\)', code)}:
        view = client.get(f"/static/{name}").text
        taken = set(re.findall(r"^const .* = modules\.(\$\w+);", view, re.MULTILINE))
        assert taken
        assert taken <= shared  # the page's own modules, not second copies with another state
        assert not re.search(r'from "\./(?:api|place|dom|cards)\.js"', view)


def page_answers(client, **query):
    page = client.get("/", params=query).text
    (text,) = re.findall(r'<script type="application/json" id="answers">(.*?)</script>', page, re.DOTALL)
    return json.loads(text), page


def test_a_page_comes_with_the_answers_to_what_it_asks_first(client, explorer, monkeypatch):
    monkeypatch.setattr(pages, "_ANSWER_SECONDS", None)  # the machine may be busy
    info = "api/info"
    tone = next(iter(explorer.model("a").tree.node("").children))
    for query, address in (
        ({}, "api/items?spread=true&limit=36"),
        ({"within": tone}, f"api/items?within={tone}&offset=0&limit=48"),
        ({"id": "images/red-circle-0.png"}, "api/search?id=images%2Fred-circle-0.png&k=24&side=a"),
        (
            {"id": "images/red-circle-0.png", "within": tone, "k": "7", "shown": "50"},
            f"api/search?id=images%2Fred-circle-0.png&within={tone}&k=7&side=a",
        ),
    ):
        found, page = page_answers(client, **query)
        assert list(found) == [info, address]
        assert found[address] == client.get(f"/{address}").json()
        pictures = [html.unescape(one) for one in re.findall(r'as="image" href="([^"]+)"', page)]
        listed = found[address].get("items") or [found[address]["query"], *found[address]["hits"]]
        first = [one["thumbnail"].removeprefix("/") for one in listed[: len(pictures)]]
        assert len(pictures) > 3
        assert pictures == first
    others = (
        {"view": "map"},
        {"each": "1"},
        {"k": "0"},
        {"k": "201"},
        {"k": "x"},
        {"id": ""},
        {"id": ["a"] * 17},
        {"id": "nobody"},  # refused: the page asks and shows why
    )
    for other in others:
        found, _ = page_answers(client, **{"id": "images/red-circle-0.png", **other})
        assert list(found) == [info], other


def test_the_searches_of_a_page_are_spelt_as_the_browser_does():
    query = QueryParams([("id", "a b"), ("id", 'c"><x>~*')])
    assert pages._first_requests(query, ["a", "b"]) == [
        f"api/search?id=a+b&id=c%22%3E%3Cx%3E%7E*&k=24&side={side}" for side in "ab"
    ]


def test_no_name_can_leave_the_answers_of_a_page():
    bad = "</script><!--<script>\u2028&\"'"
    answer = json.dumps({"items": [{"thumbnail": f"/photos/{bad}"}]}, ensure_ascii=False).encode()
    text = pages._island({bad: answer}).decode()
    inside = text.removeprefix('<script type="application/json" id="answers">').removesuffix("</script>\n")
    assert "<" not in inside
    assert json.loads(inside) == {bad: json.loads(answer)}
    assert pages._preloads([answer], root="/photos/").decode().count("<") == 1


def test_a_page_does_not_wait_for_a_slow_answer(explorer, monkeypatch):
    waiting = threading.Event()
    found = explorer.search
    monkeypatch.setattr(pages, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(explorer, "search", lambda *a, **b: (waiting.wait(), found(*a, **b))[1])
    with TestClient(create_app(explorer), base_url=BASE) as client:
        answers, page = page_answers(client, id="images/red-circle-0.png")
        waiting.set()
    assert "api/search" not in "".join(answers)
    assert page.rstrip().endswith("</html>")


def test_a_file_that_the_browser_has_is_not_sent_again(client):
    first = client.get("/static/app.js")
    again = client.get("/static/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/app.js", headers={"if-none-match": '"another"'}).content == first.content


def test_the_page_comes_with_its_styles_and_scripts(client):
    """Nothing but pictures is left to fetch, and the policy allows these texts and no others."""
    page = client.get("/")
    assert '<link rel="stylesheet"' not in page.text
    assert "<script src=" not in page.text
    styles = re.findall(r"<style.*?>(.*?)</style>", page.text, re.DOTALL)
    scripts = re.findall(r"<script(?! type=.application/json).*?>(.*?)</script>", page.text, re.DOTALL)
    files = ["/palette.css", *(f"/static/{name}.css" for name in ("style", "query", "map", "print"))]
    assert styles == [client.get(path).text for path in files]
    assert scripts == [client.get(f"/static/{name}.js").text for name in ("theme", "app")]
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    for kind, texts in (("style-src", styles), ("script-src", scripts)):
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        assert policy[kind].split() == ["'self'", *(f"'sha256-{digest}'" for digest in digests)]


@pytest.mark.parametrize("bad", ["</script>", "</SCRIPT >", "<!-- <script>"])
def test_a_script_that_would_end_its_element_is_refused(bad):
    html = '<script src="static/app.js"></script></body>'
    assert pages._Page.of(html, {"app.js": b"1 < 2"}).start == b"<script>1 < 2</script>"
    with pytest.raises(ValueError, match=r"app\.js"):
        pages._Page.of(html, {"app.js": f"'{bad}'".encode()})


def test_the_page_and_its_parts_are_served(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "://" not in page.text.replace("http://www.w3.org", "")  # nothing from elsewhere
    assert "--level-3: #" in client.get("/palette.css").text
    for name in ("app.js", "style.css", "icon.svg", "docs.js"):
        assert client.get(f"/static/{name}").status_code == 200
    assert client.get("/docs").status_code == 200
    assert set(client.get("/api/openapi.json").json()["paths"]) >= {
        "/api/search",
        "/api/uploads",
        "/api/health",
    }
