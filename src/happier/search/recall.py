"""How much an approximate engine misses, and how hard it must search to miss less.

Recall@k is the share of the exact nearest ``k`` images that the engine finds, with images of the index as
queries, each left out of its own answer. An index promises a recall: when it is built, the engine's effort is
raised until the recall that is measured reaches the promise, over the whole index and inside branches of the
taxonomy, where a filter hides most of what the engine walks over.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from happier.data import Manifest
from happier.data.class_path import join
from happier.errors import OptionError
from happier.search.branch_rows import branches
from happier.search.engine import Positions, SearchEngine, SearchScope, VectorArray
from happier.search.exact import rescore, scan
from happier.search.index_json import IndexRecall
from happier.search.scope import make_scope

if TYPE_CHECKING:
    from happier.search.index import Index

log = logging.getLogger(__name__)
K = 10
QUERIES = 200
MAX_BRANCHES = 6
BRANCH_QUERIES = 50
# Several queries at a time: milvus-lite looks at every row for each request.
_AT_ONCE = 100


@dataclass(frozen=True)
class RecallProbe:
    """Queries with their exact answers in one scope.

    Attributes:
        scope: what may be returned.
        queries: positions of the queries ``[Q]``.
        exact: positions of their exact nearest, each query itself left out ``[Q, k]``.
    """

    scope: SearchScope
    queries: Positions
    exact: Positions

    @classmethod
    def make(cls, scope: SearchScope, queries: Positions, k: int) -> RecallProbe:
        """Find the exact answers."""
        found, _ = scan(scope.vectors[queries], k + 1, scope)
        return cls(scope, queries, _without(found, queries, k))

    def recall(self, engine: SearchEngine) -> float:
        """Share of the exact answers that an engine finds."""
        k = self.exact.shape[1]
        found = 0
        for first in range(0, len(self.queries), _AT_ONCE):
            queries = self.queries[first : first + _AT_ONCE]
            vectors = np.asarray(self.scope.vectors[queries])
            positions, _ = engine.search(vectors, k + 1, self.scope)
            if not engine.exact:
                positions, _ = rescore(vectors, positions, self.scope.vectors)
            answers = _without(positions, queries, k)
            pairs = zip(answers.tolist(), self.exact[first : first + _AT_ONCE].tolist(), strict=True)
            found += sum(len(set(mine) & set(theirs) - {-1}) for mine, theirs in pairs)
        return found / max(1, int((self.exact >= 0).sum()))


def _without(positions: Positions, queries: Positions, k: int) -> Positions:
    """The first ``k`` answers of each query that are not the query itself; -1 where there are fewer."""
    answers = np.full((len(queries), k), -1, dtype=np.int64)
    for row, (found, query) in enumerate(zip(positions, queries, strict=True)):
        others = found[(found != query) & (found >= 0)][:k]
        answers[row, : len(others)] = others
    return answers


def measure_recall(index: Index, *, k: int = K, queries: int = 500, seed: int = 0) -> float:
    """Share of the exact nearest ``k`` that the index's engine finds, for images of the index as queries.

    Each query is left out of its own answer.

    Raises:
        OptionError: a negative seed, or no queries.
    """
    if seed < 0 or queries < 1:
        raise OptionError(f"seed must be 0 or more, queries 1 or more, got {seed} and {queries}")
    return index.measure_recall(k=k, queries=queries, seed=seed)


def whole_probe(positions: Positions, scope: SearchScope, *, k: int, queries: int, seed: int) -> RecallProbe:
    """Random images of an index as queries over all of it."""
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(positions, size=min(queries, len(positions)), replace=False))
    return RecallProbe.make(scope, chosen, min(k, len(positions) - 1))


def reach_recall(
    engine: SearchEngine, items: Manifest, positions: Positions, vectors: VectorArray, *, target: float
) -> IndexRecall | None:
    """Raise the engine's effort until it reaches a recall, and say what it reached; None for exact search.

    Args:
        engine: holds the vectors already; its settings change.
        items: the images.
        positions: row of each in the vector file.
        vectors: all rows of the vector file.
        target: the recall to reach.
    """
    if engine.exact or len(positions) < 2:
        return None
    everywhere = make_scope(items, positions, vectors)
    probe = whole_probe(positions, everywhere, k=K, queries=QUERIES, seed=0)
    whole = probe.recall(engine)
    while whole < target and engine.search_harder(filtered=False):
        whole = probe.recall(engine)
    probes = _branch_probes(engine, items, positions, vectors)
    inside = min((one.recall(engine) for one in probes), default=None)
    while inside is not None and inside < target and engine.search_harder(filtered=True):
        inside = min(one.recall(engine) for one in probes)
    reached = IndexRecall(k=K, target=target, whole=whole, inside=inside, rows=len(positions))
    if not reached.kept:
        log.warning("%s", reached.describe())
    return reached


def _branch_probes(
    engine: SearchEngine, items: Manifest, positions: Positions, vectors: VectorArray
) -> list[RecallProbe]:
    """Queries inside some branches, large and small, that the engine does not scan anyway.

    Half of the queries are images of the branch, half are from anywhere.
    """
    sizes: dict[tuple[str, ...], int] = {}
    for names in branches(items):
        for depth in range(1, len(names) + 1):
            sizes[names[:depth]] = sizes.get(names[:depth], 0) + 1
    asked = [
        (size, names) for names, size in sizes.items() if K < size < len(items) and not engine.scans(size)
    ]
    asked.sort()
    spread = np.unique(np.linspace(0, len(asked) - 1, min(MAX_BRANCHES, len(asked))).astype(int))
    generator = np.random.default_rng(0)
    probes = []
    for _, names in (asked[at] for at in spread):
        scope = make_scope(items, positions, vectors, join(names))
        assert scope.positions is not None
        own = generator.choice(scope.positions, size=min(BRANCH_QUERIES // 2, len(scope.positions)))
        others = generator.choice(positions, size=BRANCH_QUERIES // 2)
        probes.append(RecallProbe.make(scope, np.unique(np.concatenate([own, others])), K))
    return probes
