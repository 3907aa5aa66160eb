"""Exact search ranks as `happier.evaluate` does."""

from __future__ import annotations

import numpy as np

from happier.evaluation import retrieve
from happier.search import Index


def test_exact_search_ranks_as_evaluate_does(tmp_path, catalogue):
    index = Index.build(tmp_path / "index", catalogue.manifest, catalogue.vectors, fingerprint="a" * 64)
    expected = retrieve(catalogue.vectors, catalogue.manifest.labels(), k=50)
    found = index.search(catalogue.vectors, k=50, exclude=list(range(len(index))))
    np.testing.assert_array_equal([[hit.row for hit in hits] for hits in found], expected.indices)
    scores = [[hit.score for hit in hits] for hits in found]
    np.testing.assert_allclose(scores, expected.scores, atol=1e-6)


def test_exact_search_of_new_queries_ranks_as_evaluate_does(tmp_path, catalogue, new_catalogue):
    index = Index.build(tmp_path / "index", catalogue.manifest, catalogue.vectors, fingerprint="a" * 64)
    queries = new_catalogue(60, seed=3)
    expected = retrieve(
        queries.vectors, queries.manifest.labels(), catalogue.vectors, catalogue.manifest.labels(), k=20
    )
    found = index.search(queries.vectors, k=20)
    np.testing.assert_array_equal([[hit.row for hit in hits] for hits in found], expected.indices)
