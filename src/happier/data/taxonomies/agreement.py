"""How much two taxonomies agree: do they say the same about which two of three classes are closest?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from happier.arrays import Float32Array, IntArray
from happier.errors import InputError
from happier.taxonomy import UNKNOWN

__all__ = ["Agreement", "class_triples", "closest_by_tree", "closest_by_vectors", "compare_triples"]

MOST_TRIPLES: Final = 1_000_000
_PAIRS: Final = ((0, 1), (0, 2), (1, 2))


@dataclass(frozen=True)
class Agreement:
    """What two sides say about triples of classes.

    Attributes:
        share: of the triples that both decide, those on which they agree; 1/3 is chance, NaN if none.
        decided: share of all triples that both decide.
        triples: number of triples looked at.
    """

    share: float
    decided: float
    triples: int


def class_triples(classes: int, *, seed: int = 0, most: int = MOST_TRIPLES) -> IntArray:
    """All triples of classes ``[T, 3]``, or as many random ones where there would be more than ``most``.

    Raises:
        InputError: fewer than three classes.
    """
    if classes < 3:
        raise InputError(f"trees are compared by triples of classes; there are {classes} classes in both")
    if math.comb(classes, 3) <= most:
        return np.array(list(combinations(range(classes), 3)), dtype=np.int64)
    rng = np.random.default_rng(seed)
    triples = rng.integers(classes, size=(most, 3))
    while len(same := np.flatnonzero((triples == np.roll(triples, 1, axis=1)).any(axis=1))):
        triples[same] = rng.integers(classes, size=(len(same), 3))
    return triples


def closest_by_tree(labels: IntArray, triples: IntArray) -> npt.NDArray[np.int8]:
    """Which pair of each triple shares most levels: 0 for (0, 1), 1 for (0, 2), 2 for (1, 2); -1 in a tie.

    Args:
        labels: the path of each class ``[classes, L]``, -1 unknown.
        triples: ``[T, 3]``.
    """
    shared = np.empty((len(triples), 3), dtype=np.int8)
    for pair, (first, second) in enumerate(_PAIRS):
        mine, theirs = labels[triples[:, first]], labels[triples[:, second]]
        same = (mine == theirs) & (mine != UNKNOWN)
        shared[:, pair] = np.logical_and.accumulate(same, axis=1).sum(axis=1)
    return _only_highest(shared)


def closest_by_vectors(means: Float32Array, triples: IntArray) -> npt.NDArray[np.int8]:
    """Which pair of each triple is most alike by the cosine of its class means ``[classes, D]``."""
    scores = np.empty((len(triples), 3), dtype=np.float32)
    for start in range(0, len(triples), 65_536):
        part = triples[start : start + 65_536]
        for pair, (first, second) in enumerate(_PAIRS):
            products = means[part[:, first]] * means[part[:, second]]
            scores[start : start + 65_536, pair] = products.sum(axis=1)
    return _only_highest(scores)


def compare_triples(first: npt.NDArray[np.int8], second: npt.NDArray[np.int8]) -> Agreement:
    """Where both sides name a closest pair, how often it is the same one."""
    both = (first >= 0) & (second >= 0)
    share = float((first[both] == second[both]).mean()) if both.any() else math.nan
    return Agreement(share, float(both.mean()), len(first))


def _only_highest(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int8]:
    best: npt.NDArray[np.int8] = values.argmax(axis=1).astype(np.int8)
    highest = values.max(axis=1, keepdims=True)
    best[(values == highest).sum(axis=1) > 1] = -1
    return best
