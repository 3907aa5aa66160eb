"""How much nearer images are to the mean of another class than to that of their own.

An image is left out of the mean of its own finest class; the only image of a class has no mean to be compared
with.
"""

from __future__ import annotations

import numpy as np

from happier.arrays import Float32Array, FloatArray, IntArray
from happier.taxonomy import UNKNOWN

__all__ = ["ClassMeans"]

_NONE = -np.inf


class ClassMeans:
    """The means of the finest classes.

    Args:
        vectors: unit vectors ``[N, D]``.
        labels: class numbers ``[N, L]``, as `Taxonomy.codes`; -1 unknown.
    """

    def __init__(self, vectors: Float32Array, labels: IntArray) -> None:
        self._vectors = vectors
        known = np.flatnonzero(labels[:, -1] != UNKNOWN)
        # In the order of the tree the classes of every branch stand side by side.
        paths, number = np.unique(labels[known], axis=0, return_inverse=True)
        self._paths = paths
        self._class = np.full(len(labels), UNKNOWN, dtype=np.int64)
        self._class[known] = number.ravel()
        self._sums = np.zeros((len(paths), vectors.shape[1]), dtype=np.float32)
        np.add.at(self._sums, self._class[known], vectors[known])
        self._labels = labels

    def __len__(self) -> int:
        return len(self._paths)

    def similarities(self, rows: IntArray) -> FloatArray:
        """Cosine of each image with the mean of each class ``[R, C]``; -inf for its own if it is alone."""
        sums = self._sums
        found = self._vectors[rows] @ (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)).T
        own = self._class[rows]
        some = np.flatnonzero(own != UNKNOWN)
        rest = sums[own[some]] - self._vectors[rows[some]]
        length = np.linalg.norm(rest, axis=1)
        # What rounding leaves of the sum of one vector less itself is no direction.
        alone = np.bincount(self._class[self._class != UNKNOWN], minlength=len(sums))[own[some]] == 1
        cosine = (self._vectors[rows[some]] * rest).sum(axis=1) / np.maximum(length, 1e-9)
        found[some, own[some]] = np.where(alone, _NONE, cosine)
        return np.asarray(found, dtype=np.float64)

    def nearer(self, rows: IntArray, similar: FloatArray, level: int) -> tuple[FloatArray, FloatArray]:
        """How much nearer the best other class of a level is, of those with the same parent.

        Args:
            rows: the images ``[R]``, of which this level is known.
            similar: their `similarities`.
            level: counted from 0.

        Returns:
            Nearer than the mean of the image's own finest class ``[R]``, and than the best mean of its own
            class of the level ``[R]``; NaN where there is nothing to compare.
        """
        if not len(self):
            return np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        labels, at = self._labels[rows], np.arange(len(rows))
        best, place = self._best_of_branches(similar, level)
        own = place[labels[:, level]]
        inside = np.where(own >= 0, best[at, own], _NONE)
        outside = best.copy()
        outside[at[own >= 0], own[own >= 0]] = _NONE
        starts, parent = self._branches(level - 1)
        firsts = np.searchsorted(self._branches(level)[0], starts)
        above = parent[labels[:, level - 1]] if level else np.zeros(len(rows), dtype=np.int64)
        # A parent may have no class that is known to the finest level.
        other = np.where(above >= 0, np.maximum.reduceat(outside, firsts, axis=1)[at, above], _NONE)
        finest = self._class[rows]
        mine = np.where(finest != UNKNOWN, similar[at, finest], inside)
        mine = np.where(np.isfinite(mine), mine, inside)
        return _difference(other, mine), _difference(other, inside)

    def _branches(self, level: int) -> tuple[IntArray, IntArray]:
        """Where each branch of a level begins among the classes, and the place of each class number."""
        if level < 0:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        column = self._paths[:, level]
        starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]])
        place = np.full(int(self._labels[:, level].max()) + 2, -1, dtype=np.int64)
        place[column[starts]] = np.arange(len(starts))
        return starts, place

    def _best_of_branches(self, similar: FloatArray, level: int) -> tuple[FloatArray, IntArray]:
        starts, place = self._branches(level)
        return np.maximum.reduceat(similar, starts, axis=1), place


def _difference(one: FloatArray, other: FloatArray) -> FloatArray:
    defined = np.isfinite(one) & np.isfinite(other)
    return np.asarray(np.subtract(one, other, out=np.full(len(one), np.nan), where=defined))
