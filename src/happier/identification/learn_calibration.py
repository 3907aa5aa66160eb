"""Learning a calibration from the index itself: images and whole classes are left out in turn.

the image itself        what its neighbours' votes are worth; a classmate that might have been takes its place
its class, at each level    what an image of a new class looks like
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
TEMPERATURES = (0.01, 0.02, 0.04, 0.08, 0.16)
MOST_IMAGES = 4096
FEWEST_IMAGES = 512
# The temperature is chosen on so many images.
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
    """Votes at the true parent of images that are of a known child, or of none."""

    votes: BranchVotes
    chosen: IntArray
    children: IntArray

    def take(self, rows: Mask) -> _Examples:
        votes = BranchVotes(
            self.votes.child[rows],
            self.votes.share[rows],
            self.votes.behind[rows],
            self.votes.of_all[rows],
            self.votes.nearest[rows],
            self.votes.stands_out[rows],
        )
        return _Examples(votes, self.chosen[rows], self.children[rows])


class _LeftOut:
    """The images to learn from, and what is left out for each."""

    def __init__(self, tree: NodeTree, chosen: IntArray, rank: IntArray) -> None:
        self.tree = tree
        self.chosen = chosen
        self.rank = rank
        self.sizes = np.bincount(
            tree.nodes[tree.nodes != UNKNOWN].ravel(), minlength=len(tree.parent)
        )  # images of each node
        self.deepest = tree.nodes[np.arange(len(tree.nodes)), tree.known_depth]
        self.by_class = np.lexsort((rank, self.deepest))
        self.first_of = np.searchsorted(self.deepest[self.by_class], np.arange(len(tree.parent) + 1))
        # Images that nobody of their class is left for.
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
        """The parameters of each level, and how unlikely they find what was left out."""
        levels, cost = [], 0.0
        for level in range(1, self.tree.depth + 1):
            found, own = self._fit_level(sets, queries, level, temperature)
            levels.append(found)
            cost += own
        return levels, cost

    def _fit_level(
        self, sets: list[Neighbours], queries: IntArray, level: int, temperature: float
    ) -> tuple[LevelCalibration, float]:
        queries = queries[self.tree.nodes[self.chosen[queries], level] != UNKNOWN]
        known, new = (
            self._examples(sets[way], queries, level, temperature, known=way == 0) for way in (0, level)
        )
        nearest = _scale(np.concatenate([known.votes.nearest, new.votes.nearest]))
        stands_out = _scale(np.concatenate([known.votes.stands_out, new.votes.stands_out]))
        features, available = known_choice(
            known.votes, known.children, standardised(known.votes.nearest, nearest), stands_out[1]
        )
        images = len(known.chosen)
        choice, cost = fit_choice(
            features, available, known.chosen, weights=np.ones(images), prior=KNOWN_PRIOR
        )
        features, available = _stacked(
            [
                new_choice(
                    one.votes,
                    standardised(one.votes.nearest, nearest),
                    standardised(one.votes.stands_out, stands_out),
                )
                for one in (known, new)
            ]
        )
        is_new = np.repeat([0, 1], [images, len(new.chosen)])
        share = NEW_SHARE ** (self.tree.depth - level + 1)
        prior = np.zeros(NEW_PARAMETERS)
        prior[0] = np.log(share / (1 - share))
        weights = np.where(is_new == 1, share, 1 - share)
        news, own = fit_choice(features, available, is_new, weights=weights, prior=prior)
        found = LevelCalibration(
            known=choice.tolist(),
            new=news.tolist(),
            nearest=nearest,
            stands_out=stands_out,
            images=images,
            new_images=len(new.chosen),
        )
        return found, cost / max(1, images) + own / max(1.0, float(weights.sum()))

    def _examples(
        self, neighbours: Neighbours, queries: IntArray, level: int, temperature: float, *, known: bool
    ) -> _Examples:
        """Votes at the images' true parents, where somebody votes: of known children, or of none."""
        tree, images = self.tree, self.chosen[queries]
        near = neighbours.take(queries)
        parent, true = tree.nodes[images, level - 1], tree.nodes[images, level]
        votes = branch_votes(tree, near, vote_weights(near, temperature), parent)
        hit = votes.child == true[:, None]
        chosen = np.where(hit.any(axis=1), 1 + hit.argmax(axis=1), 0)  # as in `known_choice`
        found = _Examples(votes, chosen, tree.children[parent])
        # An image that is alone shows how its coarser classes are found, if those have others.
        return found.take(votes.voted & ~(known & self.alone[images] & (self.sizes[true] == 1)))


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
