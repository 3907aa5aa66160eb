"""What the server refuses: other hosts and sites, missing tokens, floods, bombs, files of other folders."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import json
import select
import socket
import struct
import tempfile
import time
import zlib

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from happier.errors import ImageError, OptionError
from happier.search import Index
from happier.web import connection_limits as protocol_module
from happier.web.app import create_app
from happier.web.explorer import Explorer
from happier.web.images import decode, read_inside
from happier.web.indexed_model import IndexedModel
from happier.web.middleware import Access, ConcurrencyMiddleware, Limits, add_middleware
from happier.web.server import ExplorerServer, access_for, warn_of_unreadable_images

BASE = "http://127.0.0.1"


def client_of(explorer, **options):
    return TestClient(create_app(explorer, **options), base_url=BASE)


def png_of(width, height):
    """A PNG that claims a size and holds next to nothing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 99))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.", "[::2]"])
def test_other_names_are_refused(explorer, host):
    with client_of(explorer) as client:
        assert client.get("/api/info", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000"])
def test_own_names_are_served(explorer, host):
    with client_of(explorer) as client:
        assert client.get("/api/info", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_posts_from_other_sites_are_refused(explorer, photo, headers):
    with client_of(explorer) as client:
        files = {"file": ("x.png", photo, "image/png")}
        assert client.post("/api/uploads", files=files, headers=headers).status_code == 403
        own = {"origin": BASE, "sec-fetch-site": "same-origin"}
        assert client.post("/api/uploads", files=files, headers=own).status_code == 201


def test_every_answer_carries_the_policy(explorer):
    with client_of(explorer) as client:
        for path in ("/", "/api/info", "/api/search?id=nobody", "/nothing", "/static/app.js"):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"


def test_beyond_this_machine_a_token_is_needed(explorer):
    access = access_for("0.0.0.0", token=None)
    assert access.token is not None
    with client_of(explorer, access=access) as client:
        assert client.get("/api/health").status_code == 200
        for path in ("/", "/api/info", "/thumbnails/a/0", "/static/app.js", "/?token=wrong"):
            assert client.get(path).status_code == 401
        assert client.get("/api/info", headers={"authorization": f"Bearer {access.token}"}).status_code == 200
        assert "a token is needed" in client.get("/api/info").json()["detail"]
        wrong = client.get("/api/info", headers={"authorization": "Bearer wrong"})
        assert (wrong.status_code, wrong.json()["detail"]) == (401, "this token is unknown or has expired")
        assert client.get("/api/info", headers={"cookie": "happier_token=" + "x" * 32}).status_code == 401
        # Opened once with the token, the browser has a cookie and a clean address.
        first = client.get("/", params={"token": access.token, "id": "a b"}, follow_redirects=False)
        assert (first.status_code, first.headers["location"]) == (303, "/?id=a+b")
        assert "HttpOnly" in first.headers["set-cookie"]
        assert "samesite=strict" in first.headers["set-cookie"].lower()
        assert client.get("/").status_code == 200
    assert access_for("127.0.0.1", token=None).token is None
    with pytest.raises(OptionError, match="at least 16"):
        access_for("0.0.0.0", token="short")


@pytest.mark.parametrize(
    "token", [" " * 20, "x" * 20 + ";", "x" * 20 + "\n", "x" * 10 + " " + "x" * 10, "ü" * 20, "x=" * 10]
)
def test_tokens_that_no_header_can_carry_are_refused(token):
    with pytest.raises(OptionError, match="letters, digits"):
        access_for("127.0.0.1", token=token)


@pytest.mark.parametrize("token", ["abcdefghijklmnop", "QUJDREVGR0hJSktMTU4+/w==", "a.b_c~d-e" * 3])
def test_a_token_works_as_header_and_as_cookie(explorer, token):
    with client_of(explorer, access=access_for("127.0.0.1", token=token)) as client:
        assert client.get("/api/info", headers={"authorization": f"Bearer {token}"}).status_code == 200
        assert client.get("/", params={"token": token}).status_code == 200
        assert client.get("/api/info").status_code == 200


@pytest.mark.parametrize("where", ["header", "chunked"])
def test_large_bodies_are_refused(explorer, where):
    with client_of(explorer, limits=Limits(upload_bytes=10_000)) as client:
        body = b"x" * 200_000
        if where == "header":
            answer = client.post("/api/uploads", files={"file": ("x.png", body, "image/png")})
        else:
            kind = {"content-type": "multipart/form-data; boundary=b"}
            start = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
            chunks = (part for part in (start, *[body[:5_000]] * 20))
            answer = client.post("/api/uploads", content=chunks, headers=kind)
        assert answer.status_code == 413
        assert client.get("/api/info").status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an image",
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        png_of(30_000, 30_000),
        png_of(8_000, 8_000),
        png_of(20, 20),
        b"\x89PNG\r\n\x1a\n" + b"\xff" * 500,
        b"GIF89a" + b"\xff" * 100,
    ],
    ids=["empty", "text", "svg", "eps", "bomb", "large", "cut", "garbage", "gif"],
)
def test_uploads_that_are_no_good_images_are_refused(explorer, data):
    with client_of(explorer) as client:
        answer = client.post("/api/uploads", files={"file": ("x.png", data, "image/png")})
        assert answer.status_code == 400
        assert answer.json()["detail"]


def test_modes_become_rgb_and_rotation_is_applied():
    def encoded(image, kind, **more):
        buffer = io.BytesIO()
        image.save(buffer, kind, **more)
        return decode(buffer.getvalue(), name="x")

    assert encoded(Image.new("RGBA", (4, 4), (255, 0, 0, 0)), "PNG").getpixel((0, 0)) == (255, 255, 255)
    assert encoded(Image.new("CMYK", (4, 4)), "JPEG").mode == "RGB"
    assert encoded(Image.new("P", (4, 4)), "GIF").mode == "RGB"
    deep = Image.fromarray(np.full((4, 4), 65535, dtype=np.uint16))
    assert encoded(deep, "PNG").getpixel((0, 0)) == (255, 255, 255)
    exif = Image.Exif()
    exif[0x0112] = 6
    assert encoded(Image.new("RGB", (8, 4)), "JPEG", exif=exif).size == (4, 8)


def test_nothing_of_the_original_file_leaves_the_server(explorer, place):
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    image = Image.new("RGB", (40, 40), "red")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif)
    with client_of(explorer) as client:
        key = client.post("/api/uploads", files={"file": ("x.jpg", buffer.getvalue(), "image/jpeg")}).json()[
            "upload"
        ]
        assert b"secret" not in client.get(f"/uploads/{key}").content


def test_only_files_inside_the_image_folder_are_read(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.png").write_bytes(b"secret")
    (root / "real.png").write_bytes(b"mine")
    (root / "link.png").symlink_to(outside / "secret.png")
    (root / "folder").symlink_to(outside)
    (root / "loop").symlink_to(root / "loop")
    (root / "inner.png").symlink_to(root / "real.png")
    roots = [root.resolve()]
    assert read_inside(root / "real.png", roots) == b"mine"
    assert read_inside(root / "inner.png", roots) == b"mine"
    bad = (
        "link.png",
        "folder/secret.png",
        "../outside/secret.png",
        "loop",
        "none.png",
        "",
        "real.png\0",
        "/etc/passwd",
    )
    for name in bad:
        with pytest.raises(ImageError):
            read_inside(root / name, roots)


def test_a_manifest_that_points_elsewhere_serves_nothing(place, tmp_path, caplog):
    """A hostile or mistaken manifest: traversal, absolute path, link."""
    (tmp_path / "images").mkdir()
    secret = tmp_path / "secret.png"
    Image.new("RGB", (9, 9)).save(secret)
    (tmp_path / "images" / "link.png").symlink_to(secret)
    source = Index.open(place / "a.index")
    part = source.items.take([0, 1, 2])
    part.table["path"] = ["../secret.png", str(secret), "link.png"]
    part.root = tmp_path / "images"
    Index.build(tmp_path / "bad.index", part, source.vectors[:3], fingerprint="a" * 64)
    with client_of(Explorer(Index.open(tmp_path / "bad.index"))) as client:
        for row in range(3):
            answer = client.get(f"/thumbnails/a/{row}")
            assert answer.status_code == 400
            assert "outside" in answer.json()["detail"]
    warn_of_unreadable_images(Explorer(Index.open(tmp_path / "bad.index")))
    (said,) = [record.message for record in caplog.records]
    assert "3 of 3 images tried cannot be shown" in said
    assert "--images FOLDER" in said
    # The owner may allow the folder.
    allowed = Explorer(Index.open(tmp_path / "bad.index"), images=[tmp_path])
    with client_of(allowed) as client:
        assert client.get("/thumbnails/a/0").status_code == 200
    warn_of_unreadable_images(allowed)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/thumbnails/a/..%2f..%2fetc%2fpasswd",
        "/images/a/0/../../../etc/passwd",
    ],
)
def test_addresses_cannot_climb(explorer, path):
    with ExplorerServer(explorer).running() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.putrequest("GET", path)  # httpx would tidy the address up
        connection.endheaders()
        assert connection.getresponse().status in (400, 404, 422)
        connection.close()


def client_at(app, address):
    """A client with an address of its own."""
    transport = httpx.ASGITransport(app, client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url=BASE)


def flood(limits, *, held, then):
    """Start requests that wait at a gate, then others; the answers of both.

    Args:
        limits: of the server.
        held: clients of the requests that are held at the gate.
        then: clients and paths of the requests that come while the gate is closed.
    """

    async def run():
        gate = asyncio.Event()
        at_gate = 0

        async def app(scope, receive, send):
            nonlocal at_gate
            if scope["path"] == "/wait":
                at_gate += 1
                await gate.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        protected = add_middleware(app, access=Access(), limits=limits)
        clients = {name: client_at(protected, name) for name in {*held, *(name for name, _ in then)}}
        first = [asyncio.create_task(clients[name].get("/wait")) for name in held]
        while at_gate < len(held):
            await asyncio.sleep(0)
        others = [await clients[name].get(path) for name, path in then]
        gate.set()
        return [one.status_code for one in await asyncio.gather(*first)], others

    return asyncio.run(run())


def test_too_many_requests_are_told_to_come_back():
    done, refused = flood(
        Limits(requests=2, client_requests=2), held=["1.1.1.1", "2.2.2.2"], then=[("3.3.3.3", "/")] * 18
    )
    assert done == [200, 200]
    assert {one.status_code for one in refused} == {429}
    assert refused[0].headers["retry-after"] == "1"
    assert "nosniff" in refused[0].headers["x-content-type-options"]


def test_one_client_keeps_no_other_out():
    done, (same, other, health) = flood(
        Limits(requests=8, client_requests=4),
        held=["1.1.1.1"] * 4,
        then=[("1.1.1.1", "/"), ("2.2.2.2", "/"), ("1.1.1.1", "/api/health")],
    )
    assert done == [200] * 4
    assert same.status_code == 429
    assert "from this address" in same.json()["detail"]
    assert other.status_code == health.status_code == 200


def test_health_is_answered_when_nothing_else_is():
    _, (other, health) = flood(
        Limits(requests=1), held=["1.1.1.1"], then=[("2.2.2.2", "/"), ("2.2.2.2", "/api/health")]
    )
    assert (other.status_code, health.status_code) == (429, 200)


def test_retry_after_is_the_time_that_those_under_way_need():
    limited = ConcurrencyMiddleware(lambda *_: None, limits=Limits(workers=4))
    limited._under_way.update({"a": 60, "b": 20})
    limited._seconds = 0.5
    assert limited._retry_after() == 10
    limited._seconds = 1000
    assert limited._retry_after() == 60


SLOW_HEAD = (
    b"POST /api/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n"
    b"Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
)


def test_bodies_that_never_arrive_take_no_place(explorer):
    with contextlib.ExitStack() as stack:
        limits = Limits(requests=2, client_requests=2, body_seconds=600)
        server = stack.enter_context(ExplorerServer(explorer, limits=limits).running())
        for _ in range(10):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            slow.sendall(SLOW_HEAD)
        with httpx.Client(base_url=server.address) as client:
            assert client.get("/api/info").status_code == 200


def test_the_memory_for_bodies_is_bounded(explorer, photo):
    body = b"--b\r\n" + b"x" * 4000
    head = b"POST /api/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\n"
    limits = Limits(body_bytes=20_000, body_seconds=600)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ExplorerServer(explorer, limits=limits).running())
        answers = []
        for _ in range(3):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            slow.sendall(head + body)
            answers.append(slow)
        # One of the three goes beyond what one client may hold: half of it all.
        ready, _, _ = select.select(answers, [], [])
        assert ready[0].recv(100).startswith(b"HTTP/1.1 429")
        for slow in answers:
            slow.close()
        # What was held is released: a photo of its own size still fits.
        with httpx.Client(base_url=server.address) as client:
            status = 429
            while status == 429:
                status = client.post(
                    "/api/uploads", files={"file": ("x.png", photo, "image/png")}
                ).status_code
            assert status == 201


def test_a_client_that_never_reads_is_cut_off(explorer):
    with ExplorerServer(explorer, limits=Limits(write_seconds=0.3)).running() as server:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.port))
            request = b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            with contextlib.suppress(OSError):
                deaf.sendall(2000 * request)
            open_connections = server._server.server_state.connections
            while open_connections:
                time.sleep(0.05)
        with httpx.Client(base_url=server.address) as client:
            assert client.get("/static/style.css").status_code == 200


def test_one_client_has_a_number_of_connections(explorer):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ExplorerServer(explorer, limits=Limits(client_connections=3)).running())
        for _ in range(3):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert one.recv(64).startswith(b"HTTP/1.1 200")
        with socket.create_connection(("127.0.0.1", server.port)) as further:
            answer = b"".join(iter(lambda: further.recv(4096), b""))
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 429")
            assert int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]) == len(body)
            assert "open connections" in json.loads(body)["detail"]
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        counted = b"".join(iter(lambda: one.recv(4096), b""))
        assert b'happier_requests_total{route="other",status="429"} 1\n' in counted


def test_uploads_are_never_written_to_disk(explorer, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 255, (1200, 1200, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(noise).save(data, "PNG")
    assert len(data.getvalue()) > 4 << 20
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with client_of(explorer) as client:
        answer = client.post("/api/uploads", files={"file": ("x.png", data.getvalue(), "image/png")})
        assert answer.status_code == 201


def test_an_upload_has_the_name_that_its_sender_gave(explorer, photo):
    with client_of(explorer) as client:
        keys = [
            client.post("/api/uploads", files={"file": (name, photo, "image/png")}).json()["upload"]
            for name in ("mine.png", "yours.png", "mine.png")
        ]
        assert keys[0] == keys[2] != keys[1]
        names = [client.get("/api/search", params={"upload": key}).json()["query"]["name"] for key in keys]
        assert names == ["mine.png", "yours.png", "mine.png"]


def test_a_request_that_takes_too_long_is_given_up(explorer):
    async def stuck(scope, receive, send):
        await asyncio.sleep(60)

    async def ask():
        guarded = add_middleware(stuck, access=Access(), limits=Limits(request_seconds=0.05))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url=BASE) as client:
            return await client.get("/")

    assert asyncio.run(ask()).status_code == 503


def test_a_crash_in_one_request_leaves_the_others_alone(place, monkeypatch, caplog):
    explorer = Explorer(Index.open(place / "a.index"))

    def broken(*_):
        raise RuntimeError("a bug")

    with ExplorerServer(explorer).running() as server, httpx.Client(base_url=server.address) as client:
        with monkeypatch.context() as patch:
            patch.setattr(IndexedModel, "metrics", broken)
            answer = client.get("/api/search", params={"id": "images/red-circle-0.png"})
            assert answer.status_code == 500
            assert "a bug" not in answer.text  # the log has it, the client does not
        assert client.get("/api/search", params={"id": "images/red-circle-0.png"}).status_code == 200
    assert "a bug" in caplog.text


def test_slow_headers_and_slow_bodies_are_cut_off(explorer, monkeypatch):
    monkeypatch.setattr(protocol_module, "HEADER_SECONDS", 0.3)
    with ExplorerServer(explorer, limits=Limits(body_seconds=0.3)).running() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
            assert slow.recv(100) == b""  # closed, no answer
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(SLOW_HEAD)
            assert b" 408 " in slow.recv(100)
        # A connection that is kept alive works on after a pause shorter than the limit.
        with httpx.Client(base_url=server.address) as client:
            assert client.get("/api/health").status_code == 200
            time.sleep(0.1)
            assert client.get("/api/health").status_code == 200


def test_the_server_stops_cleanly_and_frees_its_port(explorer):
    with ExplorerServer(explorer).running() as server:
        port = server.port
        assert httpx.get(f"{server.address}/api/health").status_code == 200
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    with (
        ExplorerServer(explorer, port=port).running(),
        pytest.raises(OptionError, match="choose another --port"),
    ):
        ExplorerServer(explorer, port=port)
    with pytest.raises(OptionError, match="choose another --host"):
        ExplorerServer(explorer, host="999.1.1.1")


def test_an_address_that_was_printed_is_never_refused(explorer):
    server = ExplorerServer(explorer)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as early:
        early.sendall(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        with server.running():
            assert early.recv(64).startswith(b"HTTP/1.1 200")
