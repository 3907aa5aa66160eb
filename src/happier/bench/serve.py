"""The explorer under a steady load: how long requests take, whether any fail, whether memory grows.

Bounded in time and in requests, and only against 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from happier.bench.http_load import Connection, ServerUnderTest, new_event_loop, serve
from happier.progress import Status, no_status

# What a user does: mostly look at results and their pictures, sometimes upload an image.
_MIX = (("search", 0.40), ("thumbnail", 0.45), ("items", 0.10), ("upload", 0.05))
_BY_ID = (("search", 1.0),)
# Servers that are compared take turns, so that both see the machine's other work.
_TURNS = 4


@dataclass(frozen=True)
class Load:
    """The outcome of a load test.

    Attributes:
        server: which.
        clients: number of clients, each sending its next request as soon as it has an answer.
        seconds: duration of the load.
        requests: answered.
        errors: requests without a 2xx answer.
        busy: answers 429, which a client repeats; they are not errors.
        p50, p99: milliseconds per request, all kinds together.
        by_kind: the same for each kind of request.
        memory: MiB the server held during each turn, ten times.
    """

    server: str
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
    processes: int = 1,
    before: Path | None = None,
    by_id: int | None = None,
    status: Status = no_status,
) -> list[Load]:
    """Put `happier serve`, in processes of its own, under load.

    Args:
        index: what to serve; None for a catalogue made for it.
        clients: at once.
        seconds: how long.
        max_requests: stop earlier after this many.
        processes: of the server.
        before: ``src`` folder of another checkout: its server gets the same load, in turns with this one.
        by_id: search by id only, over so many random vectors with HNSW where no index is given.
        status: called with what is being done.

    Raises:
        SearchError: a server did not start.
    """
    with tempfile.TemporaryDirectory(prefix="happier-bench-") as folder, ExitStack() as stack:
        if index is None:
            status("making a catalogue")
            index = drawn_index(Path(folder), 2_000) if by_id is None else vector_index(Path(folder), by_id)
        status("starting the servers")
        servers = {}
        if before is not None:
            servers["before"] = stack.enter_context(serve(index, source=before))
        servers["now"] = stack.enter_context(serve(index, str(processes)))
        mix = _MIX if by_id is None else _BY_ID
        rounds = [_Rounds(name, one, clients, mix) for name, one in servers.items()]
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_take_turns(rounds, seconds, max_requests, status))
        return [one.load() for one in rounds]


def vector_index(folder: Path, count: int) -> Path:
    """An index of random vectors in clusters of about fifty, with HNSW; few of its images have a class."""
    import pandas as pd

    from happier.data import Manifest
    from happier.search import Index

    generator = np.random.default_rng(0)
    centres = generator.standard_normal((max(1, count // 50), 128))
    near = centres[generator.integers(0, len(centres), count)]
    near += 0.5 * generator.standard_normal(near.shape)
    vectors = (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32)
    names = [str(number % 40) if number % 50 == 0 else "" for number in range(count)]
    rows = {"path": [f"{number}.png" for number in range(count)], "split": "test", "kind": names}
    manifest = Manifest(pd.DataFrame(rows), levels=["kind"], root=folder)
    Index.build(folder / "vectors.index", manifest, vectors, fingerprint="0" * 64, engine="hnsw")
    return folder / "vectors.index"


async def _take_turns(rounds: Sequence[_Rounds], seconds: float, max_requests: int, status: Status) -> None:
    for one in rounds:
        await one.prepare()
    turns = _TURNS if len(rounds) > 1 else 1
    for turn in range(turns):
        for one in rounds:
            status(f"{one.name}: {one.clients} clients for {seconds / turns:g} s ({turn + 1} of {turns})")
            await one.hold(seconds / turns, max_requests // turns)


class _Rounds:
    """The load on one server, in one turn or several."""

    def __init__(
        self, name: str, server: ServerUnderTest, clients: int, mix: Sequence[tuple[str, float]]
    ) -> None:
        self.name, self.clients = name, clients
        self._server, self._mix = server, mix
        self._took: list[tuple[str, float]] = []
        self._outcomes: Counter[str] = Counter()
        self._memory: list[float] = []
        self._seconds = 0.0
        self._items: list[dict[str, Any]] = []
        self._uploads: list[bytes] = []

    async def prepare(self) -> None:
        """Wait for the server, and learn what to ask for."""
        await self._server.ready()
        async with Connection(self._server.port) as client:
            # Many images, so that most answers are not those that have just been given.
            most = 4_000 if len(self._mix) > 1 else 100_000
            for offset in range(0, most, 200):
                answer = await client.get("/api/items", offset=offset, limit=200)
                self._items += answer.json()["items"]
            if len(self._mix) > 1:
                picture = (await client.get(self._items[0]["image"])).body
                self._uploads = [changed_picture(picture, number) for number in range(32)]

    async def hold(self, seconds: float, max_requests: int) -> None:
        """All clients at once."""
        start = time.perf_counter()
        end, most = start + seconds, len(self._took) + max_requests

        async def one_client(seed: int) -> None:
            random = Random(seed)
            async with Connection(self._server.port) as client:
                while time.perf_counter() < end and len(self._took) < most:
                    await self._one_request(client, random)

        async def watch() -> None:
            for _ in range(10):
                await asyncio.sleep(seconds / 10)
                self._memory.append(self._server.memory())

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(one_client(seed) for seed in range(self.clients)))
        watching.cancel()
        self._seconds += time.perf_counter() - start

    async def _one_request(self, client: Connection, random: Random) -> None:
        kind = random.choices([name for name, _ in self._mix], [weight for _, weight in self._mix])[0]
        item = random.choice(self._items)
        began = time.perf_counter()
        try:
            if kind == "search":
                quick = {"metrics": "false"} if len(self._mix) == 1 else {}
                answer = await client.get("/api/search", id=item["id"], k=24, **quick)
            elif kind == "thumbnail":
                answer = await client.get(item["thumbnail"])
            elif kind == "items":
                answer = await client.get("/api/items", within=item["names"][0])
            else:
                answer = await client.post_file("/api/search", random.choice(self._uploads))
            outcome = "busy" if answer.status == 429 else "ok" if answer.ok else "error"
        except (OSError, EOFError):
            outcome = "error"
        self._outcomes[outcome] += 1
        self._took.append((kind, 1000 * (time.perf_counter() - began)))
        if outcome == "busy":
            await asyncio.sleep(0.2)

    def load(self) -> Load:
        """The outcome."""
        everything = [one for _, one in self._took]
        return Load(
            server=self.name,
            clients=self.clients,
            seconds=self._seconds,
            requests=len(self._took),
            errors=self._outcomes["error"],
            busy=self._outcomes["busy"],
            p50=_percentile(everything, 50),
            p99=_percentile(everything, 99),
            by_kind={
                kind: _summary([one for name, one in self._took if name == kind]) for kind, _ in self._mix
            },
            memory=(*self._memory, self._server.memory()),
        )


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


def changed_picture(picture: bytes, number: int) -> bytes:
    """The picture with a unique mark, so that it is not recognised as one seen before."""
    from happier.data.image import open_image

    image = open_image(picture).convert("RGB")
    place = number % image.width, number // image.width % image.height
    image.putpixel(place, (number % 256, 255 - number % 256, number // 256 % 256))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _summary(values: list[float]) -> tuple[int, float, float]:
    return len(values), _percentile(values, 50), _percentile(values, 99)


def _percentile(values: list[float], share: float) -> float:
    return float(np.percentile(values, share)) if values else float("nan")
