"""What a search may return: the whole index or one branch of its taxonomy."""

from __future__ import annotations

import numpy as np

from happier.data import Manifest
from happier.data.class_path import split
from happier.search.branch_rows import branches, rows_within
from happier.search.engine import Positions, SearchScope, VectorArray


def make_scope(items: Manifest, positions: Positions, vectors: VectorArray, within: str = "") -> SearchScope:
    """The scope of a branch.

    Args:
        items: the images.
        positions: row of each in the vector file ``[N]``.
        vectors: all rows ``[rows, D]`` of the vector file.
        within: class path of the branch; empty for the whole index.

    Raises:
        SearchError: there is no such branch.
    """
    if not within:
        return SearchScope(vectors, None if len(positions) == len(vectors) else np.sort(positions))
    rows = rows_within(items, within)
    branch = branches(items.take(rows[:1]))[0][: len(split(within))]
    return SearchScope(vectors, np.sort(positions[rows]), branch)
