"""How much an approximate engine misses, measured on the index itself."""

from __future__ import annotations

import numpy as np

from happier.search.exact import scan
from happier.search.index import Index


def measure_recall(index: Index, *, k: int = 10, queries: int = 500, seed: int = 0) -> float:
    """Share of the exact nearest ``k`` that the index's engine finds, for images of the index as queries.

    Each query is left out of its own answer.
    """
    generator = np.random.default_rng(seed)
    rows = np.sort(generator.choice(len(index), size=min(queries, len(index)), replace=False))
    k = min(k, len(index) - 1)
    if index.exact or k == 0:
        return 1.0
    vectors = np.stack([index.vector(int(row)) for row in rows])
    found = index.search(vectors, k=k, exclude=rows.tolist())
    exact, _ = scan(vectors, k + 1, index.scope())
    hit = 0
    for row, hits, nearest in zip(rows, found, index.rows_at(exact), strict=True):
        hit += len({one.row for one in hits} & set([one for one in nearest.tolist() if one != row][:k]))
    return hit / (k * len(rows))
