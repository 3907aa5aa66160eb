"""The explorer under a steady load: how long requests take, whether any fail, whether memory grows.

Bounded in time and in requests, and only against 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil

from happier.errors import SearchError
from happier.extras import needs_extra

with needs_extra("bench,web"):
    import httpx

Report = Callable[[str], None]
# What a user does: mostly look at results and their pictures, sometimes upload an image.
_MIX = (("search", 0.40), ("thumbnail", 0.45), ("items", 0.10), ("upload", 0.05))


@dataclass(frozen=True)
class Load:
    """The outcome of a load test.

    Attributes:
        clients: number of clients, each sending its next request as soon as it has an answer.
        seconds: duration of the load.
        requests: answered.
        errors: requests without a 2xx answer.
        busy: answers 429, which a client repeats; they are not errors.
        p50, p99: milliseconds per request, all kinds together.
        by_kind: the same for each kind of request.
        memory: MiB the server held at each tenth of the time.
    """

    clients: int
    seconds: float
    requests: int
    errors: int
    busy: int
    p50: float
    p99: float
    by_kind: dict[str, tuple[int, float, float]]
    memory: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def growth(self) -> float:
        """MiB that the server grew by in the second half."""
        return self.memory[-1] - self.memory[len(self.memory) // 2]


def bench_serve(
    index: Path | None = None,
    *,
    clients: int = 100,
    seconds: float = 30.0,
    max_requests: int = 100_000,
    images: int = 2_000,
    report: Report = lambda _: None,
) -> Load:
    """Put `happier serve`, in a process of its own, under load.

    Args:
        index: what to serve; None for a catalogue of drawn images made for it.
        clients: at once.
        seconds: how long.
        max_requests: stop earlier after this many.
        images: of the drawn catalogue.
        report: called with what is being done.

    Raises:
        SearchError: the server did not start.
    """
    with tempfile.TemporaryDirectory(prefix="happier-bench-") as folder:
        if index is None:
            report(f"drawing {images:,} images and indexing them")
            index = drawn_index(Path(folder), images)
        report("starting the server")
        with _server(index) as (address, process):
            report(f"{clients} clients for {seconds:g} s")
            return asyncio.run(_hold(address, process, clients, seconds, max_requests))


def drawn_index(folder: Path, count: int) -> Path:
    """A small catalogue: noise of a colour per class, embedded with a tiny random model."""
    import pandas as pd
    from PIL import Image

    from happier.data import Manifest
    from happier.encoder import Encoder
    from happier.search import build_index

    generator = np.random.default_rng(0)
    rows = []
    for number in range(count):
        item = number % 64
        colour = np.array([item % 4, item // 4 % 4, item // 16]) * 60 + 20
        pixels = np.clip(colour + generator.integers(-20, 20, (96, 96, 3)), 0, 255).astype(np.uint8)
        name = f"{number:06d}.png"
        Image.fromarray(pixels).save(folder / name)
        rows.append(
            {
                "path": name,
                "split": "test",
                "kind": str(item // 16),
                "group": str(item // 4),
                "item": str(item),
            }
        )
    manifest = Manifest(pd.DataFrame(rows), levels=["kind", "group", "item"], root=folder)
    encoder = Encoder("test_resnet", dim=128, transform="small", image_size=64)
    build_index(encoder, manifest, folder / "drawn.index")
    return folder / "drawn.index"


@contextmanager
def _server(index: Path) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "happier.bench.serve_target", str(index)]
    # OpenMP threads would only compete with the server's workers.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SearchError(f"the server for {index} did not start")
        yield json.loads(line)["address"], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


async def _hold(
    address: str, process: psutil.Process, clients: int, seconds: float, max_requests: int
) -> Load:
    took: list[tuple[str, float]] = []
    statuses: Counter[str] = Counter()
    memory: list[float] = []
    async with httpx.AsyncClient(
        base_url=address, timeout=60, limits=httpx.Limits(max_connections=clients)
    ) as client:
        await _wait_for(client)
        items = (await client.get("/api/items", params={"spread": True, "limit": 200})).json()["items"]
        picture = (await client.get(items[0]["image"])).content
        uploads = [_changed(picture, number) for number in range(32)]
        start = time.perf_counter()
        end = start + seconds

        async def one_client(seed: int) -> None:
            random = Random(seed)
            while time.perf_counter() < end and len(took) < max_requests:
                kind, request = _next(client, random, items, uploads)
                began = time.perf_counter()
                try:
                    answer = await client.send(request)
                    outcome = "busy" if answer.status_code == 429 else "ok" if answer.is_success else "error"
                except httpx.HTTPError:
                    outcome = "error"
                statuses[outcome] += 1
                took.append((kind, 1000 * (time.perf_counter() - began)))
                if outcome == "busy":
                    await asyncio.sleep(0.2)

        async def watch() -> None:
            for _ in range(10):
                await asyncio.sleep(seconds / 10)
                memory.append(process.memory_info().rss / 2**20)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(one_client(seed) for seed in range(clients)))
        lasted = time.perf_counter() - start
        watching.cancel()
    memory.append(process.memory_info().rss / 2**20)
    return Load(
        clients=clients,
        seconds=lasted,
        requests=len(took),
        errors=statuses["error"],
        busy=statuses["busy"],
        p50=_percentile([one for _, one in took], 50),
        p99=_percentile([one for _, one in took], 99),
        by_kind={kind: _summary([one for name, one in took if name == kind]) for kind, _ in _MIX},
        memory=tuple(memory),
    )


async def _wait_for(client: httpx.AsyncClient) -> None:
    """Wait until the server answers and has finished its work at the start."""
    for _ in range(600):
        try:
            answer = await client.get("/api/info")
            if all(side["analysed"] for side in answer.json()["sides"]):
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.2)
    raise SearchError("the server did not become ready")


def _next(
    client: httpx.AsyncClient, random: Random, items: list[dict[str, Any]], uploads: list[bytes]
) -> tuple[str, httpx.Request]:
    kind = random.choices([name for name, _ in _MIX], [weight for _, weight in _MIX])[0]
    item = random.choice(items)
    if kind == "search":
        return kind, client.build_request("GET", "/api/search", params={"id": item["id"], "k": 24})
    if kind == "thumbnail":
        return kind, client.build_request("GET", item["thumbnail"])
    if kind == "items":
        names = item["names"][:1]
        return kind, client.build_request("GET", "/api/items", params={"within": "/".join(names)})
    file = {"file": ("query.png", random.choice(uploads), "image/png")}
    return kind, client.build_request("POST", "/api/search", files=file)


def _changed(picture: bytes, number: int) -> bytes:
    """The picture with a unique mark, so that it is not recognised as one seen before."""
    from happier.data.image import open_image

    image = open_image(picture).convert("RGB")
    image.putpixel((number % image.width, 0), (number, 255 - number, number))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _summary(values: list[float]) -> tuple[int, float, float]:
    return len(values), _percentile(values, 50), _percentile(values, 99)


def _percentile(values: list[float], share: float) -> float:
    return float(np.percentile(values, share)) if values else float("nan")
