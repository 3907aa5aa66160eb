"""Each metric as a function of ranked levels, against its definition in loops."""

import inspect
import math

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import happier
from happier import HierarchyRelevance, LevelRelevance, metrics
from happier.metrics import ranked
from happier.metrics.schema import Schema, check_ks

RELEVANCE = LevelRelevance([1 / 3, 2 / 3, 1])
GOOD, BAD = [2, 3, 0, 1, 3], [1, 3, 0, 2, 3]
COUNTS = [1, 1, 1, 2]


def test_the_papers_worked_numbers():
    """Two rankings that AP cannot tell apart: supplementary A.1 and A.2."""
    levels, counts = torch.tensor([GOOD, BAD]), torch.tensor([COUNTS, COUNTS])
    table = RELEVANCE(counts)
    hrank = metrics.hierarchical_rank(levels, table)
    assert hrank[:, 1].tolist() == pytest.approx([5 / 3, 4 / 3])
    result = happier.evaluate_ranking(levels, counts, RELEVANCE)
    assert result.per_query["H-AP"].tolist() == pytest.approx([0.783333, 0.672222], abs=1e-6)
    assert result.per_query["AP/3"].tolist() == pytest.approx([0.45, 0.45])


@st.composite
def rankings(draw):
    depth = draw(st.integers(1, 4))
    levels = draw(st.lists(st.integers(0, depth), min_size=1, max_size=25))
    values = draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=depth, max_size=depth))
    missing = draw(st.lists(st.integers(0, 2), min_size=depth + 1, max_size=depth + 1))
    return depth, levels, values, missing


@given(rankings())
def test_every_metric_equals_its_definition(drawn):
    """Any ranking, cut anywhere, with any relevances, equal and zero ones among them."""
    depth, levels, values, missing = drawn
    counts = [levels.count(level) + missing[level] for level in range(depth + 1)]
    names, ks = [str(level) for level in range(1, depth + 1)], (1, 2, 40)
    result = happier.evaluate_ranking([levels], [counts], LevelRelevance(values), ks=ks)
    expected = oracle.everything(levels, [0.0, *values], counts, names, ks)
    assert set(result.per_query) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(result.per_query[name][0], value, rtol=0, atol=1e-12, err_msg=name)


@given(rankings())
def test_h_ap_is_the_area_under_the_hierarchical_precision_recall_curve(drawn):
    depth, levels, values, _ = drawn
    counts = torch.tensor([[levels.count(level) for level in range(depth + 1)]])
    ranking, table = torch.tensor([levels]), LevelRelevance(values)(counts)
    recall = metrics.hierarchical_recall(ranking, table, counts)[0]
    precision = metrics.hierarchical_precision(ranking, table)[0].nan_to_num(0.0)
    h_ap = metrics.h_ap(ranking, table, counts)[0]
    if torch.isnan(h_ap):
        assert torch.isnan(recall).all()
        return
    steps = torch.diff(recall, prepend=torch.zeros(1, dtype=torch.float64))
    assert float((steps * precision).sum()) == pytest.approx(float(h_ap), abs=1e-12)


@given(rankings())
def test_a_perfect_ranking_scores_one(drawn):
    depth, levels, _, _ = drawn
    counts = [levels.count(level) for level in range(depth + 1)]
    best = sorted(levels, reverse=True)
    rising = LevelRelevance(np.linspace(0.5, 1.0, depth))
    result = happier.evaluate_ranking([best], [counts], rising, ks=(1,))
    for name in ("H-AP", "ASI", "NDCG", "AP/1", f"mAP@R/{depth}", "NDCG@1"):
        value = result.per_query[name][0]
        assert np.isnan(value) or value == pytest.approx(1.0, abs=1e-12), name


def test_equal_relevances_do_not_count_twice():
    """Levels are told apart as integers: comparing floats would make a perfect ranking score 2."""
    result = happier.evaluate_ranking([[2, 2, 1, 1, 0]], [[1, 2, 2]], LevelRelevance([1.0, 1.0]))
    assert result.summary["H-AP"] == 1.0


def test_the_ideal_of_ndcg_comes_from_the_whole_gallery():
    cut = happier.evaluate_ranking([[0, 1]], [[5, 1, 3]], ks=(2,))
    assert cut.summary["NDCG@2"] == pytest.approx((1 / np.log2(3)) / (3 + 3 / np.log2(3)))


def test_counting_the_query_in_a_ranking_that_is_already_made():
    plain = happier.evaluate_ranking([[1, 2]], [[0, 1, 1]], HierarchyRelevance())
    counted = happier.evaluate_ranking([[1, 2]], [[0, 1, 1]], HierarchyRelevance(count_query=True))
    assert plain.summary["H-AP"] == pytest.approx((0.5 + 1.5 / 2) / 1.5)
    assert counted.summary["H-AP"] == pytest.approx((0.5 + 1.0 / 2) / 1.0)


def test_padding_ends_a_list():
    padded = happier.evaluate_ranking([[1, 0, -1, -1], [1, 0, 1, 0]], [[1, 1], [2, 2]], ks=(1, 3))
    alone = happier.evaluate_ranking([[1, 0]], [[1, 1]], ks=(1, 3))
    for name, values in alone.per_query.items():
        np.testing.assert_array_equal(padded.per_query[name][0], values[0], err_msg=name)


def test_no_metric_is_missing_from_the_schema():
    """Every public metric of `happier.metrics` shows up in an evaluation, and has an oracle."""
    defined = {
        name
        for name, function in inspect.getmembers(ranked, inspect.isfunction)
        if not name.startswith("_") and function.__module__ == ranked.__name__
    }
    parts = {"hierarchical_rank", "hierarchical_recall", "hierarchical_precision", "ideal_dcg"}
    source = inspect.getsource(Schema.compute)
    assert {name for name in defined - parts if f"ranked.{name}(" not in source} == set()
    assert defined - {"ideal_dcg"} <= set(metrics.__all__)


@pytest.mark.parametrize(
    ("levels", "counts", "message"),
    [
        ([1, 2], [[1, 1]], r"levels must be integers \[queries, ranks\]"),
        ([[1.0]], [[1, 1]], "levels must be integers"),
        ([[1]], [[1]], "level_counts must be integers"),
        ([[1]], [[1, 1], [1, 1]], "level_counts must be integers"),
        ([[2]], [[1, 1]], r"levels must be in 0\.\.1"),
        ([[-2]], [[1, 1]], "levels must be in"),
        ([[-1, 1]], [[1, 1]], "padding"),
        ([[1, 1]], [[1, 1]], r"levels\[0\] holds 2 items of level 1, but .* has 1"),
    ],
)
def test_a_bad_ranking_is_refused(levels, counts, message):
    with pytest.raises(happier.HappierError, match=message):
        happier.evaluate_ranking(levels, counts)


@pytest.mark.parametrize(
    "ks", [(0,), (1.5,), (-3,), (True,), (10**15,), ("a",), ("5",), (None,), (math.nan,), (math.inf,)]
)
def test_bad_cut_offs_are_refused(ks):
    with pytest.raises(happier.HappierError, match="ks must be whole numbers"):
        check_ks(ks)
