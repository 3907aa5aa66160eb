"""The H-AP loss bounds 1 - H-AP from above; where the surrogate is no bound, neither is the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import happier
from happier import HierarchyRelevance, LevelRelevance, WeightedAPRelevance
from happier.losses import HAPLoss, SigmoidHAPLoss, StepSurrogate


def one_query(rng, depth, items, spread, pull, decimals):
    """A query and its items as scores: in one dimension, where the query is 1 and an item is its score."""
    labels = np.zeros((items + 1, depth), dtype=np.int64)
    for row in range(1, items + 1):
        shared = rng.integers(0, depth + 1)
        labels[row, shared:] = row  # leaves the path of the query after `shared` levels
    levels = (labels[1:] == 0).sum(1)
    scores = spread * rng.normal(size=items) + pull * levels
    if decimals is not None:
        scores = np.round(scores, decimals)  # exact ties
    query = torch.tensor([[1.0]], dtype=torch.float64)
    return query, labels[:1], torch.tensor(scores[:, None]), labels[1:], levels, scores


def exact_loss(reference, scores, levels, relevance):
    value = reference.h_ap([scores.tolist()], [levels.tolist()], int(max(levels.max(), 1)), relevance)[0]
    return None if value is None else 1 - value


RELEVANCES = ["eq4", "weighted", "levels"]


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32 - 1),
    depth=st.integers(1, 4),
    items=st.integers(1, 14),
    spread=st.sampled_from([0.001, 0.02, 0.05, 0.3]),
    pull=st.sampled_from([0.0, 0.02, 0.2]),
    decimals=st.sampled_from([None, 1, 2]),
    kind=st.sampled_from(RELEVANCES),
    alpha=st.floats(0, 5),
    tau=st.floats(0.001, 0.2),
    rho=st.floats(0, 200),
    delta=st.floats(0, 0.3),
    start=st.floats(0.5, 1.0),
    gamma=st.floats(0, 50),
    nu=st.floats(0, 50),
    mu=st.floats(0, 1),
)
def test_upper_bound(
    reference, seed, depth, items, spread, pull, decimals, kind, alpha, tau, rho, delta, start, gamma, nu, mu
):
    rng = np.random.default_rng(seed)
    query, labels, others, other_labels, levels, scores = one_query(rng, depth, items, spread, pull, decimals)
    shares = rng.dirichlet(np.ones(depth))
    values = rng.random(depth)
    relevance, slow = {
        "eq4": (HierarchyRelevance(alpha), reference.eq4(alpha)),
        "weighted": (WeightedAPRelevance(shares), reference.weighted_ap(shares)),
        "levels": (LevelRelevance(values), reference.constant(values)),
    }[kind]
    exact = reference.h_ap([scores.tolist()], [levels.tolist()], depth, slow)[0]
    if exact is None:
        return
    surrogate = StepSurrogate(tau=tau, rho=rho, delta=delta, start=start, gamma=gamma, nu=nu, mu=mu)
    loss = HAPLoss(relevance=relevance, surrogate=surrogate)
    assert float(loss(query, torch.tensor(labels), others, torch.tensor(other_labels))) >= 1 - exact - 1e-9


def test_authors_values_of_inaturalist_are_no_bound(reference):
    """start 0 and offset 1 count an item of a lower level just ahead as less than one."""
    query = torch.tensor([[1.0]], dtype=torch.float64)
    labels = torch.tensor([[0]])
    others, other_labels = torch.tensor([[0.500], [0.501]], dtype=torch.float64), torch.tensor([[0], [1]])
    exact = 1 - reference.h_ap([[0.500, 0.501]], [[1, 0]], 1, reference.eq4())[0]
    authors = HAPLoss(surrogate=StepSurrogate(start=0.0, offset=1.0, hrank=False))
    assert float(authors(query, labels, others, other_labels)) < exact - 1e-3
    assert float(HAPLoss()(query, labels, others, other_labels)) >= exact
    violations, queries = 0, 0
    rng = np.random.default_rng(0)
    for _ in range(400):
        query, labels, others, other_labels, levels, scores = one_query(rng, 2, 10, 0.05, 0.02, None)
        exact = reference.h_ap([scores.tolist()], [levels.tolist()], 2, reference.eq4())[0]
        if exact is not None:
            queries += 1
            value = float(authors(query, torch.tensor(labels), others, torch.tensor(other_labels)))
            violations += value < 1 - exact - 1e-9
    assert 0 < violations < queries / 2


@pytest.mark.parametrize("engine", ["kernel", "torch"])
def test_tends_to_the_metric(make_batch, engine):
    """As the temperature falls, the sigmoid loss becomes 1 - H-AP."""
    embeddings, labels = make_batch(8, items=40, dim=6)
    metric = happier.evaluate(embeddings.numpy().astype(np.float32), labels.numpy()).summary["H-AP"]
    gaps = [
        abs(1 - float(SigmoidHAPLoss(tau=tau, engine=engine)(embeddings, labels)) - metric)
        for tau in (0.1, 0.01, 0.001, 1e-6)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[3] < 1e-6


def test_bound_holds_over_a_batch(make_batch):
    embeddings, labels = make_batch(9, items=60, dim=6)
    metric = happier.evaluate(embeddings.numpy().astype(np.float32), labels.numpy()).summary["H-AP"]
    assert float(HAPLoss()(embeddings, labels)) >= 1 - metric
