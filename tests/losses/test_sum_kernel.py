"""Sums over sorted lists give what loops over pairs give, to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from happier import HierarchyRelevance, LevelRelevance
from happier.losses import HAPLoss, SigmoidSurrogate, StepSurrogate, _kernel, _sum_kernel
from happier.losses.hap import level_counts
from happier.losses.objective import Objective
from happier.taxonomy import shared_levels

SURROGATES = [
    StepSurrogate(),
    StepSurrogate(tau=0.02, offset=1.44, hrank=False),
    StepSurrogate(tau=0.004, delta=0.1, start=0.7, gamma=2.0, nu=3.0, mu=0.2),
    StepSurrogate(mu=1.5, nu=0.0),
    SigmoidSurrogate(0.01),
    SigmoidSurrogate(0.2),
]


def problem(make_batch, seed, kind, *, scale=1.0, ties=False, items=70, dtype=torch.float64):
    depth = 1 if kind == "recall" else 3
    embeddings, labels = make_batch(seed, items=items, depth=depth, dim=6, unknown=0.2)
    levels = shared_levels(labels, labels)
    levels.fill_diagonal_(-1)
    scores = scale * embeddings @ embeddings.T
    if ties:
        scores = (20 * scores).round() / 20
    counts = level_counts(levels, depth)
    if kind == "ap":
        # Two levels of equal relevance, and none for another.
        table = LevelRelevance([0.5, 0.5, 1.0]) if ties else HierarchyRelevance()
        objective = Objective.ap(counts, table(counts))
    elif kind == "ndcg":
        objective = Objective.ndcg(counts, items)
    else:
        objective = Objective.recall(counts, (1, 2, 8), 2.0)
    return scores.to(dtype), levels, objective


def pairs(monkeypatch, *arguments):
    monkeypatch.setattr(_kernel, "pays", lambda *_: False)
    return _kernel.ranking_kernel(*arguments, need_gradient=True)


@pytest.mark.parametrize("kind", ["ap", "ndcg", "recall"])
@pytest.mark.parametrize("surrogate", SURROGATES, ids=str)
def test_equals_the_loops_over_pairs(monkeypatch, make_batch, kind, surrogate):
    """Scores narrow and wide, with ties, up to where exponentials of their spread overflow."""
    for seed, (scale, ties) in enumerate([(1.0, False), (1.0, True), (0.05, False), (10.0, False)]):
        given = (*problem(make_batch, seed, kind, scale=scale, ties=ties), surrogate)
        values, gradient = pairs(monkeypatch, *given)
        sums, sum_gradient = _sum_kernel.ranking_sums(*given, need_gradient=True, threaded=False)
        torch.testing.assert_close(sums, values, rtol=1e-9, atol=1e-11)
        limit = 1e-9 * float(gradient.abs().max())
        torch.testing.assert_close(sum_gradient, gradient, rtol=1e-9, atol=limit)
        without, none = _sum_kernel.ranking_sums(*given, need_gradient=False, threaded=False)
        assert none is None
        torch.testing.assert_close(without, sums, rtol=0, atol=0)


@pytest.mark.parametrize("surrogate", [StepSurrogate(), SigmoidSurrogate(0.01)], ids=str)
def test_float32(monkeypatch, make_batch, surrogate):
    given = (*problem(make_batch, 3, "ap", dtype=torch.float32), surrogate)
    exact = (given[0].double(), *given[1:])
    values, gradient = pairs(monkeypatch, *exact)
    sums, sum_gradient = _sum_kernel.ranking_sums(*given, need_gradient=True, threaded=False)
    torch.testing.assert_close(sums, values, rtol=1e-6, atol=1e-6)
    limit = 1e-6 * float(gradient.abs().max())
    torch.testing.assert_close(sum_gradient.double(), gradient, rtol=1e-5, atol=limit)


def test_threads_change_nothing(make_batch):
    given = (*problem(make_batch, 4, "ap"), StepSurrogate())
    one = _sum_kernel.ranking_sums(*given, need_gradient=True, threaded=False)
    two = _sum_kernel.ranking_sums(*given, need_gradient=True, threaded=True)
    torch.testing.assert_close(two, one, rtol=0, atol=1e-15)


def test_chosen_where_it_pays(monkeypatch, make_batch):
    """Large batches by sums, small ones by pairs; pairs too where the sums would not hold."""
    rng = np.random.default_rng(0)
    scores = torch.tensor(rng.normal(size=(2, 6000)) * 0.05)
    levels = torch.tensor(rng.integers(0, 2, size=(2, 6000)), dtype=torch.int8)
    counts = level_counts(levels, 1)
    objective = Objective.ap(counts, LevelRelevance([1.0])(counts))
    assert _sum_kernel.pays(scores, levels, objective, StepSurrogate())
    few = (scores[:, :200], levels[:, :200], objective)
    assert not _sum_kernel.pays(*few, StepSurrogate())
    assert not _sum_kernel.pays(scores, levels, objective, StepSurrogate(delta=0.0))
    assert not _sum_kernel.pays(scores, levels, objective, StepSurrogate(tau=1e-7))
    scores[0, 0] = torch.nan
    assert not _sum_kernel.pays(scores, levels, objective, StepSurrogate())

    embeddings, labels = make_batch(5, items=40)
    expected = HAPLoss(engine="torch")(embeddings, labels)
    monkeypatch.setattr(_kernel, "pays", lambda *_: True)
    torch.testing.assert_close(HAPLoss()(embeddings, labels), expected)
