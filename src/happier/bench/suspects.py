"""How many planted label mistakes are found, side by side with cleanlab on the same vectors.

A share of the labels is replaced at random by a class that shares all levels above one with the right class,
and differs from there on. cleanlab gets the probabilities of the classes from the votes of the same
neighbours, and from the class means without the image; the classes are the finest, or those of the level
at which the mistakes are, which a user would have to guess. Of its scores of label quality the better counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from happier.arrays import Float32Array, FloatArray, IntArray
from happier.curation.labelled_vectors import LabelledVectors
from happier.curation.neighbour_votes import Neighbours, contradictions, find_neighbours
from happier.curation.suspects import most_labels
from happier.errors import InputError
from happier.progress import Status, no_status
from happier.taxonomy import UNKNOWN, shared_levels

__all__ = ["Found", "measure_suspects", "plant_mistakes"]

OURS = "happier data suspects"


@dataclass(frozen=True)
class Found:
    """How well one way finds the mistakes that were planted at one level, on average over the seeds.

    Attributes:
        level: name of the coarsest level that is wrong.
        way: what searched.
        planted: number of mistakes.
        precision: share of mistakes among as many first suspects (of ours: at this level) as were planted.
        listed: number of labels that it lists; of ours, as many as `happier data suspects` does by default.
        recall: share of the mistakes that are among them.
    """

    level: str
    way: str
    planted: int
    precision: float
    listed: float
    recall: float


def measure_suspects(
    found: LabelledVectors,
    *,
    share: float = 0.05,
    seeds: tuple[int, ...] = (0, 1, 2),
    k: int = 50,
    status: Status = no_status,
) -> list[Found]:
    """Plant mistakes at each level in turn and look for them.

    Args:
        found: vectors and labels, all of them known.
        share: of the labels to replace.
        seeds: one planting each.
        k: neighbours that vote.
        status: called with what is being done.

    Raises:
        InputError: labels that are not known down to the finest level.
    """
    labels = found.manifest.taxonomy().codes
    if (labels == UNKNOWN).any():
        raise InputError("mistakes can be planted where every image has a label at every level")
    neighbours = find_neighbours(found.vectors, k=k)
    results = []
    for level, name in enumerate(found.manifest.levels):
        trials: dict[str, list[tuple[float, ...]]] = {}
        for seed in seeds:
            status(f"{name}, seed {seed}")
            wrong, planted = plant_mistakes(labels, level, share=share, seed=seed)
            for way, rankings, listed in _ways(found.vectors, neighbours, wrong, level):
                hits = [np.isin(one[: len(planted)], planted).sum() for one in rankings]
                recall = float(np.isin(planted, listed).mean())
                figures = (len(planted), float(max(hits)) / len(planted), len(listed), recall)
                trials.setdefault(way, []).append(figures)
        for way, values in trials.items():
            planted_number, precision, number, recall = np.mean(values, axis=0).tolist()
            results.append(Found(name, way, round(planted_number), precision, number, recall))
    return results


def plant_mistakes(labels: IntArray, level: int, *, share: float, seed: int) -> tuple[IntArray, IntArray]:
    """Labels of which a share is wrong from one level on, and the rows that are.

    Args:
        labels: ``[N, L]``, all known.
        level: coarsest level that is wrong, counted from 0; the levels above stay right.
        share: of all rows.
        seed: of the choice.

    Raises:
        InputError: no class has another one that differs from this level on.
    """
    rng = np.random.default_rng(seed)
    paths = labels[np.unique(labels[:, -1], return_index=True)[1]]
    wrong = labels.copy()
    planted: list[int] = []
    for row in rng.permutation(len(labels)).tolist():
        if len(planted) == round(share * len(labels)):
            break
        others = np.flatnonzero(shared_levels(labels[[row]], paths)[0] == level)
        if len(others):
            wrong[row] = paths[rng.choice(others)]
            planted.append(row)
    if not planted:
        raise InputError(f"there are no two classes that differ from level {level + 1} on")
    return wrong, np.array(planted, dtype=np.int64)


def _ways(
    vectors: Float32Array, neighbours: Neighbours, labels: IntArray, level: int
) -> Iterator[tuple[str, list[IntArray], IntArray]]:
    """Each way's rows in the order of suspicion, or in several, and those that it lists."""
    found = contradictions(neighbours, labels, vectors)
    here = found.levels == level
    order = found.rows[here][np.argsort(-found.confidence[here], kind="stable")]
    yield OURS, [order], found.clearest(most_labels(len(labels))).rows
    depth = labels.shape[1]
    for at in dict.fromkeys((depth - 1, level)):
        classes = np.unique(labels[:, at], return_inverse=True)[1]
        name = "finest classes" if at == depth - 1 else "classes of this level"
        for source, probabilities in (
            ("neighbours", _by_neighbours(neighbours, classes)),
            ("class means", _by_means(vectors, classes)),
        ):
            yield (f"cleanlab, {name}, {source}", *_by_cleanlab(classes, probabilities))


def _by_cleanlab(classes: IntArray, probabilities: FloatArray) -> tuple[list[IntArray], IntArray]:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    scores = [
        get_label_quality_scores(classes, probabilities, method=method)
        for method in ("self_confidence", "normalized_margin")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one for each class of few images
        issues = find_label_issues(classes, probabilities, n_jobs=1)
    return [np.argsort(quality, kind="stable") for quality in scores], np.flatnonzero(issues)


def _by_neighbours(neighbours: Neighbours, classes: IntArray) -> FloatArray:
    """The votes for each class ``[N, classes]``, with a little for those without."""
    votes = np.zeros((len(classes), int(classes.max()) + 1))
    np.add.at(votes, (np.arange(len(classes))[:, None], classes[neighbours.rows]), neighbours.weights)
    votes += 1e-6
    return np.asarray(votes / votes.sum(axis=1, keepdims=True))


def _by_means(vectors: Float32Array, classes: IntArray) -> FloatArray:
    """Softmax of the cosines with the class means ``[N, classes]``, each image left out of its own."""
    sums = np.zeros((int(classes.max()) + 1, vectors.shape[1]))
    np.add.at(sums, classes, vectors)
    lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    scores = vectors @ (sums / lengths).T
    rest = sums[classes] - vectors
    own = (vectors * rest).sum(axis=1) / np.maximum(np.linalg.norm(rest, axis=1), 1e-9)
    scores[np.arange(len(classes)), classes] = own
    # As sharp as the neighbours' votes are on such vectors.
    exponents = np.exp((scores - scores.max(axis=1, keepdims=True)) / 0.05)
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))
