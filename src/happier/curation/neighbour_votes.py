"""What neighbours and class means say about the label of each image, level by level.

The k nearest other images of an image vote with weights w_j in proportion to exp((s_j - s_1) / T), where s_j
is their cosine, and T a quarter of the mean gap between the first and the last neighbour. At level l only
neighbours that share the l - 1 levels above with the label count: each level is judged by those who agree on
its parent:

    e_l = 1/(L - l + 1) sum_{m=l..L} log( (o_m + eps) / (a_m + eps) ) + gamma (c_l - c)

where a_m is the vote for the label's own class at level m, o_m that for the strongest other
class; c is the cosine of the image with the mean of its own finest class, without the image, and c_l
that with the nearest mean of another class of level l. Neighbours know the tree well, means know small
classes well.

A label is contradicted at the coarsest level at which another class gets more votes, a mean of another class
is nearer than every mean of its own, and e_l > 0. The confidence is 1 / (1 + exp(-e_l / 4)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from happier.arrays import Float32Array, FloatArray, IntArray
from happier.curation.class_means import ClassMeans
from happier.progress import Progress
from happier.search.engine import SearchScope
from happier.search.exact import scan
from happier.taxonomy import UNKNOWN

__all__ = ["Contradictions", "Neighbours", "contradictions", "find_neighbours"]

EPSILON: Final = 0.01
GAMMA: Final = 40.0
SOFTNESS: Final = 4.0
_ROWS: Final = 4096
_BLOCK_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Neighbours:
    """The nearest other images of each image.

    Attributes:
        rows: ``[N, k]``, nearest first.
        scores: their cosines ``[N, k]``.
        weights: of their votes ``[N, k]``; each row sums to 1.
    """

    rows: IntArray
    scores: Float32Array
    weights: FloatArray


def find_neighbours(vectors: Float32Array, *, k: int, progress: Progress | None = None) -> Neighbours:
    """The k nearest other images of each, by exact search; fewer where there are fewer.

    Args:
        vectors: unit vectors ``[N, D]``, two or more.
        k: how many.
        progress: called with the images compared and their number.
    """
    k = min(k, len(vectors) - 1)
    rows = np.empty((len(vectors), k), dtype=np.int64)
    scores = np.empty((len(vectors), k), dtype=np.float32)
    scope = SearchScope(vectors)
    for start in range(0, len(vectors), _ROWS):
        own = np.arange(start, min(start + _ROWS, len(vectors)))
        found, similar = scan(vectors[own], k + 1, scope)
        other = found != own[:, None]
        # Where copies crowd an image out of its own first results, the last result is dropped instead.
        other[other.all(axis=1), -1] = False
        rows[own], scores[own] = found[other].reshape(-1, k), similar[other].reshape(-1, k)
        if progress is not None:
            progress(start + len(own), len(vectors))
    return Neighbours(rows, scores, _weights(scores))


def _weights(scores: Float32Array) -> FloatArray:
    gaps = scores.astype(np.float64) - scores[:, :1]
    temperature = float(-gaps[:, -1].mean()) / 4
    weights: FloatArray = np.exp(gaps / temperature) if temperature > 0 else np.ones_like(gaps)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


@dataclass(frozen=True)
class Contradictions:
    """The labels that neighbours and class means contradict.

    Attributes:
        rows: of the images ``[M]``, rising.
        levels: the level, counted from 0, at which each is contradicted ``[M]``.
        confidence: how clearly, 0.5 to 1 ``[M]``.
        proposed: for each the neighbour whose class is proposed ``[M]``: a row.
    """

    rows: IntArray
    levels: IntArray
    confidence: FloatArray
    proposed: IntArray

    def clearest(self, most: int) -> Contradictions:
        """At most this many, those of the highest confidence."""
        kept = np.sort(np.argsort(-self.confidence, kind="stable")[:most])
        return Contradictions(self.rows[kept], self.levels[kept], self.confidence[kept], self.proposed[kept])


def contradictions(neighbours: Neighbours, labels: IntArray, vectors: Float32Array) -> Contradictions:
    """The labels that neighbours and class means contradict, each at the coarsest level at which they do.

    Args:
        neighbours: of every image.
        labels: class numbers ``[N, L]``, as `Taxonomy.codes`; -1 unknown.
        vectors: unit vectors ``[N, D]``.
    """
    means = ClassMeans(vectors, labels)
    step = int(np.clip(_BLOCK_BYTES // (8 * max(1, len(means))), 1, _ROWS))
    parts = [
        _contradicted(np.arange(start, min(start + step, len(labels))), neighbours, labels, means)
        for start in range(0, len(labels), step)
    ]
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Contradictions(*columns)


def _contradicted(
    rows: IntArray, neighbours: Neighbours, labels: IntArray, means: ClassMeans
) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    similar = means.similarities(rows)
    near, weights = neighbours.rows[rows], neighbours.weights[rows]
    depth = labels.shape[1]
    level_of = np.full(len(rows), depth, dtype=np.int64)
    evidence = np.zeros(len(rows))
    proposed = np.full(len(rows), -1, dtype=np.int64)
    for level in range(depth):
        known = labels[rows, level] != UNKNOWN
        above = np.ones(near.shape, dtype=bool)
        if level:
            above = labels[near, level - 1] == labels[rows, level - 1][:, None]
        voters = weights * above
        logs = np.zeros((len(rows), depth - level))
        for at, finer in enumerate(range(level, depth)):
            own, other, winner = _votes(labels[near, finer], voters, labels[rows, finer])
            logs[:, at] = np.log(other + EPSILON) - np.log(own + EPSILON)
            if finer == level:
                first_own, first_other, branch = own, other, winner
        counted = labels[rows, level:] != UNKNOWN
        mean = (logs * counted).sum(axis=1) / np.maximum(1, counted.sum(axis=1))
        than_own, than_branch = means.nearer(rows, similar, level)
        mean += GAMMA * np.nan_to_num(than_own)
        # Where there are no means to compare, the neighbours decide.
        hit = known & (level_of == depth) & (mean > 0) & (first_other > first_own) & ~(than_branch <= 0)
        level_of[hit], evidence[hit] = level, mean[hit]
        inside = voters * (labels[near, level] == branch[:, None])
        proposed[hit] = _likeliest(near, inside, labels, level)[hit]
    found = level_of < depth
    confidence = 1 / (1 + np.exp(-evidence[found] / SOFTNESS))
    return rows[found], level_of[found], confidence, proposed[found]


def _votes(classes: IntArray, weights: FloatArray, own: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """The votes for a row's own class, for the strongest other one, and which that is (-1 for none)."""
    order = np.argsort(classes, axis=1, kind="stable")
    sorted_classes = np.take_along_axis(classes, order, axis=1)
    starts = np.ones(classes.shape, dtype=bool)
    starts[:, 1:] = sorted_classes[:, 1:] != sorted_classes[:, :-1]
    group = np.cumsum(starts, axis=1) - 1
    row = np.arange(len(classes))[:, None]
    sums = np.zeros(classes.shape)
    np.add.at(sums, (row, group), np.take_along_axis(weights, order, axis=1))
    names = np.full(classes.shape, UNKNOWN, dtype=np.int64)
    names[row, group] = sorted_classes
    is_own = (names == own[:, None]) & (names != UNKNOWN)
    for_own = np.where(is_own, sums, 0.0).sum(axis=1)
    others = np.where(is_own | (names == UNKNOWN), 0.0, sums)
    best = others.argmax(axis=1)
    for_other = others[row[:, 0], best]
    return for_own, for_other, np.where(for_other > 0, names[row[:, 0], best], UNKNOWN)


def _likeliest(near: IntArray, voters: FloatArray, labels: IntArray, level: int) -> IntArray:
    """A neighbour of the class that is reached by following the strongest branch from a level down."""
    no_class = np.full(len(near), UNKNOWN - 1, dtype=np.int64)
    for finer in range(level + 1, labels.shape[1]):
        _, votes, branch = _votes(labels[near, finer], voters, no_class)
        narrowed = voters * (labels[near, finer] == branch[:, None])
        voters = np.where((votes > 0)[:, None], narrowed, voters)
    likeliest: IntArray = near[np.arange(len(near)), voters.argmax(axis=1)]
    return likeliest
