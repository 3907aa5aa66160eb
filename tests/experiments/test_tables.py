"""Differences between methods, over queries and seeds."""

import numpy as np
import pytest

from experiments.tables import difference

GENERATOR = np.random.default_rng(0)
REFERENCE = {seed: GENERATOR.random(400) for seed in range(3)}


def test_the_same_gap_everywhere_is_certain():
    one = {seed: values + 0.1 for seed, values in REFERENCE.items()}
    assert difference(one, REFERENCE) == pytest.approx((0.1, 0.1, 0.1))


def test_one_seed_is_a_bootstrap_of_the_queries():
    noise = GENERATOR.normal(0.05, 0.2, 400)
    mean, low, high = difference({1: REFERENCE[1] + noise}, REFERENCE)
    error = noise.std() / np.sqrt(len(noise))
    assert mean == pytest.approx(noise.mean())
    assert (low, high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.2 * error)


def test_seeds_that_disagree_widen_the_interval():
    one = {seed: values + gap for (seed, values), gap in zip(REFERENCE.items(), (-0.1, 0, 0.1), strict=True)}
    mean, low, high = difference(one, REFERENCE)
    assert mean == pytest.approx(0)
    assert low < -0.05
    assert high > 0.05


def test_only_seeds_that_both_have_count():
    one = {1: REFERENCE[1] + 0.1, 7: REFERENCE[1] + 5}
    assert difference(one, REFERENCE)[0] == pytest.approx(0.1)


def test_a_query_without_a_value_is_left_out():
    one = {0: REFERENCE[0] + 0.1}
    one[0][3] = np.nan
    assert difference(one, REFERENCE) == pytest.approx((0.1, 0.1, 0.1))
