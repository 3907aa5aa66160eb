"""A server under test in processes of its own, and clients that cost next to nothing.

A client of a general library takes longer for a request than the server does for its answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psutil

from happier.errors import SearchError

_BOUNDARY = "happier-bench"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop in C where there is one: what the clients compute is missing for the server."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Connection:
    """One client: a connection that is kept open, and opened again where the server closed it.

    ``async with Connection(port) as client`` closes it in the end.
    """

    def __init__(self, port: int, *, token: str = "") -> None:
        self._port = port
        self._headers = "host: 127.0.0.1\r\n" + (f"authorization: Bearer {token}\r\n" if token else "")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, path: str, **values: object) -> Answer:
        """Send a GET request."""
        return await self._send("GET", _address(path, values))

    async def delete(self, path: str, **values: object) -> Answer:
        """Send a DELETE request."""
        return await self._send("DELETE", _address(path, values))

    async def post_file(self, path: str, data: bytes, **fields: str) -> Answer:
        """Send a file and some text fields as a form."""
        text = "".join(
            f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        )
        text += f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="query.png"\r\n'
        body = f"{text}content-type: image/png\r\n\r\n".encode() + data + f"\r\n--{_BOUNDARY}--\r\n".encode()
        return await self._send("POST", path, body)

    async def _send(self, method: str, address: str, body: bytes = b"") -> Answer:
        head = f"{method} {address} HTTP/1.1\r\n{self._headers}"
        if body:
            head += (
                f"content-type: multipart/form-data; boundary={_BOUNDARY}\r\ncontent-length: {len(body)}\r\n"
            )
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
            reader, writer = self._streams
            writer.write(head.encode() + b"\r\n" + body)
            start = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = start.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            answer = Answer(int(start[9:12]), await reader.readexactly(int(length or 0)))
        except (OSError, EOFError):
            await self.close()
            raise
        if b"connection: close" in start:
            await self.close()
        return answer

    async def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def _address(path: str, values: Mapping[str, object]) -> str:
    query = urlencode({name: value for name, value in values.items() if value is not None}, quote_via=quote)
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


class ServerUnderTest:
    """A running server.

    Attributes:
        port: on 127.0.0.1.
        process: the one that was started; others may be below it.
    """

    def __init__(self, port: int, process: psutil.Process) -> None:
        self.port, self.process = port, process

    def memory(self) -> float:
        """MiB of all its processes; pages that they share count in each."""
        total = 0
        for one in [self.process, *self.process.children(recursive=True)]:
            try:
                total += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total / 2**20

    def workers(self) -> list[psutil.Process]:
        """The processes that answer, where there are several."""
        own = self.process.children()
        return [one for one in self.process.children(recursive=True) if one not in own]

    async def ready(self, *, token: str = "") -> None:
        """Wait until it answers and has finished its work at the start.

        Raises:
            SearchError: it does not.
        """
        async with Connection(self.port, token=token) as client:
            for _ in range(1500):
                try:
                    answer = await client.get("/api/info")
                    if answer.ok and all(side["analysed"] for side in answer.json()["sides"]):
                        return
                    await client.get("/api/mistakes")  # starts the analysis of this process
                except (OSError, EOFError):
                    pass
                await asyncio.sleep(0.2)
        raise SearchError("the server did not become ready")


@contextmanager
def serve(index: Path, *arguments: str, source: Path | None = None) -> Iterator[ServerUnderTest]:
    """Run `happier.bench.serve_target` while the block runs.

    Args:
        index: what to serve.
        arguments: further ones.
        source: ``src`` folder of another checkout whose server is started instead.

    Raises:
        SearchError: it did not start.
    """
    command = [sys.executable, "-m", "happier.bench.serve_target", str(index), *arguments]
    # OpenMP threads would only compete with the server's workers.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SearchError(f"the server for {index} did not start")
        port = int(json.loads(line)["address"].rpartition(":")[2])
        yield ServerUnderTest(port, psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:  # the outcome counts more than how the server ends
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
