"""The classmate that might have been: against loops, and against classmates that were hidden."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happier.identification.classmates import ClassmateSimilarity, with_classmate
from happier.identification.votes import Neighbours


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 9999), width=st.integers(1, 6), there=st.integers(0, 7))
def test_one_more_neighbour_is_put_in_its_place(seed, width, there):
    """By a list that is sorted again; where there are few, the last places are empty."""
    generator = np.random.default_rng(seed)
    scores = np.full((3, width + 1), -np.inf)
    rows = np.full((3, width + 1), -1)
    there = min(there, width + 1)
    scores[:, :there] = np.sort(generator.random((3, there)).round(1), axis=1)[:, ::-1]
    rows[:, :there] = generator.integers(0, 50, (3, there))
    own, similar = np.array([97, 98, 99]), generator.random(3).round(1)
    found = with_classmate(Neighbours.from_ranking(rows, scores), own, similar)
    for query in range(3):
        # The row beyond the neighbours is not known, and never needed: it cannot come back in.
        pairs = [(score, -1) for score in scores[query]]
        pairs[:width] = list(zip(scores[query, :width], rows[query, :width], strict=True))
        pairs.append((similar[query], own[query]))
        pairs.sort(key=lambda pair: -pair[0])  # stable: behind those that are as near
        assert found.scores[query].tolist() == [score for score, _ in pairs[:width]]
        assert found.rows[query].tolist() == [row for _, row in pairs[:width]]
        assert found.beyond[query] == pairs[width][0]


def test_variances_are_those_that_were_drawn():
    generator = np.random.default_rng(0)
    centres = 0.5 + 0.08 * generator.standard_normal(4000)
    sizes = generator.integers(0, 5, 4000)
    found = ClassmateSimilarity.estimate(
        [centre + 0.05 * generator.standard_normal(size) for centre, size in zip(centres, sizes, strict=True)]
    )
    assert found is not None
    assert found.mean == pytest.approx(0.5, abs=0.01)
    assert found.between == pytest.approx(0.08**2, rel=0.1)
    assert found.within == pytest.approx(0.05**2, rel=0.1)


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_classmate_that_might_have_been_is_like_one_that_was(left):
    """Hide one of an image's similarities and draw it again: mean, spread and dependence agree."""
    generator = np.random.default_rng(left)
    centres = 0.5 + 0.08 * generator.standard_normal(5000)
    similar = centres[:, None] + 0.05 * generator.standard_normal((5000, left + 1))
    model = ClassmateSimilarity(0.5, 0.08**2, 0.05**2)
    drawn = np.array([model.another(row[1:], generator) for row in similar])
    hidden = similar[:, 0]
    assert drawn.mean() == pytest.approx(hidden.mean(), abs=0.005)
    assert drawn.std() == pytest.approx(hidden.std(), rel=0.05)
    if left:
        others = similar[:, 1:].mean(axis=1)
        real, made = (np.corrcoef(others, one)[0, 1] for one in (hidden, drawn))
        assert made == pytest.approx(real, abs=0.05)


def test_without_classmates_nothing_is_known():
    assert ClassmateSimilarity.estimate([np.array([]), np.array([])]) is None
    pairs = ClassmateSimilarity.estimate([np.array([0.2]), np.array([0.6])])
    assert pairs == ClassmateSimilarity(0.4, pytest.approx(0.02), pytest.approx(0.02))
    same = ClassmateSimilarity.estimate([np.array([1.0, 1.0])] * 3)
    assert same is not None
    assert same.another(np.array([1.0]), np.random.default_rng(0)) == 1.0
