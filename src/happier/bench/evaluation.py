"""``happier bench evaluation``: exact metrics against the bare matrix product and against other libraries."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from happier.bench.measure import alternating_cpu_seconds, cpu_seconds, peak_mebibytes, wall_seconds
from happier.errors import HappierError, OptionError
from happier.evaluation import evaluate, kernel_engine
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.scores import block_rows
from happier.numba_cache import jit
from happier.progress import Status
from happier.taxonomy import path_codes

DIM = 512
GALLERY_PIECE = 16_384  # rows that are drawn at a time
# Private memory of the process while it evaluates a gallery on disk, and after how long the system is made to
# forget what it read of that, in what pieces.
MEMORY_LIMIT = 7 << 29
EVICT_SECONDS = 0.25
EVICT_BYTES = 16 << 20
# Means that differ by less are equal: the order of two items whose scores differ in the last bit may change.
EQUAL = 1e-5


@dataclass(frozen=True)
class Size:
    """A gallery in the shape of a known test set."""

    name: str
    items: int
    branches: tuple[int, ...]  # children of a class, level by level; last, the number of finest classes


SIZES = {
    "sop": Size("sop", 60_502, (12, 11_316)),
    "inat-full": Size("inat-full", 136_093, (3, 3, 4, 6, 8, 3, 2_452)),
}


@dataclass(frozen=True)
class EvaluationSpeed:
    """One measurement; ``ratio`` is to the floor, or to happier where it is another library."""

    what: str
    size: str
    queries: int
    milliseconds: float  # per query
    ratio: float
    note: str = ""


def gallery_like(
    size: Size, items: int | None = None, *, file: Path | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Unit vectors around class centres of every level, with labels, in the shape of a known test set.

    With a ``file`` the vectors are written to it, and mapped from there.
    """
    items = items or size.items
    generator = np.random.default_rng(0)
    leaves = size.branches[-1]
    # Every leaf draws its ancestors once, so that leaves form a tree; kingdoms are uneven, as in nature.
    columns = []
    for level, branches in enumerate(size.branches[:-1]):
        weights = (
            np.array([0.52, 0.45, 0.03]) if level == 0 and branches == 3 else np.full(branches, 1 / branches)
        )
        columns.append(generator.choice(branches, size=leaves, p=weights))
    tree = np.stack([*columns, np.arange(leaves)], axis=1)
    labels = tree[generator.integers(0, leaves, size=items)]
    codes = path_codes(labels)
    strengths = [0.5] * (codes.shape[1] - 1) + [1.0]
    centres = [
        strength * generator.standard_normal((int(column.max()) + 1, DIM), dtype=np.float32)
        for strength, column in zip(strengths, codes.T, strict=True)
    ]
    shape = (items, DIM)
    vectors = (
        np.empty(shape, dtype=np.float32)
        if file is None
        else np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
    )
    for start in range(0, items, GALLERY_PIECE):
        rows = vectors[start : start + GALLERY_PIECE]
        rows[:] = generator.standard_normal(rows.shape, dtype=np.float32)
        for level, own in enumerate(centres):
            rows += own[codes[start : start + len(rows), level]]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if isinstance(vectors, np.memmap) and file is not None:
        vectors.flush()
        vectors = np.load(file, mmap_mode="r")
    return vectors, labels


def _product(
    queries: npt.NDArray[np.float32], gallery: npt.NDArray[np.float32], step: int
) -> Callable[[], None]:
    """The bare product on one thread, ``step`` queries at a time."""

    def run() -> None:
        # Of its own for each run, as evaluate's: the system takes a while to hand out so much memory.
        out = np.empty((step, len(gallery)), dtype=np.float32)
        with threadpool_limits(1, user_api="blas"):
            for start in range(0, len(queries), step):
                rows = queries[start : start + step]
                np.matmul(rows, gallery.T, out=out[: len(rows)])

    return run


def measure_floor(size: Size, queries: int, *, status: Status) -> Iterator[EvaluationSpeed]:
    """All metrics against numpy's matrix product of the same queries and gallery."""
    vectors, labels = gallery_like(size)
    queries = min(queries, len(vectors))
    some = np.arange(queries)
    arguments = (vectors[:queries], labels[:queries], vectors, labels, some, np.arange(len(vectors)))

    evaluate(vectors[:4], labels[:4], vectors, labels)  # compile
    status(f"{size.name}: matrix product and evaluate, 1 thread")
    step, large_step = block_rows(len(vectors), 4, queries, None), min(queries, 1024)
    problem, options = RetrievalProblem.prepare(*arguments), EvaluationOptions(threads=1)
    schema = options.schema(problem.depth)
    least, share = _least_work(problem, step)
    best = alternating_cpu_seconds(
        [
            _product(vectors[:queries], vectors, step),
            _product(vectors[:queries], vectors, large_step),
            lambda: evaluate(*arguments, threads=1),
            lambda: kernel_engine.tally(problem, schema, options, range(queries)),
            *least,
        ]
    )
    floor, large, one, tallied = (seconds / queries for seconds in best[:4])
    reading, counting, sorting = (seconds / step for seconds in best[4:])

    def row(what: str, seconds: float, note: str) -> EvaluationSpeed:
        return EvaluationSpeed(what, size.name, queries, 1e3 * seconds, seconds / floor, note)

    yield row(
        "numpy matrix product, 1 thread",
        floor,
        f"in evaluate's blocks of {step:,} queries ({4 * step * len(vectors) >> 20} MiB)",
    )
    yield row(
        "numpy matrix product, 1 thread",
        large,
        f"in blocks of {large_step:,} queries ({4 * large_step * len(vectors) >> 20} MiB)",
    )
    yield row("happier.evaluate, 1 thread", one, "CPU time; all metrics")
    yield row("- the kernel", tallied - floor, "sorts, counts and sums; the product is the first line")
    yield row("- the rest", one - tallied, "checks, label order, duplicates, metrics from the sums")
    yield row("for comparison: one read of all scores", reading, "numpy's max of a block")
    yield row("for comparison: one count of all scores", counting, "in a table, where the entry is known")
    yield row("for comparison: one sort of the positives", sorting, f"np.sort of {share:.0%} of the scores")
    status(f"{size.name}: memory")
    extra = peak_mebibytes(lambda: evaluate(*arguments, threads=1))
    status(f"{size.name}: 1 and 2 threads")
    alone = wall_seconds(lambda: evaluate(*arguments, threads=1)) / queries
    two = wall_seconds(lambda: evaluate(*arguments, threads=2)) / queries
    note = f"wall clock; {alone / two:.2f} times as fast as 1 thread ({1e3 * alone:.3f} ms)"
    yield EvaluationSpeed("happier.evaluate, 2 threads", size.name, queries, 1e3 * two, two / floor, note)
    if extra is not None:
        yield EvaluationSpeed(
            "peak memory beyond the inputs",
            size.name,
            queries,
            float("nan"),
            float("nan"),
            f"{extra:.0f} MiB",
        )


def _least_work(problem: RetrievalProblem, rows: int) -> tuple[list[Callable[[], None]], float]:
    """What no exact evaluation avoids, on one block of scores: reading, counting, and sorting the positives.

    To count is to add one to an entry of a table for each score, without finding out which. Last comes the
    share of the scores that belong to positives.
    """
    gallery, match = problem.gallery.values, problem.matching.block(slice(0, rows))
    scores = np.asarray(problem.queries.values[:rows] @ gallery.T)
    order = problem.matching.order
    lists = [
        scores[q, order[start:stop]]
        for q, (start, stop) in enumerate(zip(match.starts[:, 0], match.stops[:, 0], strict=True))
    ]

    low, high = float(scores.min()), float(scores.max())
    entries = ((scores - low) * (np.iinfo(np.uint16).max / (high - low))).astype(np.uint16)
    table = np.zeros(1 << 16, dtype=np.uint32)
    _count(entries[:1], table)  # compile

    def sort() -> None:
        for own in lists:
            np.sort(own)

    share = sum(map(len, lists)) / scores.size
    return [lambda: scores.max(), lambda: _count(entries, table), sort], share


@jit(nogil=True)
def _count(entries: Any, table: Any) -> None:
    for row in entries:
        for entry in row:
            table[entry] += np.uint32(1)


def measure_growth(size: Size, queries: int, *, status: Status) -> Iterator[EvaluationSpeed]:
    """Cost of a query at N, 2N and 4N items; one-time work is reported separately."""
    vectors, labels = gallery_like(size)
    first = first_product = None
    for parts in (4, 2, 1):
        items = len(vectors) // parts
        status(f"{size.name}: {items:,} items")
        gallery = vectors[:items], labels[:items]

        def run(number: int, gallery: Any = gallery) -> None:
            evaluate(vectors[:number], labels[:number], *gallery, threads=1)

        once, whole, product = alternating_cpu_seconds(
            [
                partial(run, 1),
                partial(run, queries),
                _product(vectors[:queries], gallery[0], block_rows(items, 4, queries, None)),
            ]
        )
        cost = (whole - once) / max(1, queries - 1)
        first, first_product = first or cost, first_product or product
        note = f"{once:.2f} s once not counted; the product alone: {product / first_product:.2f}"
        yield EvaluationSpeed(f"{items:,} items", size.name, queries, 1e3 * cost, cost / first, note)


def measure_large(size: Size, items: int, queries: int, *, status: Status) -> Iterator[EvaluationSpeed]:
    """A quarter, half and all of a gallery of many items: time and memory."""
    status(f"drawing {items:,} items")
    vectors, labels = gallery_like(size, items)
    evaluate(vectors[:4], labels[:4], vectors[:100], labels[:100])  # compile
    some = min(queries, 1024)
    status(f"{items:,} items: matrix product of {some:,} queries")
    product = _product(vectors[:some], vectors, block_rows(items, 4, queries, None))
    floor = alternating_cpu_seconds([product], rounds=1)[0] / some
    name = f"{items:,}"
    yield EvaluationSpeed("numpy matrix product, 1 thread", name, some, 1e3 * floor, 1.0)
    for parts in (4, 2, 1):
        part = items // parts
        status(f"{part:,} items: evaluate {queries:,} queries")
        arguments = (vectors[:queries], labels[:queries], vectors[:part], labels[:part])
        taken: list[float] = []

        def run(arguments: Any = arguments, taken: list[float] = taken) -> None:
            taken.extend(alternating_cpu_seconds([lambda: evaluate(*arguments, threads=1)], rounds=1))

        extra = peak_mebibytes(run)
        note = f"{taken[0]:.1f} s of CPU time, everything included"
        if extra is not None:
            note += f"; {extra:,.0f} MiB beyond the inputs"
        cost = taken[0] / queries
        what = f"happier.evaluate, 1 thread, {part:,} items"
        yield EvaluationSpeed(what, name, queries, 1e3 * cost, cost / floor, note)


def measure_on_disk(size: Size, items: int, queries: int, *, status: Status) -> Iterator[EvaluationSpeed]:
    """A gallery on disk that is larger than the memory that the process may use, and the same in memory."""
    if not sys.platform.startswith("linux"):
        raise OptionError("a gallery on disk is measured on Linux only")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gallery.npy"
        status(f"writing {items * DIM * 4 / 1e9:.1f} GB to {file}")
        gallery, labels = gallery_like(size, items, file=file)
        known = np.array(gallery[:queries]), labels[:queries]
        evaluate(known[0][:4], known[1][:4], gallery[:100], labels[:100])  # compile
        found, cpu = [], []

        def run(vectors: Any) -> None:
            start = time.process_time()
            found.append(evaluate(*known, vectors, labels, threads=1).per_query)
            cpu.append(time.process_time() - start)

        status("from disk")
        with _little_memory(gallery, file) as most:
            before = _bytes_read()
            from_disk = wall_seconds(partial(run, gallery))
            read = _bytes_read() - before
        status("from memory")
        resident = np.load(file)
        in_memory = wall_seconds(partial(run, resident))
    # BLAS may round the last bit otherwise in blocks of another size: then two scores tie, or no longer do.
    names = [name for name in found[0] if name != "tied_queries"]
    difference = max(abs(np.nanmean(found[0][name]) - np.nanmean(found[-1][name])) for name in names)
    results = "results are equal" if difference < EQUAL else f"RESULTS DIFFER by {difference:.1g}"
    notes = (
        f"{resident.nbytes / 2**30:.1f} GiB; by the clock; {min(cpu[2:]):.1f} s of CPU time",
        f"private memory limited to {MEMORY_LIMIT / 2**30:.1f} GiB, at most {most() / 2**30:.1f} GiB of the "
        f"file in the system's cache; {read / 2**30:.1f} GiB read from the disk; "
        f"{in_memory / from_disk:.0%} of the speed in memory; {min(cpu[:2]):.1f} s of CPU time; {results}",
    )
    for what, seconds, note in zip(
        ("gallery in memory", "gallery on disk"), (in_memory, from_disk), notes, strict=True
    ):
        cost = seconds / queries
        ratio = seconds / in_memory
        yield EvaluationSpeed(f"{what}, {items:,} items", size.name, queries, 1e3 * cost, ratio, note)


def _bytes_read() -> int:
    """Bytes that this process made the disks read."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


@contextmanager
def _little_memory(mapped: Any, file: Path) -> Iterator[Callable[[], int]]:
    """Limit the private memory of this process, and what the system caches of a mapped file.

    What was read longer than `EVICT_SECONDS` ago is dropped, as by a system that has no room for it. Gives a
    function that says how many bytes of the file were cached at most.
    """
    import resource  # Unix only

    usual = resource.getrlimit(resource.RLIMIT_DATA)
    done = threading.Event()
    opened = os.open(file, os.O_RDONLY)
    os.fsync(opened)
    most = 0

    def evict() -> None:
        nonlocal most
        before = np.ones(-(-len(mapped._mmap) // EVICT_BYTES), dtype=bool)
        while not done.is_set():
            cached = _cached_bytes(mapped._mmap)
            most = max(most, int(cached.sum()) if not before.all() else 0)  # not what is there at the start
            for piece in np.flatnonzero(before & (cached > 0)):
                start = int(piece) * EVICT_BYTES
                mapped._mmap.madvise(mmap.MADV_DONTNEED, start, min(EVICT_BYTES, len(mapped._mmap) - start))
                os.posix_fadvise(opened, start, EVICT_BYTES, os.POSIX_FADV_DONTNEED)
            before = cached > 0
            done.wait(EVICT_SECONDS)

    evicting = threading.Thread(target=evict)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, usual[1]))
    evicting.start()
    try:
        yield lambda: most
    finally:
        done.set()
        evicting.join()
        os.close(opened)
        resource.setrlimit(resource.RLIMIT_DATA, usual)


def _cached_bytes(mapping: mmap.mmap) -> npt.NDArray[np.int64]:
    """How much of each `EVICT_BYTES` of a mapped file is in memory."""
    start = np.frombuffer(mapping, dtype=np.uint8).ctypes.data
    pages = np.empty(-(-len(mapping) // mmap.PAGESIZE), dtype=np.uint8)
    ctypes.CDLL(None).mincore(
        ctypes.c_void_p(start), ctypes.c_size_t(len(mapping)), ctypes.c_void_p(pages.ctypes.data)
    )
    edges = np.arange(0, len(pages), EVICT_BYTES // mmap.PAGESIZE)
    return np.add.reduceat((pages & 1).astype(np.int64), edges) * mmap.PAGESIZE


def measure_ranks(size: Size, queries: int, ranks: int, *, status: Status) -> Iterator[EvaluationSpeed]:
    """One rank and several under torchrun, one thread each."""
    first = None
    for number in (1, ranks):
        status(f"{size.name}: {number} rank(s) under torchrun")
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}"]
        own = ["-m", "happier.bench.evaluation", json.dumps([asdict(size), queries])]
        done = subprocess.run(
            [sys.executable, *torchrun, *own],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise HappierError(f"torchrun failed: {' '.join(done.stderr.strip().splitlines()[-1:])}")
        clock, cpu = json.loads(done.stdout)
        first = first or (clock, cpu)
        note = (
            f"by the clock, {first[0] / clock:.2f} times as fast as one rank; the slowest took {cpu:.2f} s "
            f"of CPU time, one alone {first[1] / cpu:.2f} times as much"
        )
        what, cost = f"{number} rank(s), 1 thread each", 1e3 * clock / queries
        yield EvaluationSpeed(what, size.name, queries, cost, clock / first[0], note)


def _as_rank() -> None:
    """What each rank of `measure_ranks` does; the first prints the seconds."""
    size, queries = json.loads(sys.argv[1])
    torch.distributed.init_process_group("gloo")
    vectors, labels = gallery_like(Size(**size))
    queries = min(queries, len(vectors))
    run = partial(evaluate, vectors[:queries], labels[:queries], vectors, labels, threads=1)
    evaluate(vectors[:4], labels[:4], vectors, labels, threads=1)  # compile

    best = torch.full((2,), torch.inf, dtype=torch.float64)  # by the clock, CPU time
    for _ in range(3):
        torch.distributed.barrier()
        start = torch.tensor([time.perf_counter(), time.process_time()], dtype=torch.float64)
        run()
        taken = torch.tensor([time.perf_counter(), time.process_time()], dtype=torch.float64) - start
        torch.distributed.all_reduce(taken, torch.distributed.ReduceOp.MAX)
        best = best.minimum(taken)
    if torch.distributed.get_rank() == 0:
        sys.stdout.write(json.dumps(best.tolist()))
    torch.distributed.destroy_process_group()


def measure_others(items: int, *, status: Status) -> Iterator[EvaluationSpeed]:
    """Other libraries, which compute fine AP only, and the sort-everything form, on a smaller set."""
    size = SIZES["sop"]
    vectors, labels = gallery_like(size, items)
    labels[:, -1] %= max(1, items // 5)
    fine = path_codes(labels)[:, -1]
    arguments = vectors, labels
    evaluate(vectors[:4], labels[:4], vectors, labels)
    status("evaluate")
    mine = cpu_seconds(lambda: evaluate(*arguments, threads=1), least=2)
    yield EvaluationSpeed("happier.evaluate, all metrics", f"{items:,}", items, 1e3 * mine / items, 1.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for run in _alternatives(vectors[:50], labels[:50], np.arange(50) // 5).values():
            run()  # some compile on the first call
        for name, run in _alternatives(vectors, labels, fine).items():
            status(name)
            cost = cpu_seconds(run, least=1)
            yield EvaluationSpeed(
                name, f"{items:,}", items, 1e3 * cost / items, cost / mine, "times the CPU time of happier"
            )
    finally:
        torch.set_num_threads(threads)


def _alternatives(
    vectors: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], fine: npt.NDArray[np.int64]
) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "sort everything, plain torch, all metrics": lambda: evaluate(vectors, labels, engine="torch")
    }
    tensor, classes = torch.from_numpy(vectors), torch.from_numpy(fine)
    try:
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

        calculator = AccuracyCalculator(include=("mean_average_precision",), k=len(vectors) - 1)
        found["pytorch-metric-learning AccuracyCalculator, fine AP"] = lambda: calculator.get_accuracy(
            tensor, classes
        )
    except ImportError:
        pass
    try:
        from torchmetrics.retrieval import RetrievalMAP

        found["torchmetrics RetrievalMAP, fine AP"] = lambda: _torchmetrics(RetrievalMAP(), tensor, classes)
    except ImportError:
        pass
    try:
        import ranx  # noqa: F401

        found["ranx, fine AP"] = lambda: _ranx(vectors, fine)
    except ImportError:
        pass
    return found


def _torchmetrics(metric: Any, vectors: torch.Tensor, classes: torch.Tensor) -> None:
    items = len(vectors)
    others = torch.arange(items)
    for query in range(items):
        keep = others != query
        scores = (vectors @ vectors[query])[keep]
        metric.update(scores, (classes == classes[query])[keep], torch.full((items - 1,), query))
    metric.compute()


def _ranx(vectors: npt.NDArray[np.float32], fine: npt.NDArray[np.int64]) -> None:
    from ranx import Qrels, Run
    from ranx import evaluate as ranx_evaluate

    names = [str(i) for i in range(len(vectors))]
    scores = vectors @ vectors.T
    run, relevant = {}, {}
    for query in range(len(vectors)):
        same = set(np.flatnonzero(fine == fine[query]).tolist()) - {query}
        if same:
            relevant[names[query]] = {names[i]: 1 for i in same}
            row = dict(zip(names, scores[query].tolist(), strict=True))
            del row[names[query]]
            run[names[query]] = row
    ranx_evaluate(Qrels(relevant), Run(run), "map")


def measure_exactness(*, status: Status) -> float:
    """Largest difference of any metric between the kernel and plain float64, given the same scores."""
    status("exactness")
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, size=(400, 3))
    vectors = generator.integers(-8, 9, size=(400, 8)).astype(np.float32)  # scores are exact whole numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are no unit vectors
        fast, slow = evaluate(vectors, labels), evaluate(vectors.astype(np.float64), labels, engine="torch")
    return max(
        float(np.nanmax(np.abs(values - slow.per_query[name]), initial=0.0))
        for name, values in fast.per_query.items()
    )


def as_json(rows: list[EvaluationSpeed], difference: float) -> dict[str, Any]:
    """Everything measured, for programs."""
    return {"rows": [asdict(row) for row in rows], "largest_difference": difference}


if __name__ == "__main__":
    _as_rank()
