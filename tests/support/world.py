"""Random trees with embeddings, and the slow evaluation of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import oracle


def random_labels(
    generator: np.random.Generator, items: int, depth: int, classes: int = 3, unknown: bool = False
) -> Any:
    labels = generator.integers(0, classes, size=(items, depth))
    if unknown:
        known = generator.integers(0, depth + 1, size=items)
        labels[np.arange(depth)[None] >= known[:, None]] = -1
    return labels


def small_integers(generator: np.random.Generator, items: int, dimensions: int = 2) -> Any:
    """Vectors whose inner products are exact in any order of summation, with many ties."""
    return generator.integers(-2, 3, size=(items, dimensions)).astype(np.float32)


def slow_evaluate(
    queries: Any,
    labels: Any,
    gallery: Any,
    gallery_labels: Any,
    relevance: Any,
    ks: Sequence[int],
    *,
    worst: bool = True,
    excluded: Any = None,
    names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Per-query metrics by the oracle; `excluded[q]` are the gallery indices that are the query itself."""
    depth = labels.shape[1]
    names = names or [str(level) for level in range(1, depth + 1)]
    rows = []
    for q in range(len(queries)):
        out: set[int] = set() if excluded is None else set(excluded[q])
        levels, scores = [], []
        counts, removed = [0] * (depth + 1), [0] * (depth + 1)
        for j in range(len(gallery)):
            level = oracle.level_of(labels[q].tolist(), gallery_labels[j].tolist())
            if j in out:
                removed[level] += 1
                continue
            counts[level] += 1
            levels.append(level)
            scores.append(
                float(sum(float(a) * float(b) for a, b in zip(queries[q], gallery[j], strict=True)))
            )
        counted = [c + r for c, r in zip(counts, removed, strict=True)] if relevance.count_query else counts
        table = relevance(np.array([counted]))[0].tolist()
        ranking = oracle.rank_items(scores, levels, worst)
        rows.append(oracle.everything(ranking, table, counts, names, ks))
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in rows[0]}
