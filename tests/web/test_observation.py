"""Request ids, counters for Prometheus, the access log; tokens with names; a path; TLS."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import ssl
import subprocess

import httpx
import pytest
from starlette.testclient import TestClient

from happier.errors import OptionError
from happier.web.access import access_for
from happier.web.app import create_app
from happier.web.explorer import Explorer
from happier.web.limits import Limits
from happier.web.metrics import BUCKETS, ServerMetrics
from happier.web.middleware import ConcurrencyMiddleware
from happier.web.server import ExplorerServer, ListeningAddress, Tls
from happier.web.tokens import read_tokens

BASE = "http://127.0.0.1"
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="[^"]*",?)*)\})? (\S+)')


def samples(text):
    """Prometheus' text format as a dictionary, each line checked."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        found[match[1], match[2] or ""] = float(match[3])
    return found


def test_requests_are_counted_and_timed(explorer):
    with TestClient(create_app(explorer), base_url=BASE) as client:
        for _ in range(3):
            client.get("/api/info")
        client.get("/api/search", params={"id": "nobody"})
        answer = client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = samples(answer.text)
    assert found["happier_requests_total", 'route="info",status="2xx"'] == 3
    assert found["happier_requests_total", 'route="search",status="4xx"'] == 1
    buckets = [
        found["happier_request_seconds_bucket", f'route="info",le="{bound}"'] for bound in [*BUCKETS, "+Inf"]
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["happier_request_seconds_count", 'route="info"'] == 3
    assert found["happier_index_generation_a", 'process="0"'] == 1
    assert found["happier_index_images_a", 'process="0"'] == 61
    assert found["happier_memory_bytes", 'process="0"'] > 1e6
    assert found["happier_requests_under_way", 'process="0"'] == 1


def test_processes_add_up_and_a_new_one_goes_on(tmp_path):
    file = tmp_path / "metrics.f64"
    ServerMetrics.create(file, 2)
    for slot in (0, 1, 1):  # the second of slot 1 replaces the first
        metrics = ServerMetrics(processes=2, slot=slot, file=file)
        metrics.describe(["/api/info"], {})
        metrics.begin()
        metrics.end("/api/info", 200, 0.3)
    found = samples(metrics.text())
    assert found["happier_requests_total", 'route="info",status="2xx"'] == 3
    assert found["happier_request_seconds_sum", 'route="info"'] == pytest.approx(0.9)
    assert found["happier_request_seconds_bucket", 'route="info",le="0.25"'] == 0
    assert found["happier_request_seconds_bucket", 'route="info",le="0.5"'] == 3


def test_every_answer_has_a_request_id(explorer):
    with TestClient(create_app(explorer), base_url=BASE) as client:
        first, second = (client.get("/api/info").headers["x-request-id"] for _ in range(2))
        assert first != second
        given = client.get("/api/info", headers={"x-request-id": "trace-17"})
        assert given.headers["x-request-id"] == "trace-17"
        bad = client.get("/api/info", headers={"x-request-id": 'x" onload="'})
        assert re.fullmatch("[0-9a-f]{16}", bad.headers["x-request-id"])


def test_the_access_log_is_json_without_secrets(explorer, caplog):
    with (
        caplog.at_level(logging.INFO, "happier.access"),
        TestClient(create_app(explorer), base_url=BASE) as client,
    ):
        answer = client.get("/api/search", params={"id": "private.png", "token": "x" * 20})
    lines = [json.loads(record.message) for record in caplog.records if record.name == "happier.access"]
    (line,) = lines
    assert line["request_id"] == answer.headers["x-request-id"]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/api/search", 404)
    assert "private" not in json.dumps(line)


TOKENS = """
[anna]
token = "aaaaaaaaaaaaaaaaaaaa"
role = "write"
[ben]
token = "bbbbbbbbbbbbbbbbbbbb"
expires = 2999-01-31
[carl]
token = "cccccccccccccccccccc"
expires = 2001-01-01T00:00:00Z
"""


def test_tokens_have_names_roles_and_an_end(explorer, tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    access = access_for("0.0.0.0", token=None, token_file=file)
    assert access.token is None

    def status(letter):
        return client.get("/api/info", headers={"authorization": f"Bearer {20 * letter}"}).status_code

    with TestClient(create_app(explorer, access=access), base_url=BASE) as client:
        assert [status(letter) for letter in "abcd"] == [200, 200, 401, 401]
        assert client.get("/metrics").status_code == 401
        assert client.get("/api/health").status_code == 200
        # A reload takes tokens away and brings others; a broken file changes nothing.
        file.write_text(TOKENS.replace("bbbb", "dddd"))
        access.reload()
        assert [status(letter) for letter in "ab"] == [200, 401]
        file.write_text("[anna")
        with pytest.raises(OptionError):
            access.reload()
        assert status("a") == 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no tokens"),
        ("[a", "cannot read"),
        ("[a]\nrole = 'read'", "token = "),
        ("[a]\ntoken = 'short'", "at least 16"),
        ("[a]\ntoken = 'aaaaaaaaaaaaaaaaaaaa'\nrole = 'root'", "read or write"),
        ("[a]\ntoken = 'aaaaaaaaaaaaaaaaaaaa'\nexpires = 3", "must be a date"),
        ("[a]\ntoken = 'aaaaaaaaaaaaaaaaaaaa'\nexpire = 2027-01-01", "'expire'"),
        ("[a]\ntoken = 'aaaaaaaaaaaaaaaaaaaa'\n[b]\ntoken = 'aaaaaaaaaaaaaaaaaaaa'", "same token"),
    ],
)
def test_bad_token_files_are_one_line(tmp_path, text, message):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=message) as error:
        read_tokens(file)
    assert "\n" not in str(error.value)


def test_a_pipe_of_tokens_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "tokens.toml")
    with pytest.raises(OptionError, match=r"cannot read the tokens in .*regular file"):
        read_tokens(tmp_path / "tokens.toml")


def test_limits_count_by_named_token(explorer, tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    app = create_app(
        explorer,
        access=access_for("127.0.0.1", token=None, token_file=file),
        limits=Limits(client_requests=1),
    )
    limiting = app
    while not isinstance(limiting, ConcurrencyMiddleware):
        limiting = limiting._app
    limiting._under_way["token anna"] = 1
    with TestClient(app, base_url=BASE) as client:
        anna, ben = (
            client.get("/api/info", headers={"authorization": f"Bearer {20 * letter}"}) for letter in "ab"
        )
        assert (anna.status_code, ben.status_code) == (429, 200)
        assert "with this token" in anna.json()["detail"]
        # Monitors count for no limit.
        assert client.get("/metrics", headers={"authorization": f"Bearer {20 * 'a'}"}).status_code == 200


@pytest.mark.parametrize("stripped", [False, True], ids=["path kept", "path taken off by the proxy"])
def test_under_a_path(explorer, stripped):
    under = Explorer(explorer.model("a").index, root_path="/photos")
    access = access_for("127.0.0.1", token="x" * 20)
    root = "" if stripped else "/photos"
    with TestClient(create_app(under, access=access), base_url=BASE, follow_redirects=False) as client:
        opened = client.get(f"{root}/", params={"token": "x" * 20, "k": "3"})
        assert (opened.status_code, opened.headers["location"]) == (303, "/photos/?k=3")
        assert "Path=/photos/" in opened.headers["set-cookie"]
        client.headers["authorization"] = f"Bearer {'x' * 20}"
        assert client.get("/photos").headers["location"].endswith("/photos/")
        item = client.get(f"{root}/api/items", params={"limit": 1}).json()["items"][0]
        assert item["thumbnail"].startswith("/photos/thumbnails/a/0?")
        assert client.get(item["thumbnail"]).status_code == 200
        page = client.get(f"{root}/").text
        assert 'href="static/icon.svg"' in page
        assert 'import("./static/map.js")' in page
        assert not re.search(r'(?:src|href)="/', page)  # all relative to the page
        assert client.get(f"{root}/api/openapi.json").json()["servers"] == [{"url": "/photos"}]


def test_tls_and_a_new_certificate(explorer, tmp_path):
    def certificate(name):
        command = (
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} "
        )
        command += f"-keyout {tmp_path}/key.pem -out {tmp_path}/cert.pem"
        subprocess.run(command.split(), check=True, capture_output=True)

    def served_name(server):
        pem = ssl.get_server_certificate(("127.0.0.1", server.port))
        text = subprocess.run(
            ["openssl", "x509", "-noout", "-subject"], input=pem, text=True, capture_output=True, check=True
        )
        return text.stdout.strip().replace(" ", "")

    with pytest.raises(OptionError, match=r"cert\.pem"):
        ListeningAddress(tls=Tls(tmp_path / "cert.pem", tmp_path / "key.pem"))
    certificate("first")
    listening = ListeningAddress(tls=Tls(tmp_path / "cert.pem", tmp_path / "key.pem"))
    with ExplorerServer(explorer, listening=listening).running() as server:
        assert server.address.startswith("https://")
        assert httpx.get(f"{server.address}/api/health", verify=False).status_code == 200
        assert served_name(server).endswith("CN=first")
        certificate("second")
        server.reload()
        assert served_name(server).endswith("CN=second")


def test_headers_without_end_are_refused(explorer):
    with (
        ExplorerServer(explorer).running() as server,
        socket.create_connection(("127.0.0.1", server.port)) as one,
    ):
        one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 100_000)
        assert b" 431 " in one.recv(100)
