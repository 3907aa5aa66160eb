"""Runs -> figures: train, embed, evaluate; several in parallel, each on one core."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from experiments.results import RunResult, StoredRun, add_classes, add_result
from happier.arrays import FloatArray, IntArray
from happier.data import Manifest
from happier.evaluation import Result
from happier.evaluation.dyml import RetrievalSet, dyml_protocol
from happier.evaluation.protocol import evaluate_manifest
from happier.runs import Run, read_run

# Metrics of the paper's tables; the rest of a summary can be recomputed from the run.
KINDS = ("H-AP", "ASI", "NDCG", "AP/", "R@1/", "severity@1", "severity@10", "first_mistake", "tied_queries")
DYML_SEED = 0
_ONE_THREAD = {
    # The process keeps freed memory instead of returning it to the system at every step.
    "MALLOC_MMAP_THRESHOLD_": str(2**31),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "OMP_WAIT_POLICY": "passive",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


def side_by_side(task: Callable[[Any], str], jobs: Sequence[Any], workers: int) -> None:
    """Do the jobs in parallel processes, each of which does many, and print the line of each finished one."""
    if not jobs:
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)
    with _one_thread_each(), pool:
        try:
            done = [pool.submit(task, job) for job in jobs]
            for number, future in enumerate(as_completed(done), start=1):
                print(f"{number}/{len(jobs)}  {future.result()}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Set the environment for workers, which read it when they load their libraries; then restore it."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ |= _ONE_THREAD
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end_with_parent() -> None:
    """End with the parent: a worker whose parent was killed would go on to train the queued jobs."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def train_run(settings: Sequence[str], directory: Path, manifest: Path, *, seed: int) -> None:
    """Train a run, or continue it, to its last weights: nothing is chosen on what is evaluated.

    Args:
        settings: overrides of ``happier train``.
        directory: of the run.
        manifest: the images.
        seed: of the run.
    """
    from happier.training.compose import compose, quoted
    from happier.training.loop import train

    train(
        compose(
            [
                *settings,
                f"run={quoted(directory)}",
                f"data.manifest={quoted(manifest)}",
                f"seed={seed}",
                "data.workers=0",
                "evaluation.every=0",
                "training.tensorboard=false",
            ]
        )
    )


def evaluate_run(directory: Path, *, manifest: Path | None = None, split: str = "test") -> Result:
    """The figures of a run on a split of its manifest; of another one, with other labels, where given."""
    return evaluate(read_run(directory, manifest=manifest, split=split), split=split)


def evaluate(run: Run, *, split: str = "test") -> Result:
    """The figures of a run whose vectors were read."""
    return evaluate_manifest(run.vectors, run.manifest, split=split).results[0]


def train_on(
    run: StoredRun, settings: Sequence[str], manifest: Manifest, *, runs: Path, judge: Path | None = None
) -> tuple[Result, float]:
    """Train on a manifest and evaluate on its test classes; returns the result and the CPU seconds.

    Args:
        run: names the directory, which is removed at the end.
        settings: overrides of ``happier train``.
        manifest: the images to train on.
        runs: folder of unfinished runs.
        judge: a manifest with the labels to evaluate under; None for the same.
    """
    name = ",".join((*run.overrides, f"loss={run.loss}", f"seed={run.seed}"))
    directory, started = runs / run.folder / name, time.process_time()
    written = manifest.write(runs / run.folder / f"{name}.parquet")
    train_run([*settings, f"loss={run.loss}"], directory, written, seed=run.seed)
    result = evaluate_run(directory, manifest=judge or written)
    shutil.rmtree(directory, ignore_errors=True)
    written.unlink()
    return result, time.process_time() - started


def add_test_result(
    run: StoredRun, result: Result, seconds: float, *, dyml: Mapping[str, float] | None = None
) -> RunResult:
    """Add the row of a run that was evaluated on test classes, with the mean H-AP of each class."""
    assert result.classes is not None
    means, classes = class_means(result.per_query["H-AP"], result.classes)
    add_classes(run.folder, classes)
    return _add(run, result, means, seconds, dyml or {})


def add_summary(run: StoredRun, result: Result, seconds: float) -> RunResult:
    """Add the row of a run without anything of single classes."""
    return _add(run, result, np.empty(0), seconds, {})


def _add(
    run: StoredRun, result: Result, means: FloatArray, seconds: float, dyml: Mapping[str, float]
) -> RunResult:
    summary = {name: round(value, 6) for name, value in result.summary.items() if name.startswith(KINDS)}
    details = {"queries": result.summary["queries"], "cpu_seconds": round(seconds, 1)}
    stored = RunResult(summary, {name: round(value, 6) for name, value in dyml.items()}, means, details)
    add_result(run, stored)
    return stored


def class_means(values: FloatArray, classes: IntArray) -> tuple[FloatArray, IntArray]:
    """Means over the queries of each class ``[C]``, and the number 0 to C-1 of each query's class.

    Queries that are undefined are left out. ``means[numbers]`` has the same mean as the values, in a fraction
    of the space.

    >>> class_means(np.array([0.5, 1.0, 0.25, np.nan]), np.array([3, 3, 1, 1]))
    (array([0.25, 0.75]), array([1, 1, 0]))
    """
    defined = ~np.isnan(values)
    _, numbers = np.unique(classes[defined], return_inverse=True)
    return np.bincount(numbers, weights=values[defined]) / np.bincount(numbers), numbers


def dyml_figures(run: Run) -> dict[str, float]:
    """DyML's protocol on the test classes in as many parts as levels, each labelled at one level only.

    One image of each fine class is a query, the others are the gallery.
    """
    manifest = run.manifest
    labels = manifest.labels()
    generator = np.random.default_rng(DYML_SEED)
    _, fine = np.unique(labels[:, -1], return_inverse=True)
    part = generator.integers(0, labels.shape[1], size=fine.max() + 1)[fine]
    shuffled = generator.permutation(len(labels))
    asks = np.zeros(len(labels), dtype=bool)
    asks[shuffled[np.unique(fine[shuffled], return_index=True)[1]]] = True
    sets = {}
    for level, name in enumerate(manifest.levels):
        query, gallery = (part == level) & asks, (part == level) & ~asks
        sets[name] = RetrievalSet(
            run.vectors[query],
            labels[query][:, [level]],
            run.vectors[gallery],
            labels[gallery][:, [level]],
        )
    return dyml_protocol(sets).summary
