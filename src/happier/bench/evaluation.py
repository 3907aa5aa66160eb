"""``happier bench evaluation``: exact metrics against the bare matrix product and against other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from happier.bench.measure import alternating_cpu_seconds, cpu_seconds, peak_mebibytes, wall_seconds
from happier.evaluation import evaluate
from happier.evaluation.scores import block_rows
from happier.progress import Status
from happier.taxonomy import path_codes

DIM = 512


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
    size: Size, items: int | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Unit vectors around class centres of every level, with labels, in the shape of a known test set."""
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
    vectors = generator.standard_normal((items, DIM), dtype=np.float32)
    for level in range(codes.shape[1]):
        centres = generator.standard_normal((int(codes[:, level].max()) + 1, DIM), dtype=np.float32)
        vectors += (1.0 if level == codes.shape[1] - 1 else 0.5) * centres[codes[:, level]]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, labels


def _product(
    queries: npt.NDArray[np.float32], gallery: npt.NDArray[np.float32], step: int
) -> Callable[[], None]:
    """The bare product on one thread, ``step`` queries at a time."""
    out = np.empty((step, len(gallery)), dtype=np.float32)

    def run() -> None:
        with threadpool_limits(1, user_api="blas"):
            for start in range(0, len(queries), step):
                rows = queries[start : start + step]
                np.matmul(rows, gallery.T, out=out[: len(rows)])

    return run


def measure_floor(size: Size, queries: int, *, tell: Status) -> Iterator[EvaluationSpeed]:
    """All metrics against numpy's matrix product of the same queries and gallery."""
    vectors, labels = gallery_like(size)
    queries = min(queries, len(vectors))
    some = np.arange(queries)
    arguments = (vectors[:queries], labels[:queries], vectors, labels, some, np.arange(len(vectors)))

    evaluate(vectors[:4], labels[:4], vectors, labels)  # compile
    tell(f"{size.name}: matrix product and evaluate, 1 thread")
    step, large_step = block_rows(len(vectors), 4, queries, None), min(queries, 1024)
    best = alternating_cpu_seconds(
        [
            _product(vectors[:queries], vectors, step),
            _product(vectors[:queries], vectors, large_step),
            lambda: evaluate(*arguments, threads=1),
        ]
    )
    floor, large, one = (seconds / queries for seconds in best)
    note = f"in evaluate's blocks of {step:,} queries ({4 * step * len(vectors) >> 20} MiB)"
    yield EvaluationSpeed("numpy matrix product, 1 thread", size.name, queries, 1e3 * floor, 1.0, note)
    note = f"in blocks of {large_step:,} queries ({4 * large_step * len(vectors) >> 20} MiB)"
    yield EvaluationSpeed(
        "numpy matrix product, 1 thread", size.name, queries, 1e3 * large, large / floor, note
    )
    yield EvaluationSpeed(
        "happier.evaluate, 1 thread", size.name, queries, 1e3 * one, one / floor, "CPU time; all metrics"
    )
    tell(f"{size.name}: memory")
    extra = peak_mebibytes(lambda: evaluate(*arguments, threads=1))
    tell(f"{size.name}: 1 and 2 threads")
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


def measure_growth(size: Size, queries: int, *, tell: Status) -> Iterator[EvaluationSpeed]:
    """Cost of a query at N, 2N and 4N items; one-time work is reported separately."""
    vectors, labels = gallery_like(size)
    first = first_product = None
    for parts in (4, 2, 1):
        items = len(vectors) // parts
        tell(f"{size.name}: {items:,} items")
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


def measure_others(items: int, *, tell: Status) -> Iterator[EvaluationSpeed]:
    """Other libraries, which compute fine AP only, and the sort-everything form, on a smaller set."""
    size = SIZES["sop"]
    vectors, labels = gallery_like(size, items)
    labels[:, -1] %= max(1, items // 5)
    fine = path_codes(labels)[:, -1]
    arguments = vectors, labels
    evaluate(vectors[:4], labels[:4], vectors, labels)
    tell("evaluate")
    mine = cpu_seconds(lambda: evaluate(*arguments, threads=1), least=2)
    yield EvaluationSpeed("happier.evaluate, all metrics", f"{items:,}", items, 1e3 * mine / items, 1.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for run in _alternatives(vectors[:50], labels[:50], np.arange(50) // 5).values():
            run()  # some compile on the first call
        for name, run in _alternatives(vectors, labels, fine).items():
            tell(name)
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


def measure_exactness(*, tell: Status) -> float:
    """Largest difference of any metric between the kernel and plain float64, given the same scores."""
    tell("exactness")
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, size=(400, 3))
    vectors = generator.integers(-8, 9, size=(400, 8)).astype(np.float32)  # scores are exact whole numbers
    fast, slow = evaluate(vectors, labels), evaluate(vectors.astype(np.float64), labels, engine="torch")
    return max(
        float(np.nanmax(np.abs(values - slow.per_query[name]), initial=0.0))
        for name, values in fast.per_query.items()
    )


def as_json(rows: list[EvaluationSpeed], difference: float) -> dict[str, Any]:
    """Everything measured, for programs."""
    return {"rows": [asdict(row) for row in rows], "largest_difference": difference}
