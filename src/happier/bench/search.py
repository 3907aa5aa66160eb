"""Search engines compared: how fast, and how much of the exact answer each finds.

The vectors lie in clusters of clusters, as those of a trained model do; on vectors without any structure
every approximate method fails, which says nothing about images.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from happier.errors import OptionError
from happier.progress import Status, no_status
from happier.search.engine import (
    EngineItems,
    Positions,
    SearchEngine,
    SearchScope,
    VectorArray,
    allow_uri,
    create_engine,
)
from happier.search.exact import rescore, scan
from happier.search.options import RECALL

K = 10
BATCH = 64
# milvus is milvus-lite here.
LOCAL = ("flat", "hnsw", "ivfpq", "milvus")


@dataclass(frozen=True)
class ScopeSpeed:
    """How fast a scope is searched.

    Attributes:
        single: queries per second, one at a time.
        batched: queries per second, many at a time.
        recall: share of the exact nearest ten that is found.
    """

    single: float
    batched: float
    recall: float


@dataclass(frozen=True)
class EngineSpeed:
    """What one engine does on one set of vectors.

    Attributes:
        vectors: how many.
        engine: its name.
        build_seconds: to add them all.
        whole: over all vectors.
        branch: inside a branch of a quarter of them.
        bytes_per_vector: stored in addition to the index's own vector file; None where a server keeps it.
    """

    vectors: int
    engine: str
    build_seconds: float
    whole: ScopeSpeed
    branch: ScopeSpeed
    bytes_per_vector: float | None


def bench_search(
    *,
    sizes: Sequence[int] = (100_000, 1_000_000),
    dim: int = 512,
    engines: Sequence[str] = LOCAL,
    uris: Sequence[str] = (),
    queries: int = 512,
    seed: int = 0,
    place: Path | None = None,
    status: Status = no_status,
) -> Iterator[EngineSpeed]:
    """Build each engine over each number of vectors and time it; yields each result when it is ready.

    Args:
        sizes: numbers of vectors.
        dim: their length.
        engines: which of those that run in this process.
        uris: addresses of servers: of Milvus, or of PostgreSQL with pgvector.
        queries: new vectors of the same clusters to search with.
        seed: of the vectors.
        place: folder for temporary files.
        status: called with what is being done.

    Raises:
        OptionError: an unknown engine.
    """
    for name in engines:
        if name not in LOCAL:
            raise OptionError(
                f"engine must be one of {', '.join(LOCAL)}, got {name!r}; give a server by its uri"
            )
    if seed < 0:
        raise OptionError(f"seed must be 0 or more, got {seed}")
    if min(*sizes, dim, queries, 10**9) < 1:
        raise OptionError(f"sizes, dim and queries must be 1 or more, got {list(sizes)}, {dim} and {queries}")
    with tempfile.TemporaryDirectory(dir=place, prefix="happier-bench-") as folder:
        for size in sizes:
            status(f"making {size:,} vectors")
            path = Path(folder) / f"{size}.f32"
            vectors = clustered_vectors(path, size + queries, dim, seed=seed)
            gallery, asked = vectors[:size], np.array(vectors[size:])
            status(f"exact answers over {size:,} vectors")
            questions = _Questions.make(gallery, asked)
            for name, uri in [*((name, "") for name in engines), *map(_server, uris)]:
                status(f"{name} over {size:,} vectors")
                yield _measure(name, uri, questions, Path(folder))
            del vectors, gallery, questions
            path.unlink()


def clustered_vectors(path: Path, count: int, dim: int, *, seed: int, per_class: int = 50) -> VectorArray:
    """Unit vectors in classes of about ``per_class``, twenty classes to a group, in a file of their own.

    Rows are in random order, so the last ones are new members of the same classes.
    """
    generator = np.random.default_rng(seed)
    classes = max(1, count // per_class)
    groups = generator.standard_normal((max(1, classes // 20), dim), dtype=np.float32)
    centres = groups[generator.integers(0, len(groups), classes)]
    centres += 0.7 * generator.standard_normal((classes, dim), dtype=np.float32)
    with path.open("wb") as file:
        for first in range(0, count, 50_000):
            rows = min(50_000, count - first)
            block = centres[generator.integers(0, classes, rows)]
            block += 0.6 * generator.standard_normal((rows, dim), dtype=np.float32)
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            file.write(block.data)
    return np.memmap(path, dtype=np.float32, mode="r", shape=(count, dim))


@dataclass(frozen=True)
class _Questions:
    """Queries, and their exact answers over everything and inside a branch that cuts through all clusters."""

    asked: VectorArray
    whole: SearchScope
    branch: SearchScope
    exact: tuple[Positions, Positions]

    @classmethod
    def make(cls, gallery: VectorArray, asked: VectorArray) -> _Questions:
        whole = SearchScope(gallery)
        branch = SearchScope(gallery, np.arange(0, len(gallery), 4), ("quarter",))
        return cls(asked, whole, branch, (scan(asked, K, whole)[0], scan(asked, K, branch)[0]))


def _server(uri: str) -> tuple[str, str]:
    """Name of the engine for a server's address; the user named it, so it may get the password."""
    allow_uri(uri)
    return ("pgvector" if uri.startswith("postgres") else "milvus"), uri


def _measure(name: str, uri: str, questions: _Questions, folder: Path) -> EngineSpeed:
    rows, dim = questions.whole.vectors.shape
    options = {"uri": uri or str(folder / f"{rows}.db")} if name in ("milvus", "pgvector") else {}
    start = time.perf_counter()
    engine = create_engine(name, dim=dim, depth=1, rows=rows, options=options)
    try:
        names = [str(row) for row in range(rows)]
        branches = [("rest",) if row % 4 else ("quarter",) for row in range(rows)]
        engine.add(questions.whole.vectors, EngineItems(names, names, branches), start=0)
        engine.write(folder, f"{name}-{rows}")
        built = time.perf_counter() - start
        whole = _speed(engine, questions.asked, questions.whole, questions.exact[0], filtered=False)
        branch = _speed(engine, questions.asked, questions.branch, questions.exact[1], filtered=True)
        kept = None if uri else _bytes(folder, engine.settings, options) / rows
    finally:
        engine.discard()
    for file in folder.glob(f"{name}-{rows}*"):
        file.unlink()
    return EngineSpeed(rows, f"{name} server" if uri else name, built, whole, branch, kept)


def _speed(
    engine: SearchEngine, asked: VectorArray, scope: SearchScope, exact: Positions, *, filtered: bool
) -> ScopeSpeed:
    """Search as hard as an index does for the recall that it promises by default, and time that."""
    while _recall(_answer(engine, asked[:BATCH], scope), exact[:BATCH]) < RECALL.default:
        if not engine.search_harder(filtered=filtered):
            break
    single = _rate(lambda query: _answer(engine, query[None], scope), list(asked[: len(asked) // 4]))
    start = time.perf_counter()
    batches = [asked[first : first + BATCH] for first in range(0, len(asked), BATCH)]
    found = np.concatenate([_answer(engine, batch, scope) for batch in batches])
    batched = len(asked) / (time.perf_counter() - start)
    return ScopeSpeed(single, batched, _recall(found, exact))


def _recall(found: Positions, exact: Positions) -> float:
    pairs = zip(found.tolist(), exact.tolist(), strict=True)
    return sum(len(set(mine) & set(theirs)) for mine, theirs in pairs) / exact.size


def _answer(engine: SearchEngine, queries: VectorArray, scope: SearchScope) -> Positions:
    """As the index does it: candidates of an approximate engine are scored exactly."""
    positions, _ = engine.search(queries, K, scope)
    if not engine.exact:
        positions, _ = rescore(queries, positions, scope.vectors)
    return positions[:, :K]


def _rate(
    work: Callable[[VectorArray], object], pieces: Sequence[VectorArray], seconds: float = 20.0
) -> float:
    """Calls per second, measured for about the given time."""
    start = time.perf_counter()
    done = 0
    for piece in pieces:
        work(piece)
        done += 1
        if time.perf_counter() - start > seconds:
            break
    return done / (time.perf_counter() - start)


def _bytes(folder: Path, settings: dict[str, object], options: dict[str, str]) -> int:
    if "file" in settings:
        return (folder / str(settings["file"])).stat().st_size
    if "uri" in options:
        found = [Path(root) / name for root, _, names in os.walk(options["uri"]) for name in names]
        return sum(path.stat().st_size for path in found)
    return 0
