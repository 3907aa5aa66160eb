"""Identification measured on labelled vectors, side by side with simpler methods.

Half of the images of each finest class are queries, the others are the index; then one class in ten is taken
out of the index, so that its queries are of a new class. Where there are queries and a gallery of their own,
the gallery is the index.

    down the tree          votes of the neighbours, calibrated at each level: `happier identify`
    without the tree       the same with the finest classes as one flat list
    nearest neighbour      the class of the nearest image; confidence is its similarity
    majority of 10         the most frequent finest class of the ten nearest; confidence is its share
    softmax classifier     linear, on the same vectors; confidence is its probability

A method without the tree is sure of a finest class or of nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn import functional as F

from happier.arrays import Float32Array, FloatArray, IntArray
from happier.errors import InputError
from happier.identification.answers import descend
from happier.identification.calibration import NEW_SHARE, Calibration
from happier.identification.learn_calibration import NEIGHBOURS, calibrate
from happier.identification.measures import Answers, Claims, auroc, coverage_curve
from happier.identification.tree import ROOT, NodeTree
from happier.identification.votes import Neighbours
from happier.taxonomy import UNKNOWN, as_labels, path_codes

__all__ = [
    "IdentificationFigures",
    "IdentificationTrial",
    "MethodFigures",
    "OpenSplit",
    "measure_identification",
]

NEAREST = "nearest neighbour"
SURE = 0.9
RIGHT = 0.9
COVERAGE = np.linspace(0.05, 1, 20)
_NOT_INDEXED = -2
_MAJORITY = 10
# Products of the softmax classifier's training that are worth waiting for.
_SOFTMAX_PRODUCTS = 2e11
_EPOCHS, _BATCH, _SCALE, _RATE = 15, 256, 20.0, 2e-3


@dataclass(frozen=True)
class MethodFigures:
    """One method's figures.

    Attributes:
        name: of the method.
        accuracy: share of right claims at each level, new classes included.
        calibration_error: at each level; NaN where the method has no probability of its own for it.
        answers: at the probability asked for; a method without probabilities answers always.
        depth_at_right: the deepest answers, on average, of which nine in ten are right.
        at_depth: the answers at the threshold where they are as deep, on average, as those of the first
            method.
        new_auroc: how well the confidence in the finest class tells seen from new classes.
    """

    name: str
    accuracy: tuple[float, ...]
    calibration_error: tuple[float, ...]
    answers: Answers
    depth_at_right: float
    at_depth: Answers
    new_auroc: float


@dataclass(frozen=True)
class IdentificationFigures:
    """What was measured.

    Attributes:
        levels: names, coarse to fine.
        indexed, queries: numbers of images.
        new: share of the queries whose finest class is not in the index.
        sure: the probability asked for.
        methods: `happier identify` first.
        coverage: shares of the queries, the surest first.
        curves: accuracy at each level over `coverage`: ``[level][step]``.
        nearest_curves: the same for the nearest neighbour.
        rough: whether there was too little to learn a calibration from.
    """

    levels: tuple[str, ...]
    indexed: int
    queries: int
    new: float
    sure: float
    methods: tuple[MethodFigures, ...]
    coverage: tuple[float, ...]
    curves: tuple[tuple[float, ...], ...]
    nearest_curves: tuple[tuple[float, ...], ...]
    rough: bool


@dataclass(frozen=True)
class OpenSplit:
    """Rows of the index and of the queries.

    Attributes:
        index: rows of the index, without the new classes.
        queries: rows of the queries.
    """

    index: IntArray
    queries: IntArray

    @classmethod
    def draw(
        cls,
        labels: IntArray,
        *,
        queries: IntArray | None = None,
        gallery: IntArray | None = None,
        seed: int = 0,
    ) -> OpenSplit:
        """Choose queries and new classes at random.

        Args:
            labels: class numbers ``[N, L]``, -1 unknown.
            queries: rows of the queries, where there are any of their own.
            gallery: rows of the index, where there is one.
            seed: of the choice.
        """
        generator = np.random.default_rng(seed)
        fine = path_codes(as_labels(labels))[:, -1]
        if queries is None or gallery is None:
            order = generator.permutation(np.arange(len(labels)) if queries is None else queries)
            order = order[np.argsort(fine[order], kind="stable")]
            starts = np.flatnonzero(np.r_[True, fine[order][1:] != fine[order][:-1]])
            place = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
            gallery, queries = order[place % 2 == 0], order[place % 2 == 1]
        queries = queries[labels[queries, 0] != UNKNOWN]
        classes = np.unique(fine[gallery][fine[gallery] != UNKNOWN])
        new = generator.choice(classes, round(NEW_SHARE * len(classes)), replace=False)
        return cls(np.sort(gallery[~np.isin(fine[gallery], new)]), np.sort(queries))


def measure_identification(
    vectors: Float32Array,
    labels: IntArray,
    split: OpenSplit,
    *,
    level_names: Sequence[str],
    ids: Sequence[str],
    sure: float = SURE,
) -> IdentificationFigures:
    """Identify the queries by the index with each method, and measure the answers.

    Args:
        vectors: unit vectors ``[N, D]``.
        labels: class numbers ``[N, L]``, -1 unknown.
        split: of the rows.
        level_names: coarse to fine.
        ids: of the rows.
        sure: the probability asked for.

    Raises:
        InputError: no queries, or an index with nothing to tell apart.
    """
    return IdentificationTrial(vectors, labels, split, ids).figures(level_names, sure)


def _curves(claims: Claims) -> tuple[tuple[float, ...], ...]:
    return tuple(
        tuple(coverage_curve(claims.confidence[known, level], claims.right[known, level], COVERAGE).tolist())
        for level, known in enumerate(claims.known.T)
    )


class IdentificationTrial:
    """The index and the queries of one split, and what each method claims.

    Args:
        vectors, labels, split, ids: see `measure_identification`.

    Raises:
        InputError: see `measure_identification`.
    """

    def __init__(self, vectors: Float32Array, labels: IntArray, split: OpenSplit, ids: Sequence[str]) -> None:
        if not len(split.queries) or len(split.index) < 2:
            raise InputError(
                f"identification needs queries and an index, got {len(split.queries)} and {len(split.index)} "
                "images: each class needs two or more"
            )
        self.index = np.ascontiguousarray(vectors[split.index], dtype=np.float32)
        self.queries = np.ascontiguousarray(vectors[split.queries], dtype=np.float32)
        self.tree = NodeTree.from_labels(labels[split.index])
        self.ids = [ids[row] for row in split.index]
        calibration = calibrate(self.index, labels[split.index], self.ids)
        if calibration is None:
            raise InputError("identification needs two classes or more, the index has one")
        self.calibration: Calibration = calibration
        self.truth = self._truth(labels, split)
        self.neighbours = Neighbours.find(self.index, self.queries, NEIGHBOURS)

    def _truth(self, labels: IntArray, split: OpenSplit) -> IntArray:
        codes = path_codes(as_labels(labels))
        truth = np.full((len(split.queries), self.tree.depth), _NOT_INDEXED, dtype=np.int64)
        for level, column in enumerate(codes.T):
            node = np.full(int(column.max()) + 2, _NOT_INDEXED, dtype=np.int64)
            node[column[split.index]] = self.tree.nodes[:, level + 1]
            node[-1] = UNKNOWN  # the code of unknown labels
            truth[:, level] = node[column[split.queries]]
        return truth

    def figures(self, level_names: Sequence[str], sure: float = SURE) -> IdentificationFigures:
        """The figures of all methods; see `measure_identification`."""
        tree, nearest = self.down_the_tree, self.nearest()
        claims = [tree, self.without_the_tree(), nearest, self.majority(), self.softmax()]
        first = tree.answers(sure)
        known = tree.truth[:, -1] != UNKNOWN
        new = tree.truth[:, -1] == _NOT_INDEXED
        methods = tuple(
            MethodFigures(
                one.name,
                one.accuracy(),
                one.calibration_errors(),
                one.answers(sure if one.probable else -np.inf),
                one.depth_at(RIGHT),
                one.at_depth(first.depth),
                auroc(-one.finest_confidence()[known], new[known]),
            )
            for one in claims
            if one is not None
        )
        return IdentificationFigures(
            tuple(level_names),
            len(self.index),
            len(self.queries),
            float(new[known].mean()) if known.any() else 0.0,
            sure,
            methods,
            tuple(COVERAGE.tolist()),
            _curves(tree),
            _curves(nearest),
            self.calibration.rough,
        )

    @cached_property
    def down_the_tree(self) -> Claims:
        """What `happier identify` says."""
        paths = descend(self.tree, self.calibration, self.neighbours, np.full(len(self.queries), ROOT))
        nodes = np.full(self.truth.shape, UNKNOWN, dtype=np.int64)
        confidence = np.zeros(self.truth.shape)
        for query, steps in enumerate(paths):
            for level, step in enumerate(steps[1:]):
                nodes[query, level], confidence[query, level] = step.node, step.probability
        return Claims("down the tree", nodes, confidence, self.truth, levelled=True)

    def without_the_tree(self) -> Claims | None:
        """The same with the finest classes as one flat list; None where there is one class."""
        flat = self.tree.nodes[:, -1:]
        calibration = calibrate(self.index, flat, self.ids)
        if calibration is None:
            return None
        tree = NodeTree.from_labels(flat)
        paths = descend(tree, calibration, self.neighbours, np.full(len(self.queries), ROOT))
        leaves = np.array(
            [flat[tree.example[steps[1].node], 0] if len(steps) > 1 else UNKNOWN for steps in paths]
        )
        sure = np.array([steps[1].probability if len(steps) > 1 else 0.0 for steps in paths])
        return self._leaf_claims("without the tree", leaves, sure)

    def nearest(self) -> Claims:
        """The class of the nearest image."""
        nodes = self.tree.nodes[self.neighbours.rows[:, 0], 1:]
        confidence = np.repeat(self.neighbours.scores[:, :1], nodes.shape[1], axis=1)
        return Claims(NEAREST, nodes, confidence, self.truth, probable=False)

    def majority(self) -> Claims:
        """The most frequent class of the ten nearest."""
        leaves, shares = [], []
        for row in self.neighbours.rows[:, :_MAJORITY]:
            found = self.tree.nodes[row[row >= 0], -1].tolist()
            best = max(found, key=found.count)  # the nearest of equally frequent ones
            leaves.append(best)
            shares.append(found.count(best) / len(found))
        return self._leaf_claims(f"majority of {_MAJORITY}", np.array(leaves), np.array(shares))

    def softmax(self) -> Claims | None:
        """A linear classifier's; None where it would take too long, or there is one class."""
        leaf = self.tree.nodes[:, -1]
        rows = np.flatnonzero(leaf != UNKNOWN)
        classes, target = np.unique(leaf[rows], return_inverse=True)
        if len(classes) < 2 or len(rows) * len(classes) * self.index.shape[1] * _EPOCHS > _SOFTMAX_PRODUCTS:
            return None
        sure, best = _softmax(self.index[rows], target, self.queries)
        return self._leaf_claims("softmax classifier", classes[best], sure)

    def _leaf_claims(self, name: str, leaves: IntArray, confidence: FloatArray) -> Claims:
        nodes: IntArray = np.full(self.truth.shape, UNKNOWN, dtype=np.int64)
        for query, leaf in enumerate(leaves):
            path = self.tree.path(int(leaf)) if leaf > ROOT else ()
            nodes[query, : len(path)] = path
        return Claims(name, nodes, np.repeat(confidence[:, None], nodes.shape[1], axis=1), self.truth)


def _softmax(vectors: Float32Array, target: IntArray, queries: Float32Array) -> tuple[FloatArray, IntArray]:
    """Probability and number of the likeliest class of each query, by a linear classifier."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.from_numpy(vectors), torch.from_numpy(target)
    # Class means are a good start, and few epochs suffice.
    means = torch.zeros(int(labels.max()) + 1, inputs.shape[1]).index_add_(0, labels, inputs)
    weights = F.normalize(means).requires_grad_()
    bias = torch.zeros(len(weights), requires_grad=True)
    optimizer = torch.optim.Adam([weights, bias], lr=_RATE)
    for _ in range(_EPOCHS):
        order = torch.randperm(len(inputs), generator=generator)
        for first in range(0, len(inputs), _BATCH):
            batch = order[first : first + _BATCH]
            optimizer.zero_grad()
            loss = F.cross_entropy(_SCALE * inputs[batch] @ weights.T + bias, labels[batch])
            torch.autograd.backward(loss)
            optimizer.step()
    with torch.no_grad():
        found = (_SCALE * torch.from_numpy(queries) @ weights.T + bias).softmax(dim=1).max(dim=1)
    return found.values.double().numpy(), found.indices.numpy()
