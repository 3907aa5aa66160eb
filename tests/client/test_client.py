"""The Python client against a real server, and its types against the server's description."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

from happier.client import AsyncClient, Client, Combination, types
from happier.client.openapi_types import typed_dicts
from happier.errors import InputError, ServerError
from happier.web.app import create_api
from happier.web.server import ExplorerServer, access_for, open_explorer

TOKEN = "w" * 20


def test_the_types_are_those_of_the_description(explorer):
    """After a change, make them again with `happier.client.openapi_types`."""
    assert typed_dicts(create_api(explorer).openapi()) == Path(types.__file__).read_text()


@pytest.fixture(scope="module")
def server(place, tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    shutil.copytree(place / "a.index", folder / "a.index")
    (folder / "tokens.toml").write_text(f'[anna]\ntoken = "{TOKEN}"\nrole = "write"\n')
    explorer = open_explorer(folder / "a.index", writes=folder / "added", root_path="/photos")
    access = access_for("127.0.0.1", token=None, token_file=folder / "tokens.toml")
    with ExplorerServer(explorer, access=access).running() as server:
        yield server


def test_search_browse_and_change(server, place, photo):
    file = place / "images" / "blue-square-3.png"
    with Client(server.address, token=TOKEN) as client:
        assert client.info()["levels"] == ["tone", "colour", "shape"]
        found = client.search(file, k=3)
        assert found["hits"][0]["id"] == "images/blue-square-3.png"
        assert client.search(id=found["hits"][0]["id"], k=3)["hits"][0]["rank"] == 1
        both = client.search(
            id="images/blue-square-3.png", combine=Combination(more=["images/blue-square-1.png"])
        )
        assert [one["name"] for one in both["positive"]] == [
            "images/blue-square-3.png",
            "images/blue-square-1.png",
        ]
        inside = client.search(upload=client.upload(photo)["upload"], within="cold", k=5)
        assert {hit["names"][0] for hit in inside["hits"]} == {"cold"}
        assert client.items("warm/red")["total"] == 15
        assert [child["name"] for child in client.tree("warm")["children"]] == ["red", "yellow"]
        assert client.picture(found["hits"][0]["thumbnail"])[8:12] == b"WEBP"
        added = client.add_images([photo], class_path="warm/red/circle", ids=["mine"])
        assert client.search(photo, k=1)["hits"][0]["id"] == "mine"
        assert client.delete_images(["mine"])["images"] == added["images"] - 1


def test_the_same_to_await(server, place, photo):
    async def run():
        async with AsyncClient(server.address, token=TOKEN) as client:
            files = sorted((place / "images").glob("blue-square-*.png"))
            found = await asyncio.gather(*(client.search(file, k=1) for file in files))
            assert [one["hits"][0]["id"] for one in found] == [f"images/{file.name}" for file in files]
            assert (await client.info())["sides"][0]["images"] == 61
            assert (await client.items("warm"))["total"] == 30
            assert (await client.tree())["level"] == 0
            key = (await client.upload(photo))["upload"]
            thumbnail = (await client.search(upload=key))["query"]["thumbnail"]
            assert (await client.picture(thumbnail))[8:12] == b"WEBP"
            await client.add_images([photo], ids=["other"])
            await client.delete_images(["other"])

    asyncio.run(run())


def test_refusals_are_errors_of_one_line(server, tmp_path):
    with Client(server.address, token=TOKEN) as client:
        with pytest.raises(ServerError, match="404") as error:
            client.search(id="nobody")
        assert error.value.status == 404
        with pytest.raises(InputError, match="cannot read"):
            client.search(tmp_path / "none.png")
        with pytest.raises(InputError, match="one of"):
            client.search()
        with pytest.raises(InputError, match="sequence"):
            client.add_images("x.png")
    with Client(server.address) as client, pytest.raises(ServerError, match="401"):
        client.info()
    with (
        Client("http://127.0.0.1:1", retries=0) as client,
        pytest.raises(ServerError, match="does not answer"),
    ):
        client.info()


def test_a_busy_server_is_asked_again_when_it_says(monkeypatch):
    waited, answers = [], [httpx.Response(429, headers={"retry-after": "2"}), httpx.ReadError("gone"), None]

    def answer(request):
        outcome = answers.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or httpx.Response(200, json={"levels": []})

    monkeypatch.setattr("time.sleep", waited.append)
    client = Client("http://x", transport=httpx.MockTransport(answer))
    assert client.info() == {"levels": []}
    assert waited == [2.0, 0.4]
    # A change may have taken place before the connection broke: it is not repeated.
    answers[:] = [httpx.ReadError("gone")]
    with pytest.raises(ServerError, match="does not answer"):
        client.delete_images(["a"])
    # Nor is one that took too long: the server may still be at it. One that was refused is.
    answers[:] = [httpx.Response(503, headers={"retry-after": "10"}), None]
    with pytest.raises(ServerError, match="503"):
        client.add_images([b"an image"])
    assert answers == [None]
    answers[:] = [httpx.Response(429, headers={"retry-after": "3"}), None]
    assert client.delete_images(["a"])
    assert waited == [2.0, 0.4, 3.0]


def test_an_address_of_something_else_is_named():
    page = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>welcome</html>"))
    with (
        Client("http://x", transport=page) as client,
        pytest.raises(ServerError, match=r"http://x .*not.*JSON"),
    ):
        client.info()
