"""The API against its own description: thousands of odd requests, none may break it or leave its schema."""

from __future__ import annotations

import asyncio

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient

from happier.web.app import create_api, create_app

pytestmark = pytest.mark.slow

BASE = "http://127.0.0.1"


@pytest.fixture(scope="module")
def client(comparison):
    with TestClient(create_app(comparison), base_url=BASE) as client:
        yield client


def test_the_api_keeps_to_its_description(comparison, client):
    """All checks but one: random bytes are no image, and no description can say "an id or an upload"."""
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", create_api(comparison))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:

        @hypothesis.settings(max_examples=40, suppress_health_check=list(hypothesis.HealthCheck))
        @hypothesis.given(case=operation.as_strategy())
        def keeps_to_it(case):
            case.call_and_validate(session=client, base_url=BASE, excluded_checks=[positive_data_acceptance])

        keeps_to_it()


@hypothesis.settings(max_examples=150)
@hypothesis.given(
    path=hypothesis.strategies.text(max_size=60),
    values=hypothesis.strategies.dictionaries(
        hypothesis.strategies.sampled_from(
            ["id", "upload", "label", "k", "within", "side", "path", "text", "offset", "v"]
        ),
        hypothesis.strategies.text(max_size=40),
        max_size=4,
    ),
    place=hypothesis.strategies.sampled_from(
        [
            "/api/search",
            "/api/tree",
            "/api/class",
            "/api/items",
            "/api/classes",
            "/thumbnails/a",
            "/static",
            "",
        ]
    ),
)
def test_no_text_breaks_it(comparison, path, values, place):
    """Raw bytes of an address, not tidied up by any client."""
    from urllib.parse import quote, urlencode

    app = create_app_once(comparison)
    target = quote(f"{place}/{path}".encode("utf-8", "surrogatepass")) if path else place or "/"
    query = urlencode({name: value.encode("utf-8", "surrogatepass") for name, value in values.items()})
    status = asyncio.run(_status_of(app, target, query.encode()))
    assert 0 < status < 500


_APPS = {}


def create_app_once(explorer):
    return _APPS.setdefault(id(explorer), create_app(explorer))


async def _status_of(app, target, query):
    status = 0

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": target,
        "raw_path": target.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    await app(scope, receive, send)
    return status
