"""The ranking behind a query's H-AP."""

from __future__ import annotations

import numpy as np
import pytest

from happier.web.indexed_model import _ranked_levels


def plain(scores, levels):
    """By two sort keys: the score falling, then the level rising."""
    return levels[np.lexsort((levels, -scores))]


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_levels_are_ranked_as_by_two_keys(decimals):
    """Few decimals make many ties; half of the scores are negative."""
    generator = np.random.default_rng(decimals)
    scores = generator.uniform(-1, 1, 5_000).round(decimals).astype(np.float32)
    levels = generator.integers(0, 6, len(scores)).astype(np.int8)
    found = _ranked_levels(scores, levels)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, plain(scores, levels))


def test_equal_scores_are_worst_first_and_zero_has_no_sign():
    tiny = np.float32(1e-45)
    scores = np.array([0, -0.0, -0.0, 0, tiny, -tiny, -0.5, -0.5, 2, np.inf, -np.inf], dtype=np.float32)
    levels = np.array([3, 2, 1, 0, 0, 3, 2, 1, 127, 0, 3], dtype=np.int8)
    assert _ranked_levels(scores, levels).tolist() == [0, 127, 0, 0, 1, 2, 3, 3, 1, 2, 3]
    np.testing.assert_array_equal(_ranked_levels(scores, levels), plain(scores, levels))


def test_one_image_and_none():
    assert _ranked_levels(np.zeros(1, np.float32), np.ones(1, np.int8)).tolist() == [1]
    assert len(_ranked_levels(np.zeros(0, np.float32), np.zeros(0, np.int8))) == 0
