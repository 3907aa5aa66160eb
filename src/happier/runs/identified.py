"""Runs -> how well images are named by their vectors."""

from __future__ import annotations

import numpy as np

from happier.evaluation.protocol import EvaluationSet
from happier.identification.experiment import IdentificationFigures, OpenSplit, measure_identification
from happier.runs.comparison import Comparison
from happier.runs.run import Run

__all__ = ["identify_run", "identify_runs"]

MOST_QUERIES = 5_000
"""Of more queries this many are drawn at random; the index stays whole."""


def identify_runs(found: Comparison, *, seed: int = 0) -> tuple[IdentificationFigures, ...]:
    """Measure identification by each run's vectors; of several test sets the finest.

    Raises:
        InputError: no class has two images, or there is one class only.
    """
    pairs = zip(found.runs, found.evaluations, strict=True)
    return tuple(identify_run(run, one.sets[-1], seed=seed) for run, one in pairs)


def identify_run(run: Run, test_set: EvaluationSet, *, seed: int = 0) -> IdentificationFigures:
    """Measure identification by a run's vectors of one test set.

    Raises:
        InputError: no class has two images, or there is one class only.
    """
    labels = run.manifest.labels()[:, : len(test_set.level_names)]
    # Queries that are searched among each other are divided into an index and queries.
    gallery = test_set.gallery if test_set.gallery is not None and not test_set.distractors else None
    split = OpenSplit.draw(labels, queries=test_set.queries, gallery=gallery, seed=seed)
    if len(split.queries) > MOST_QUERIES:
        drawn = np.random.default_rng(seed).choice(split.queries, MOST_QUERIES, replace=False)
        split = OpenSplit(split.index, np.sort(drawn))
    vectors = np.asarray(run.vectors, dtype=np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return measure_identification(
        vectors / np.maximum(lengths, 1e-12),
        labels,
        split,
        level_names=test_set.level_names,
        ids=[str(one) for one in run.manifest.ids()],
    )
