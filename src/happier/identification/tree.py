"""The classes of an index as nodes of one tree, numbered level by level; node 0 is the root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from happier.arrays import IntArray
from happier.taxonomy import UNKNOWN, as_labels, path_codes

__all__ = ["ROOT", "NodeTree"]

ROOT = 0


@dataclass(frozen=True)
class NodeTree:
    """Nodes of label rows.

    Attributes:
        nodes: node of each row at each level ``[N, L + 1]``, the root first; -1 where it is unknown.
        parent: parent of each node ``[M]``; -1 for the root.
        level: level of each node ``[M]``; 0 for the root.
        children: how many children each node has ``[M]``.
        example: a row of each node ``[M]``.

    >>> tree = NodeTree.from_labels([[0, 0], [0, 1], [1, -1]])
    >>> tree.nodes.tolist(), tree.parent.tolist(), tree.children.tolist()
    ([[0, 1, 3], [0, 1, 4], [0, 2, -1]], [-1, 0, 0, 1, 1], [2, 2, 0, 0, 0])
    """

    nodes: IntArray
    parent: IntArray
    level: IntArray
    children: IntArray
    example: IntArray

    @classmethod
    def from_labels(cls, labels: Sequence[Sequence[int]] | IntArray) -> NodeTree:
        """The tree of integer label rows ``[N, L]``, coarse first, -1 unknown."""
        codes = path_codes(as_labels(labels))
        rows, depth = codes.shape
        nodes = np.zeros((rows, depth + 1), dtype=np.int64)
        parent, level, example = [np.array([-1])], [np.array([0])], [np.array([0])]
        first = 1
        for at, column in enumerate(codes.T, start=1):
            known = np.flatnonzero(column != UNKNOWN)
            nodes[:, at] = np.where(column == UNKNOWN, UNKNOWN, first + column)
            found, where = np.unique(column[known], return_index=True)
            parent.append(nodes[known[where], at - 1])
            level.append(np.full(len(found), at))
            example.append(known[where])
            first += len(found)
        parents = np.concatenate(parent)
        return cls(
            nodes,
            parents,
            np.concatenate(level),
            np.bincount(parents[1:], minlength=first),
            np.concatenate(example),
        )

    @property
    def depth(self) -> int:
        """Number of levels L."""
        return int(self.nodes.shape[1]) - 1

    @property
    def known_depth(self) -> IntArray:
        """How many levels of each row are known ``[N]``."""
        return np.asarray((self.nodes != UNKNOWN).sum(axis=1) - 1, dtype=np.int64)

    @cached_property
    def deepest(self) -> IntArray:
        """The deepest known node of each row ``[N]``."""
        return np.asarray(self.nodes[np.arange(len(self.nodes)), self.known_depth])

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from below the root down to this one."""
        found: list[int] = []
        while node > ROOT:
            found.insert(0, node)
            node = int(self.parent[node])
        return tuple(found)
