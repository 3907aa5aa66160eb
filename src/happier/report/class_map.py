"""t-SNE of the mean embedding of each fine class, one plane for each model (the paper's Fig. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from happier.arrays import FloatArray, IntArray
from happier.data.class_path import split
from happier.extras import needs_extra
from happier.report.data import ClassMap, Point
from happier.report.evaluated_run import EvaluatedRun
from happier.report.images import Pictures
from happier.taxonomy import UNKNOWN

MIN_CLASSES, MAX_CLASSES, MAX_PICTURES = 8, 3_000, 3_000
NEIGHBOURS = 5


def class_map(runs: Sequence[EvaluatedRun], pictures: Pictures, *, seed: int = 0) -> ClassMap | None:
    """The map, or None where there are too few classes for one.

    Args:
        runs: one for each model, over the same rows.
        pictures: where the sheet of pictures goes.
        seed: of t-SNE, and of the draw where there are more than `MAX_CLASSES` classes.
    """
    first = runs[0]
    rows = np.union1d(first.test_set.queries, first.test_set.gallery_rows)
    rows = rows[first.labels[rows, -1] != UNKNOWN]
    codes, example, group = np.unique(first.labels[rows, -1], return_index=True, return_inverse=True)
    if len(codes) < MIN_CLASSES:
        return None
    kept = np.arange(len(codes))
    if len(codes) > MAX_CLASSES:
        kept = np.sort(np.random.default_rng(seed).choice(len(codes), MAX_CLASSES, replace=False))
    shown = rows[example[kept]]
    perplexity = float(min(30.0, (len(kept) - 1) / 3))
    coarse_codes = first.labels[shown, 0]
    planes: list[FloatArray] = []
    agreement = []
    for run in runs:
        means = class_means(run.run.vectors, rows, group, len(codes))[kept]
        agreement.append(_agreement(means, coarse_codes))
        plane = tsne(means, perplexity, seed)
        planes.append(plane if not planes else turned_towards(plane, planes[0]))
    coarse, numbers = _coarse_names(first, shown, coarse_codes)
    points = tuple(
        Point(
            first.class_paths[int(row)],
            int(number),
            tuple((float(x), float(y)) for x, y in (_unit_square(plane)[index] for plane in planes)),
        )
        for index, (row, number) in enumerate(zip(shown, numbers, strict=True))
    )
    sprite: tuple[str | None, int, int] = (None, 0, 0)
    if len(points) <= MAX_PICTURES:
        sprite = pictures.sheet([first.files[int(row)] for row in shown])
    return ClassMap(coarse, points, len(codes) - len(kept), seed, perplexity, tuple(agreement), *sprite)


def class_means(vectors: Any, rows: IntArray, group: IntArray, classes: int) -> FloatArray:
    """Mean direction ``[classes, D]`` of the vectors of some rows; ``group`` is the class of each row."""
    sums = np.zeros((classes, vectors.shape[1]))
    for start in range(0, len(rows), 8192):  # a memory-mapped array is read in pieces
        part = slice(start, start + 8192)
        np.add.at(sums, group[part], np.asarray(vectors[rows[part]], dtype=np.float64))
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12))


def _agreement(means: FloatArray, coarse: IntArray) -> float:
    """Share of a class's nearest classes that are of its coarse class."""
    similarity = means @ means.T
    np.fill_diagonal(similarity, -np.inf)
    count = min(NEIGHBOURS, len(means) - 1)
    nearest = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
    return float((coarse[nearest] == coarse[:, None]).mean())


def tsne(means: FloatArray, perplexity: float, seed: int) -> FloatArray:
    """Positions ``[N, 2]`` of unit vectors; the same seed gives the same positions."""
    with needs_extra("report"):
        from openTSNE import TSNE
    # Unit vectors: Euclidean neighbours are cosine neighbours. One job, so that a seed gives one picture.
    reducer = TSNE(
        perplexity=perplexity, initialization="pca", neighbors="exact", random_state=seed, n_jobs=1
    )
    return np.asarray(reducer.fit(means), dtype=np.float64)


def turned_towards(plane: FloatArray, target: FloatArray) -> FloatArray:
    """Rotate and mirror a plane onto another: t-SNE fixes neither, and the planes should be comparable."""
    plane, centred = plane - plane.mean(0), target - target.mean(0)
    left, _, right = np.linalg.svd(plane.T @ centred)
    return np.asarray(plane @ left @ right)


def _unit_square(plane: FloatArray) -> FloatArray:
    """Stretched to fill the square: t-SNE's axes have no scale of their own."""
    low, high = plane.min(0), plane.max(0)
    return np.asarray((plane - low) / np.maximum(high - low, 1e-12))


def _coarse_names(run: EvaluatedRun, shown: IntArray, codes: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Names of the coarse classes, most points first, and the number of each point's class."""
    values, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    name_of = {int(code): split(run.class_paths[int(row)])[0] for row, code in zip(shown, codes, strict=True)}
    place = np.empty(len(values), dtype=np.int64)
    place[order] = np.arange(len(values))
    return tuple(name_of[int(values[index])] for index in order), place[inverse]
