"""Neighbours vote down the tree: the nearer, the more; each for its own class, as deep as its label is known.

    w_i = exp(s_i / T) - exp(s_beyond / T)        share_c = sum of w_i in c / sum of w_i in the children of v

where ``s_beyond`` is the similarity of the best image that is no longer among the neighbours. Subtracting its
weight makes the last neighbours' weights vanish, so that it does not matter which of several equally near
ones are the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from happier.arrays import Float32Array, FloatArray, IntArray
from happier.identification.tree import NodeTree
from happier.taxonomy import UNKNOWN

__all__ = ["BranchVotes", "Neighbours", "branch_votes", "vote_weights"]

# Of its full weight, what the last neighbour keeps: all may be equally near, and there must be votes.
_LEAST = 1e-6
_BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class Neighbours:
    """The nearest labelled images of each query, best first.

    Attributes:
        rows: of the index ``[Q, K]``; -1 where there are fewer.
        scores: cosine similarities ``[Q, K]``; -inf where there are fewer.
        beyond: the best similarity that is not among them ``[Q]``; -inf where there is none.
    """

    rows: IntArray
    scores: FloatArray
    beyond: FloatArray

    @classmethod
    def from_ranking(cls, rows: IntArray, scores: FloatArray) -> Neighbours:
        """All but the last column are neighbours; the last one is the best beyond them."""
        return cls(rows[:, :-1], scores[:, :-1], scores[:, -1])

    @classmethod
    def find(cls, vectors: Float32Array, queries: Float32Array, k: int) -> Neighbours:
        """The ``k`` nearest of unit vectors ``[N, D]`` for each query ``[Q, D]``, exactly."""
        rows = np.full((len(queries), k + 1), -1, dtype=np.int64)
        scores = np.full(rows.shape, -np.inf)
        width = min(k + 1, len(vectors))
        step = max(1, _BLOCK_BYTES // (4 * len(vectors)))
        for first in range(0, len(queries), step):
            found = queries[first : first + step] @ vectors.T
            near = np.argpartition(-found, width - 1, axis=1)[:, :width]
            near.sort(axis=1)
            values = np.take_along_axis(found, near, axis=1)
            order = np.argsort(-values, axis=1, kind="stable")
            some = slice(first, first + len(found))
            rows[some, :width] = np.take_along_axis(near, order, axis=1)
            scores[some, :width] = np.take_along_axis(values, order, axis=1)
        return cls.from_ranking(rows, scores)

    def take(self, queries: IntArray) -> Neighbours:
        """The neighbours of these queries."""
        return Neighbours(self.rows[queries], self.scores[queries], self.beyond[queries])


def vote_weights(neighbours: Neighbours, temperature: float) -> FloatArray:
    """The weight of each neighbour ``[Q, K]``, the nearest one's at most 1; 0 where there is none."""
    best = neighbours.scores[:, :1]
    best = np.where(np.isfinite(best), best, 0.0)
    own = np.exp((neighbours.scores - best) / temperature)
    last = np.exp((neighbours.beyond[:, None] - best) / temperature)
    return np.asarray(np.maximum(own - last, _LEAST * own), dtype=np.float64)


@dataclass(frozen=True)
class BranchVotes:
    """The votes for the children of one branch, for each of P pairs of a query and a branch.

    Attributes:
        child: the children that got votes ``[P, C]``, that of the nearest neighbour first; -1 behind them.
        share: of all votes, those that the child has ``[P, C]``; 0 behind them.
        behind: how much less similar the nearest neighbour of the child is than the nearest of all children
            ``[P, C]``; 0 behind them.
        deepest: the largest share that one deepest class within the child has ``[P, C]``; 0 behind them.
        of_all: of the votes of all neighbours, those within the branch ``[P]``; 0 where none is.
        nearest: similarity of the nearest neighbour that votes ``[P]``; -inf where none does.
        stands_out: how far that is above the best similarity beyond the neighbours, or the least among them
            ``[P]``; NaN where none votes.
    """

    child: IntArray
    share: FloatArray
    behind: FloatArray
    deepest: FloatArray
    of_all: FloatArray
    nearest: FloatArray
    stands_out: FloatArray

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """Where a child is ``[P, C]``."""
        return np.asarray(self.child != UNKNOWN)

    def take(self, rows: npt.NDArray[np.bool_]) -> BranchVotes:
        """The votes of these pairs."""
        figures = self.share, self.behind, self.deepest, self.of_all, self.nearest, self.stands_out
        return BranchVotes(self.child[rows], *(column[rows] for column in figures))

    @property
    def voted(self) -> npt.NDArray[np.bool_]:
        """Whether there are votes ``[P]``."""
        return np.isfinite(self.nearest)


def branch_votes(
    tree: NodeTree, neighbours: Neighbours, weights: FloatArray, branch: IntArray
) -> BranchVotes:
    """Count the votes for the children of one branch for each query.

    Args:
        tree: of the index's labels.
        neighbours: of P queries.
        weights: of the neighbours ``[P, K]``.
        branch: a node for each query ``[P]``, all of one level.
    """
    level = int(tree.level[branch[0]]) if len(branch) else 0
    there = neighbours.rows >= 0
    inside = there & (tree.nodes[neighbours.rows, level] == branch[:, None])
    child = np.where(inside, tree.nodes[neighbours.rows, level + 1], UNKNOWN)
    votes = child != UNKNOWN
    same = (child[:, :, None] == child[:, None, :]) & votes[:, :, None]  # pair, neighbour, neighbour
    mass = np.where(same, weights[:, None, :], 0.0).sum(axis=2)
    total = np.where(votes, weights, 0.0).sum(axis=1, keepdims=True)
    own = np.where(votes, tree.deepest[neighbours.rows], UNKNOWN)
    alike = (own[:, :, None] == own[:, None, :]) & same
    own_mass = np.where(alike, weights[:, None, :], 0.0).sum(axis=2)  # of the neighbour's deepest class
    most = np.where(same, own_mass[:, None, :], 0.0).max(axis=2, initial=0.0)
    first = votes & ~np.tril(same, k=-1).any(axis=2)
    share = np.divide(mass, total, out=np.zeros_like(mass), where=first & (total > 0))
    deepest = np.divide(most, total, out=np.zeros_like(mass), where=first & (total > 0))
    front = np.argsort(~first, axis=1, kind="stable")[:, : max(1, int(first.sum(axis=1).max(initial=0)))]
    nearest = np.where(votes, neighbours.scores, -np.inf).max(axis=1)
    behind = np.subtract(nearest[:, None], neighbours.scores, out=np.zeros_like(mass), where=first)
    least = np.where(there, neighbours.scores, np.inf).min(axis=1)
    floor = np.where(np.isfinite(neighbours.beyond), neighbours.beyond, least)
    apart = np.where(votes.any(axis=1), np.where(np.isfinite(nearest), nearest, 0) - floor, np.nan)
    child = np.where(first, child, UNKNOWN)
    everybody = np.where(there, weights, 0.0).sum(axis=1)
    within = np.where(inside, weights, 0.0).sum(axis=1)
    of_all = np.divide(within, everybody, out=np.zeros_like(within), where=everybody > 0)
    return BranchVotes(
        np.take_along_axis(child, front, axis=1),
        np.take_along_axis(share, front, axis=1),
        np.take_along_axis(behind, front, axis=1),
        np.take_along_axis(deepest, front, axis=1),
        of_all,
        nearest,
        apart,
    )
