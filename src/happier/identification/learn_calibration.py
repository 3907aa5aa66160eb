"""Learning a calibration from the index itself: images and whole classes are left out in turn.

the image itself        what its neighbours' votes are worth; a classmate that might have been takes its place
its class, at each level    what an image of a new class looks like, and how its coarser classes are found
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from happier.arrays import FloatArray, IntArray
from happier.identification.calibration import (
    KNOWN_PRIOR,
    NEW_PARAMETERS,
    NEW_SHARE,
    Calibration,
    LevelCalibration,
    known_choice,
    new_choice,
    standardised,
)
from happier.identification.choice import Mask, fit_choice
from happier.identification.classmates import ClassmateSimilarity, with_classmate
from happier.identification.tree import NodeTree
from happier.identification.votes import BranchVotes, Neighbours, branch_votes, vote_weights
from happier.taxonomy import UNKNOWN

__all__ = ["NEIGHBOURS", "calibrate"]

NEIGHBOURS = 32
TEMPERATURES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
MOST_IMAGES = 4096
FEWEST_IMAGES = 512
# The temperature is chosen on this many images.
_TRIAL = 256
# Comparing with every image of a large index is what takes time: this many comparisons.
_COMPARISONS = 200_000_000
_BLOCK_BYTES = 64 << 20
# Candidates that are sorted; the rest is sorted only where a large class is left out.
_POOL = 512

# More say nothing new about how similar an image's classmates are.
_CLASSMATES = 64

Leaves = Callable[[IntArray], Mask]


def calibrate(
    vectors: Any, labels: IntArray, ids: Sequence[str], *, positions: IntArray | None = None
) -> Calibration | None:
    """Learn how far votes in an index can be trusted; None where its labels leave nothing to choose.

    The result does not depend on the order of the images: those to learn from are drawn by their ids.

    Args:
        vectors: unit vectors ``[R, D]``.
        labels: class numbers ``[N, L]`` of the images, -1 unknown.
        ids: of the images.
        positions: the row of each image in `vectors` ``[N]``; by default the same.
    """
    tree = NodeTree.from_labels(labels)
    if (tree.children < 2).all():
        return None
    rank = _shuffled(ids)
    order = np.argsort(rank)
    asked = int(np.clip(_COMPARISONS // len(ids), FEWEST_IMAGES, MOST_IMAGES))
    chosen = order[tree.known_depth[order] > 0][:asked]
    left_out = _LeftOut(tree, chosen, rank)
    sets = left_out.neighbours(vectors, positions)
    trial = np.arange(min(_TRIAL, len(chosen)))
    costs = [left_out.fit(sets, trial, temperature)[1] for temperature in TEMPERATURES]
    temperature = TEMPERATURES[int(np.argmin(costs))]
    levels, _ = left_out.fit(sets, np.arange(len(chosen)), temperature)
    return Calibration(temperature=temperature, levels=levels, images=len(chosen))


def _shuffled(ids: Sequence[str]) -> IntArray:
    """A number for each id that says nothing about it."""
    return np.array(
        [xxhash.xxh3_64_intdigest(one.encode("utf-8", "surrogatepass")) >> 1 for one in ids], dtype=np.int64
    )


@dataclass(frozen=True)
class _Examples:
    """Votes at the true parents of images.

    Attributes:
        queries: numbers of the images.
        votes: in the parents.
        chosen: the alternative of `known_choice` that is true; 0 where the class was left out.
        children: how many children each parent has.
    """

    queries: IntArray
    votes: BranchVotes
    chosen: IntArray
    children: IntArray


class _LeftOut:
    """The images to learn from, and what is left out for each."""

    def __init__(self, tree: NodeTree, chosen: IntArray, rank: IntArray) -> None:
        self.tree = tree
        self.chosen = chosen
        self.rank = rank
        self.sizes = np.bincount(
            tree.nodes[tree.nodes != UNKNOWN].ravel(), minlength=len(tree.parent)
        )  # images of each node
        self.deepest = tree.deepest
        self.by_class = np.lexsort((rank, self.deepest))
        self.first_of = np.searchsorted(self.deepest[self.by_class], np.arange(len(tree.parent) + 1))
        # Images that are alone in their class.
        self.alone = self.sizes[self.deepest] == 1

    def neighbours(self, vectors: Any, positions: IntArray | None) -> list[Neighbours]:
        """For each way to leave out (itself, its class at each level), neighbours."""
        images = len(self.tree.nodes)
        width = min(NEIGHBOURS + 1, images)
        ways = 1 + self.tree.depth
        rows = np.full((ways, len(self.chosen), NEIGHBOURS + 1), -1, dtype=np.int64)
        scores = np.full(rows.shape, -np.inf)
        similar: list[FloatArray] = []
        for query, found in self._score_rows(vectors, positions):
            similar.append(found[self._classmates(int(self.chosen[query]))].astype(np.float64))
            pool = np.argpartition(-found, _POOL)[:_POOL] if images > 2 * _POOL else np.arange(images)
            pool = pool[np.argsort(-found[pool], kind="stable")]
            for way, leaves in enumerate(self._leaves(int(self.chosen[query]))):
                near = pool[~leaves(pool)][:width]
                if len(near) < width and len(pool) < images:
                    everything = np.argsort(-found, kind="stable")
                    near = everything[~leaves(everything)][:width]
                rows[way, query, : len(near)] = near
                scores[way, query, : len(near)] = found[near]
        itself, *new = (Neighbours.from_ranking(*pair) for pair in zip(rows, scores, strict=True))
        return [self._with_classmates(itself, similar), *new]

    def _classmates(self, image: int) -> IntArray:
        """Other images of an image's deepest class, at most `_CLASSMATES`."""
        own = self.deepest[image]
        mates = self.by_class[self.first_of[own] : self.first_of[own + 1]][: _CLASSMATES + 1]
        return np.asarray(mates[mates != image][:_CLASSMATES])

    def _with_classmates(self, neighbours: Neighbours, similar: Sequence[FloatArray]) -> Neighbours:
        """The neighbours of images that are left out, with a classmate more that might have been."""
        model = ClassmateSimilarity.estimate(similar)
        if model is None:
            return neighbours
        self.alone[:] = False
        scores = [
            model.another(one, np.random.default_rng(int(self.rank[image])))
            for image, one in zip(self.chosen, similar, strict=True)
        ]
        return with_classmate(neighbours, self.chosen, np.array(scores))

    def _score_rows(self, vectors: Any, positions: IntArray | None) -> Iterator[tuple[int, Any]]:
        places = self.chosen if positions is None else positions[self.chosen]
        step = max(1, _BLOCK_BYTES // (4 * len(vectors)))
        for first in range(0, len(places), step):
            block = np.asarray(vectors[places[first : first + step]]) @ vectors.T
            for at, found in enumerate(block if positions is None else block[:, positions]):
                yield first + at, found

    def _leaves(self, image: int) -> Iterator[Leaves]:
        """For each way to leave out, which of some rows go."""
        nodes = self.tree.nodes
        yield lambda rows: rows == image
        for level in range(1, nodes.shape[1]):
            hidden = nodes[image, level]
            yield lambda rows, level=level, hidden=hidden: (  # type: ignore[misc]
                (rows == image) if hidden == UNKNOWN else nodes[rows, level] == hidden
            )

    def fit(
        self, sets: list[Neighbours], queries: IntArray, temperature: float
    ) -> tuple[list[LevelCalibration], float]:
        """The parameters of each level, and how unlikely they find what was left out.

        A level is learnt from images whose likeliest path has led to their true parent, because that is where
        it will be asked.
        """
        levels, cost = [], 0.0
        paths = [queries] * len(sets)
        for level in range(1, self.tree.depth + 1):
            examples = {
                way: self._examples(sets[way], paths[way], level, temperature, way=way)
                for way in (0, *range(level, len(sets)))
            }
            found, own = self._fit_level(examples, level)
            levels.append(found)
            cost += own
            for way, some in examples.items():
                given, _ = found.probabilities(some.votes, some.children)
                paths[way] = some.queries[1 + given.argmax(axis=1) == some.chosen]
        return levels, cost

    def _fit_level(self, examples: dict[int, _Examples], level: int) -> tuple[LevelCalibration, float]:
        new = examples[level]
        # An image of a new finer class is of a known one here, but has no classmates to be found by.
        ways = [way for way in examples if way != level]
        known = [examples[way] for way in ways]
        nearest = _scale(np.concatenate([one.votes.nearest for one in examples.values()]))
        stands_out = _scale(np.concatenate([one.votes.stands_out for one in examples.values()]))
        shares = _way_shares(self.tree.depth)
        weights = np.repeat([shares[way] / shares[0] for way in ways], [len(one.chosen) for one in known])
        features, available = _stacked(
            [
                known_choice(one.votes, one.children, standardised(one.votes.nearest, nearest), stands_out[1])
                for one in known
            ]
        )
        choice, cost = fit_choice(
            features,
            available,
            np.concatenate([one.chosen for one in known]),
            weights=weights,
            prior=KNOWN_PRIOR,
        )
        cost /= max(1.0, float(weights.sum()))
        features, available = _stacked(
            [
                new_choice(
                    one.votes,
                    standardised(one.votes.nearest, nearest),
                    standardised(one.votes.stands_out, stands_out),
                )
                for one in (*known, new)
            ]
        )
        is_new = np.repeat([0, 1], [len(weights), len(new.chosen)])
        weights = np.append(weights, np.full(len(new.chosen), shares[level] / shares[0]))
        prior = np.zeros(NEW_PARAMETERS)
        prior[0] = np.log(shares[level] / sum(shares[way] for way in ways))
        news, own = fit_choice(features, available, is_new, weights=weights, prior=prior)
        found = LevelCalibration(
            known=choice.tolist(),
            new=news.tolist(),
            nearest=nearest,
            stands_out=stands_out,
            images=len(examples[0].chosen),
            new_images=len(new.chosen),
        )
        return found, cost + own / max(1.0, float(weights.sum()))

    def _examples(
        self, neighbours: Neighbours, queries: IntArray, level: int, temperature: float, *, way: int
    ) -> _Examples:
        """Votes at the images' true parents, where there are any.

        Args:
            neighbours: of all images, in one way to leave out.
            queries: numbers of the images to look at.
            level: of the children.
            temperature: of the votes.
            way: 0 where the image itself was left out, else the level of the class that was.
        """
        tree, images = self.tree, self.chosen[queries]
        true = tree.nodes[images, level]
        usable = true != UNKNOWN
        if way == 0:
            # An image that is alone shows how its coarser classes are found, if those have others.
            usable &= ~(self.alone[images] & (self.sizes[true] == 1))
        elif way > level:
            hidden = tree.nodes[images, way]
            usable &= (hidden != UNKNOWN) & (self.sizes[hidden] < self.sizes[true])
        queries, images, true = queries[usable], images[usable], true[usable]
        near, parent = neighbours.take(queries), tree.nodes[images, level - 1]
        votes = branch_votes(tree, near, vote_weights(near, temperature), parent)
        hit = votes.child == true[:, None]
        chosen = np.where(hit.any(axis=1), 1 + hit.argmax(axis=1), 0)  # as in `known_choice`
        voted = votes.voted
        return _Examples(queries[voted], votes.take(voted), chosen[voted], tree.children[parent][voted])


def _way_shares(depth: int) -> FloatArray:
    """Of the images to be identified, the share that each way to leave out stands for ``[1 + depth]``.

    >>> _way_shares(3).round(3).tolist()
    [0.9, 0.001, 0.009, 0.09]
    """
    new = NEW_SHARE ** np.arange(depth, 0, -1)  # at each level, and so below it
    return np.array([1 - new[-1], *np.diff(new, prepend=0.0)])


def _stacked(parts: list[tuple[FloatArray, Mask]]) -> tuple[FloatArray, Mask]:
    """Features and available alternatives of all parts; alternatives that a part lacks are not available."""
    width = max(available.shape[1] for _, available in parts)
    features, available = [], []
    for described, there in parts:
        lacks = width - there.shape[1]
        features.append(np.pad(described, ((0, 0), (0, lacks), (0, 0))))
        available.append(np.pad(there, ((0, 0), (0, lacks))))
    return np.concatenate(features), np.concatenate(available)


def _scale(values: FloatArray) -> list[float]:
    """Mean and standard deviation, 0 and 1 where there is nothing to measure."""
    values = values[np.isfinite(values)]
    if len(values) < 2 or float(values.std()) < 1e-6:
        return [float(values.mean()) if len(values) else 0.0, 1.0]
    return [float(values.mean()), float(values.std())]
