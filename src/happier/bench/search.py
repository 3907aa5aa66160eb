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
from happier.search.engine import (
    ENGINES,
    Branch,
    Positions,
    SearchEngine,
    SearchScope,
    VectorArray,
    create_engine,
)
from happier.search.exact import rescore, scan

K = 10
BATCH = 64
Report = Callable[[str], None]


@dataclass(frozen=True)
class EngineSpeed:
    """What one engine does on one set of vectors.

    Attributes:
        vectors: how many.
        engine: its name.
        build_seconds: to add them all.
        single: queries per second, one at a time.
        batched: queries per second, many at a time.
        recall: share of the exact nearest ten that it finds.
        bytes_per_vector: stored in addition to the index's own vector file.
    """

    vectors: int
    engine: str
    build_seconds: float
    single: float
    batched: float
    recall: float
    bytes_per_vector: float


def bench_search(
    *,
    sizes: Sequence[int] = (100_000, 1_000_000),
    dim: int = 512,
    engines: Sequence[str] = ENGINES,
    queries: int = 512,
    seed: int = 0,
    place: Path | None = None,
    report: Report = lambda _: None,
) -> Iterator[EngineSpeed]:
    """Build each engine over each number of vectors and time it; yields each result when it is ready.

    Args:
        sizes: numbers of vectors.
        dim: their length.
        engines: which.
        queries: new vectors of the same clusters to search with.
        seed: of the vectors.
        place: folder for temporary files.
        report: called with what is being done.

    Raises:
        OptionError: an unknown engine.
    """
    for name in engines:
        if name not in ENGINES:
            raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    if seed < 0:
        raise OptionError(f"seed must be 0 or more, got {seed}")
    if min(*sizes, dim, queries, 10**9) < 1:
        raise OptionError(f"sizes, dim and queries must be 1 or more, got {list(sizes)}, {dim} and {queries}")
    with tempfile.TemporaryDirectory(dir=place, prefix="happier-bench-") as folder:
        for size in sizes:
            report(f"making {size:,} vectors")
            path = Path(folder) / f"{size}.f32"
            vectors = clustered_vectors(path, size + queries, dim, seed=seed)
            gallery, asked = vectors[:size], np.array(vectors[size:])
            scope = SearchScope(gallery)
            report(f"exact answers over {size:,} vectors")
            exact, _ = scan(asked, K, scope)
            for name in engines:
                report(f"{name} over {size:,} vectors")
                yield _measure(name, scope, asked, exact, Path(folder))
            del vectors, gallery, scope
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


def _measure(
    name: str, scope: SearchScope, asked: VectorArray, exact: Positions, folder: Path
) -> EngineSpeed:
    rows, dim = scope.vectors.shape
    options = {"uri": str(folder / f"{rows}.db")} if name == "milvus" else {}
    start = time.perf_counter()
    engine = create_engine(name, dim=dim, depth=1, rows=rows, options=options)
    branches: list[Branch] = [("all",)] * rows
    engine.add(scope.vectors, branches, start=0)
    engine.write(folder, f"{name}-{rows}")
    built = time.perf_counter() - start
    _answer(engine, asked[:BATCH], scope)  # warms it up
    single = _rate(lambda query: _answer(engine, query[None], scope), list(asked[: len(asked) // 4]))
    start = time.perf_counter()
    batches = [asked[first : first + BATCH] for first in range(0, len(asked), BATCH)]
    found = np.concatenate([_answer(engine, batch, scope) for batch in batches])
    batched = len(asked) / (time.perf_counter() - start)
    pairs = zip(found.tolist(), exact.tolist(), strict=True)
    hits = sum(len(set(mine) & set(theirs)) for mine, theirs in pairs)
    kept = _bytes(folder, engine.settings, options)
    engine.discard()
    for file in folder.glob(f"{name}-{rows}*"):
        file.unlink()
    recall = hits / exact.size
    return EngineSpeed(rows, name, built, single, batched, recall, kept / rows)


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
