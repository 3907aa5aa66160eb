"""H-AP of any real relevances."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import happier
from happier.errors import InputError


def slow(relevances):
    total = sum(relevances)
    value = 0.0
    for k, own in enumerate(relevances):
        value += sum(min(other, own) for other in relevances[: k + 1]) / (k + 1)
    return value / total if total > 0 else float("nan")


@given(
    st.lists(
        st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 100, allow_subnormal=False)),
        min_size=1,
        max_size=40,
    )
)
def test_equals_its_definition(relevances):
    np.testing.assert_allclose(happier.graded_h_ap(relevances), [slow(relevances)], rtol=1e-10, atol=1e-12)


def test_scale_does_not_matter_and_the_best_order_scores_one():
    generator = np.random.default_rng(0)
    values = generator.random((5, 200))
    np.testing.assert_allclose(happier.graded_h_ap(values * 17), happier.graded_h_ap(values), atol=1e-12)
    np.testing.assert_allclose(happier.graded_h_ap(np.sort(values)[:, ::-1]), 1.0, atol=1e-12)


@given(st.integers(0, 2**32), st.integers(0, 6))
def test_jaccard_equals_sets(seed, attributes):
    """Items without any attribute share nothing, not even with each other."""
    generator = np.random.default_rng(seed)
    one, other = (generator.integers(0, 2, size=(items, attributes)) for items in (3, 5))
    found = happier.jaccard(one, other)
    assert found.shape == (3, 5)
    sets, other_sets = ([set(np.flatnonzero(row)) for row in rows] for rows in (one, other))
    for q, a in enumerate(sets):
        for j, b in enumerate(other_sets):
            assert found[q, j] == (len(a & b) / len(a | b) if a | b else 0.0)
    torch.testing.assert_close(happier.jaccard(torch.tensor(one), torch.tensor(other)), torch.tensor(found))


def test_jaccard_refuses_other_attributes():
    with pytest.raises(InputError, match=r"same attributes on both sides, got \(2, 3\) and \(2, 4\)"):
        happier.jaccard(np.ones((2, 3)), np.ones((2, 4)))


def test_torch_and_integers():
    expected = happier.graded_h_ap([[2.0, 0.0, 1.0]])
    assert happier.graded_h_ap(torch.tensor([[2, 0, 1]])) == expected
    assert happier.graded_h_ap(torch.tensor([2.0, 0.0, 1.0], dtype=torch.bfloat16)) == expected


def test_no_relevance_is_undefined():
    values = happier.graded_h_ap([[0.0, 0.0], [1.0, 0.0]])
    assert np.isnan(values[0])
    assert values[1] == 1.0


@pytest.mark.parametrize(
    ("relevances", "message"),
    [
        ([[-1.0]], r"0 or more, got -1.0 at \[0, 0\]"),
        ([[0.0, np.nan]], r"finite.* got nan at \[0, 1\]"),
        ([[np.inf]], "finite"),
        ([], "non-empty"),
        ([[["a"]]], "non-empty array"),
        ([["a"]], "real numbers"),
    ],
)
def test_bad_relevances_are_refused(relevances, message):
    with pytest.raises(happier.HappierError, match=message):
        happier.graded_h_ap(relevances)
