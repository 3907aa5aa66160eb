"""A taxonomy from what a model sees: classes whose images look alike come together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.cluster.hierarchy import ClusterNode, linkage, to_tree  # type: ignore[import-untyped]

from happier.arrays import Float32Array, IntArray
from happier.data.taxonomies.class_paths import ClassPaths
from happier.data.taxonomies.nested_cuts import TreeNode, cut_paths, default_sizes, level_names
from happier.errors import InputError, OptionError

__all__ = ["class_means", "cluster_taxonomy"]

MOST_CLASSES: Final = 15_000
"""All pairs of classes are compared: 15,000 take 0.9 GB."""


def class_means(vectors: Float32Array, labels: IntArray, classes: int) -> Float32Array:
    """The mean direction ``[classes, D]`` of the vectors of each class; NaN where it has none.

    Args:
        vectors: ``[N, D]``.
        labels: the class of each ``[N]``, -1 for none.
        classes: how many there are.

    Raises:
        InputError: vectors that are not finite.
    """
    rows = np.flatnonzero(labels >= 0)
    sums = np.zeros((classes, vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, labels[rows], np.asarray(vectors, dtype=np.float64)[rows])
    if not np.isfinite(sums).all():
        raise InputError("the vectors must be finite")
    with np.errstate(invalid="ignore"):
        means: Float32Array = (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)
    return means


def cluster_taxonomy(
    means: Float32Array,
    classes: Sequence[str],
    *,
    levels: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> ClassPaths:
    """Hierarchical clustering of class means (Ward 1963); each branch is named after its most central class.

    Args:
        means: unit vectors ``[classes, D]``.
        classes: their names.
        levels: names of the levels above the classes, coarse first; two by default.
        sizes: number of branches of each level; by default it grows by the same factor at each level.

    Raises:
        OptionError: too many classes, or sizes that do not fit.
    """
    if len(classes) > MOST_CLASSES:
        raise OptionError(f"clusters can be made of at most {MOST_CLASSES:,} classes, got {len(classes):,}")
    names = level_names(levels, sizes)
    root = to_tree(linkage(np.asarray(means, dtype=np.float64), method="ward"))
    tree = _as_tree(root, means, classes)
    return ClassPaths(names, cut_paths(tree, sizes or default_sizes(len(classes), len(names))))


def _as_tree(root: ClusterNode, means: Float32Array, classes: Sequence[str]) -> TreeNode:
    """The dendrogram as our own nodes, without recursion: it may be as deep as there are classes."""
    made: dict[int, TreeNode] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        below = [] if node.is_leaf() else [node.get_left(), node.get_right()]
        if waiting := [child for child in below if child.get_id() not in made]:
            stack += waiting
            continue
        stack.pop()
        members = sorted(node.pre_order())
        centre = members[int(np.argmax(means[members] @ means[members].mean(axis=0)))]
        name = classes[centre] if len(members) == 1 else f"like {classes[centre]}"
        children = [made[child.get_id()] for child in below]
        made[node.get_id()] = TreeNode(name, [classes[at] for at in members], children, float(node.dist))
    return made[root.get_id()]
