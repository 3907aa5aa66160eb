"""Mixed load while images come and go and processes are killed; every ranking is checked.

All changes are made from here, some over HTTP and some as the command line makes them, so the content of
each state of the index is known. An answer names its state, and must be the exact ranking of that state.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from happier.bench.http_load import Answer, Connection, ServerUnderTest, serve
from happier.bench.serve import changed_picture, drawn_index
from happier.progress import Status, no_status
from happier.search import Index

_TOKEN = "soak-token-0123456789"  # noqa: S105 - of a server on 127.0.0.1 that lives for minutes
_K = 24
# Products of another shape or another backend round differently.
_TOLERANCE = 1e-3
_CHANGE_SECONDS = 2.0
_KILL_SECONDS = 20.0
_REPEATS = 50
_MAX_FAULTS = 20


@dataclass(frozen=True)
class Soak:
    """What happened.

    Attributes:
        minutes, clients: as asked for.
        requests: answered.
        checked: rankings that were compared with exact search.
        generations: states of the index.
        added, removed: images.
        kills: processes.
        repeated: requests whose process was killed before it answered.
        wrong: rankings that were not those of the state that they named.
        failed: requests without an answer, or refused.
        lost: images that should be in the index at the end and are not, or the other way round.
        p50, p99: milliseconds of a request.
        lag: seconds until a change was seen everywhere, at most.
        memory: MiB of all processes at each tenth of the time.
        faults: the first that went wrong, one line each.
    """

    minutes: float
    clients: int
    requests: int
    checked: int
    generations: int
    added: int
    removed: int
    kills: int
    repeated: int
    wrong: int
    failed: int
    lost: int
    p50: float
    p99: float
    lag: float
    memory: tuple[float, ...]
    faults: tuple[str, ...]


def soak(
    *,
    minutes: float = 5.0,
    clients: int = 20,
    processes: int = 2,
    images: int = 400,
    status: Status = no_status,
) -> Soak:
    """Run it on a drawn catalogue.

    Args:
        minutes: how long.
        clients: at once.
        processes: of the server.
        images: of the catalogue.
        status: called with what is being done.

    Raises:
        SearchError: the server did not start.
    """
    with tempfile.TemporaryDirectory(prefix="happier-soak-") as name:
        folder = Path(name)
        status("drawing a catalogue")
        index = drawn_index(folder, images)
        tokens = folder / "tokens.toml"
        tokens.write_text(f'[soak]\ntoken = "{_TOKEN}"\nrole = "write"\n')
        status("starting the server")
        with serve(index, str(processes), str(folder / "added"), str(tokens)) as server:
            run = _Run(index, server, Random(0))
            return asyncio.run(run.run(60 * minutes, clients, status))


@dataclass
class _States:
    """The content of every state of the index, as a log of changes.

    Attributes:
        first: number of the first state.
        ids: images of the newest state.
        vectors: of every image that ever was.
        changes: for each later state, the image and whether it came.
        times: when each state was known to be complete.
    """

    first: int
    ids: set[str]
    vectors: dict[str, npt.NDArray[np.float32]]
    changes: list[tuple[str, bool]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    _cache: dict[int, tuple[list[str], npt.NDArray[np.float64]]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """Its number."""
        return self.first + len(self.changes)

    def note(self, image: str, vector: npt.NDArray[np.float32] | None) -> None:
        """A further state: with an image more, or without one."""
        if vector is None:
            self.ids.discard(image)
        else:
            self.ids.add(image)
            self.vectors[image] = vector
        self.changes.append((image, vector is not None))
        self.times.append(time.perf_counter())

    def content(self, number: int) -> tuple[list[str], npt.NDArray[np.float64]]:
        """Ids and vectors of a state."""
        if number not in self._cache:
            there = set(self.ids)
            for image, came in reversed(self.changes[number - self.first :]):
                (there.discard if came else there.add)(image)
            ids = sorted(there)
            if len(self._cache) > 64:
                del self._cache[min(self._cache)]
            self._cache[number] = ids, np.stack([self.vectors[one] for one in ids]).astype(np.float64)
        return self._cache[number]


class _Run:
    def __init__(self, index: Path, server: ServerUnderTest, random: Random) -> None:
        self._index, self._server, self._random = index, server, random
        opened = Index.open(index)
        vectors = {one: opened.vector(row) for row, one in enumerate(opened.ids)}
        self._states = _States(opened.head.generation, set(opened.ids), vectors)
        # These stay, so that they can always be asked for.
        self._lasting = opened.ids[: len(opened) // 2]
        picture = opened.items.files()[0].read_bytes()
        self._uploads = [changed_picture(picture, number) for number in range(8)]
        self._upload_vectors = _embed(opened, self._uploads)
        self._own: list[str] = []
        self._took: list[float] = []
        self._faults: list[str] = []
        self._memory: list[float] = []
        self._count = dict.fromkeys(
            ("checked", "added", "removed", "kills", "repeated", "wrong", "failed"), 0
        )
        self._lag = 0.0

    async def run(self, seconds: float, clients: int, status: Status) -> Soak:
        await self._server.ready(token=_TOKEN)
        self._end = time.perf_counter() + seconds
        status(f"{clients} clients for {seconds / 60:g} minutes")
        others = [asyncio.create_task(one) for one in (self._watch(seconds), self._kill())]
        await asyncio.gather(self._change(), *(self._search(seed) for seed in range(clients)))
        for one in others:
            one.cancel()
        left = Index.open(self._index)
        lost = set(left.ids) ^ self._states.ids
        lost |= {
            one
            for row, one in enumerate(left.ids)
            if one in self._states.ids and not np.array_equal(left.vector(row), self._states.vectors[one])
        }
        self._memory.append(self._server.memory())
        return Soak(
            minutes=seconds / 60,
            clients=clients,
            requests=len(self._took),
            generations=1 + len(self._states.changes),
            lost=len(lost),
            p50=float(np.percentile(self._took, 50)),
            p99=float(np.percentile(self._took, 99)),
            lag=self._lag,
            memory=tuple(self._memory),
            faults=tuple(self._faults),
            **self._count,
        )

    async def _watch(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds / 10)
            self._memory.append(self._server.memory())

    async def _kill(self) -> None:
        pause = min(_KILL_SECONDS, (self._end - time.perf_counter()) / 2)
        while time.perf_counter() + pause < self._end:
            await asyncio.sleep(pause)
            workers = self._server.workers()
            if len(workers) > 1:
                with suppress(psutil.NoSuchProcess):
                    self._random.choice(workers).kill()
                    self._count["kills"] += 1

    def _fault(self, kind: str, text: str) -> None:
        self._count[kind] += 1
        if len(self._faults) < _MAX_FAULTS:
            self._faults.append(f"{kind}: {text}")

    # Changes.

    async def _change(self) -> None:
        number = 0
        async with Connection(self._server.port, token=_TOKEN) as client:
            while time.perf_counter() < self._end:
                number += 1
                if number % 2 and len(self._own) < 30:
                    await self._add(client, f"new-{number}", over_http=number % 4 == 1)
                else:
                    await self._remove(client, over_http=number % 4 == 0)
                await asyncio.sleep(_CHANGE_SECONDS)

    async def _add(self, client: Connection, image: str, *, over_http: bool) -> None:
        if over_http:
            data = changed_picture(self._uploads[0], 1_000 + len(self._states.changes))
            await self._until_done(
                lambda: client.post_file("/api/images", data, class_path="0/0/0", id=image)
            )
        else:
            await asyncio.to_thread(self._add_here, image)
        vector = await asyncio.to_thread(self._vector_on_disk, image)
        if vector is None:
            return self._fault("failed", f"{image} was added but is not there")
        self._states.note(image, vector)
        self._own.append(image)
        self._count["added"] += 1
        return None

    async def _remove(self, client: Connection, *, over_http: bool) -> None:
        if not self._own:
            return None
        image = self._own.pop(self._random.randrange(len(self._own)))
        if over_http:
            await self._until_done(lambda: client.delete("/api/images", id=image))
        else:
            await asyncio.to_thread(lambda: Index.open(self._index).delete([image]))
        if await asyncio.to_thread(self._vector_on_disk, image) is not None:
            return self._fault("failed", f"{image} was removed but is still there")
        self._states.note(image, None)
        self._count["removed"] += 1
        return None

    async def _until_done(self, send: Any) -> None:
        """Repeat a change whose process was killed, unless it had taken place."""
        before = self._states.newest
        for _ in range(_REPEATS):
            try:
                answer: Answer = await send()
            except (OSError, EOFError):
                self._count["repeated"] += 1
                if Index.open(self._index).head.generation > before:
                    return
                await asyncio.sleep(0.1)
                continue
            if not answer.ok:
                self._fault("failed", f"a change was refused: {answer.status} {answer.body[:200]!r}")
            return
        self._fault("failed", "a change found no process to make it")

    def _add_here(self, image: str) -> None:
        """As the command line adds an image: the vector comes from elsewhere."""
        index = Index.open(self._index)
        vector = index.vector(self._random.randrange(len(index))) + self._noise(index.head.dim)
        manifest = index.items.take([0])
        manifest.table = manifest.table.drop(columns="position", errors="ignore").assign(
            id=image, path=f"{image}.png"
        )
        index.add(manifest, (vector / np.linalg.norm(vector))[None], fingerprint=index.head.fingerprint)

    def _noise(self, dim: int) -> npt.NDArray[np.float32]:
        generator = np.random.default_rng(self._random.randrange(1 << 30))
        return (0.02 * generator.standard_normal(dim)).astype(np.float32)

    def _vector_on_disk(self, image: str) -> npt.NDArray[np.float32] | None:
        index = Index.open(self._index)
        return index.vector(index.row(image)) if image in index else None

    # Searches.

    async def _search(self, seed: int) -> None:
        random = Random(seed)
        async with Connection(self._server.port, token=_TOKEN) as client:
            while time.perf_counter() < self._end:
                began = time.perf_counter()
                await self._one_at_last(client, random)
                self._took.append(1000 * (time.perf_counter() - began))

    async def _one_at_last(self, client: Connection, random: Random) -> None:
        """One request, repeated where the process that had it was killed."""
        for _ in range(_REPEATS):
            try:
                return await self._one(client, random)
            except (OSError, EOFError):
                self._count["repeated"] += 1
                await asyncio.sleep(0.05)
        return self._fault("failed", "a request found no process to answer it")

    async def _one(self, client: Connection, random: Random) -> None:
        share = random.random()
        if share < 0.05:
            number = random.randrange(len(self._uploads))
            answer = await client.post_file(f"/api/search?k={_K}", self._uploads[number])
            self._check(answer, self._upload_vectors[number], None, time.perf_counter())
        elif share < 0.5:
            recent = self._own[-5:]
            image = random.choice(recent) if recent and share < 0.1 else random.choice(self._lasting)
            began = time.perf_counter()
            answer = await client.get("/api/search", id=image, k=_K)
            # An image that is being removed may be gone.
            if answer.status != 404 or image in self._own or image in self._lasting:
                self._check(answer, self._states.vectors[image], image, began)
        elif share < 0.6:
            answer = await client.get("/api/items", within="0", limit=48)
            self._expect_ok(answer)
        else:
            row = random.randrange(len(self._lasting))
            answer = await client.get(f"/thumbnails/a/{row}", id=self._lasting[row])
            self._expect_ok(answer)

    def _expect_ok(self, answer: Answer) -> bool:
        if not answer.ok:
            self._fault("failed", f"{answer.status} {answer.body[:200]!r}")
        return answer.ok

    def _check(self, answer: Answer, query: npt.NDArray[np.float32], image: str | None, began: float) -> None:
        if not self._expect_ok(answer):
            return
        body = answer.json()
        number = int(body["version"].rpartition("-")[2])
        if number > self._states.newest:
            return  # the change is done and about to be noted here
        self._note_lag(number, began)
        ids, vectors = self._states.content(number)
        fault = ranking_fault(body["hits"], ids, vectors @ query.astype(np.float64), image)
        self._count["checked"] += 1
        if fault:
            self._fault("wrong", f"state {number}, query {image}: {fault}")

    def _note_lag(self, number: int, began: float) -> None:
        """How long before the request the next state was complete already."""
        at = number - self._states.first
        if at < len(self._states.times):
            self._lag = max(self._lag, began - self._states.times[at])


def ranking_fault(
    hits: Sequence[dict[str, Any]], ids: Sequence[str], scores: npt.NDArray[np.float64], query: str | None
) -> str:
    """What is wrong with a ranking, or nothing.

    Args:
        hits: as the server answered.
        ids: of all images.
        scores: of all images, exactly.
        query: the image that is never its own result.
    """
    exact = {one: float(score) for one, score in zip(ids, scores, strict=True) if one != query}
    best = sorted(exact.values(), reverse=True)[:_K]
    found = [hit["id"] for hit in hits]
    if len(found) != len(best) or len(set(found)) < len(found):
        return f"{len(found)} results, {len(set(found))} different; {len(best)} expected"
    for hit, expected in zip(hits, best, strict=True):
        if hit["id"] not in exact:
            return f"{hit['id']} is not in this state"
        if abs(hit["score"] - exact[hit["id"]]) > _TOLERANCE:
            return f"{hit['id']} has the score {exact[hit['id']]:.5f}, not {hit['score']:.5f}"
        if abs(hit["score"] - expected) > _TOLERANCE:
            return f"rank {hit['rank']} should have the score {expected:.5f}, not {hit['score']:.5f}"
    return ""


def _embed(index: Index, pictures: Sequence[bytes]) -> npt.NDArray[np.float32]:
    from happier.web.images import decode

    images = [decode(data, name="a picture") for data in pictures]
    return index.encoder().embed(images, backend="torch")
