"""The loss for any graded relevance: loops, the metric, trees, both engines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck

from happier import LevelRelevance, evaluate, graded_h_ap, jaccard
from happier.data import AttributeBatchSampler
from happier.errors import InputError
from happier.losses import GradedHAPLoss, HAPLoss, SigmoidSurrogate, StepSurrogate
from happier.taxonomy import shared_levels

ENGINES = ("kernel", "torch")


def problem(seed, queries=5, items=14, *, distinct=4, dim=4):
    rng = np.random.default_rng(seed)
    q, v = (torch.tensor(rng.normal(size=(count, dim))) for count in (queries, items))
    relevance = torch.tensor(rng.integers(0, distinct, size=(queries, items)) / 3.0)
    relevance[1] = 0  # no relevant item
    normalize = torch.nn.functional.normalize
    return normalize(q, dim=1), relevance, normalize(v, dim=1)


def loops(reference, scores, relevance, left_out, ranks):
    """Relevances numbered in rising order are levels; a query has its own table of them."""
    losses = []
    for q, row in enumerate(relevance.tolist()):
        values = sorted({value for j, value in enumerate(row) if (q, j) not in left_out} | {0.0})
        levels = [None if (q, j) in left_out else values.index(value) for j, value in enumerate(row)]
        positives = reference.positives_of(levels)
        total = sum(values[levels[k]] for k in positives)
        if total <= 0:
            continue
        value = 0.0
        for k in positives:
            rank, hrank = ranks(scores[q], levels, values, k)
            value = value + hrank / rank
        losses.append(1 - value / total)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("distinct", [2, 5, 1000])
@pytest.mark.parametrize(
    "surrogate", [StepSurrogate(), StepSurrogate(hrank=False), SigmoidSurrogate(0.1)], ids=str
)
def test_equals_the_loops(reference, engine, distinct, surrogate):
    queries, relevance, items = problem(distinct, distinct=distinct)
    positions = torch.tensor([-1, 3, 0, -1, 13])
    left_out = {(q, int(j)) for q, j in enumerate(positions) if j >= 0}

    def ranks(s, levels, rel, k):
        if isinstance(surrogate, SigmoidSurrogate):
            return reference.sigmoid_ranks(s, levels, rel, k, surrogate.tau)
        return reference.surrogate_ranks(s, levels, rel, k, surrogate)

    results = []
    for slow in (False, True):
        one, other = queries.clone().requires_grad_(), items.clone().requires_grad_()
        if slow:
            value = loops(reference, one @ other.T, relevance, left_out, ranks)
        else:
            loss = GradedHAPLoss(surrogate=surrogate, engine=engine)
            value = loss(one, relevance, other, query_positions=positions)
        value.backward()
        results.append((value.detach(), one.grad, other.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tree_gives_the_loss_of_the_tree(make_batch, engine):
    embeddings, labels = make_batch(3, items=20)
    values = torch.tensor([0.0, 0.2, 0.5, 1.0], dtype=torch.float64)
    relevance = values[shared_levels(labels, labels).long()]
    expected = HAPLoss(relevance=LevelRelevance(values[1:].tolist()))(embeddings, labels)
    torch.testing.assert_close(GradedHAPLoss(engine=engine)(embeddings, relevance), expected)


def test_bounds_the_metric():
    for seed in range(20):
        queries, relevance, items = problem(seed, distinct=6)
        order = (queries @ items.T).argsort(dim=1, descending=True)
        metric = np.nanmean(graded_h_ap(relevance.gather(1, order).numpy()))
        assert float(GradedHAPLoss()(queries, relevance, items)) >= 1 - metric - 1e-12


@pytest.mark.parametrize("engine", ENGINES)
def test_gradcheck(engine):
    queries, relevance, items = problem(0, queries=3, items=8, distinct=100)
    loss = GradedHAPLoss(surrogate=StepSurrogate(tau=0.1), engine=engine)
    call = lambda q, v: loss(q, relevance, v)  # noqa: E731
    assert gradcheck(call, (queries.requires_grad_(), items.requires_grad_()), eps=1e-7, atol=1e-5)


def test_nothing_relevant_gives_a_zero_that_back_propagates():
    embeddings = torch.eye(3).requires_grad_()
    value = GradedHAPLoss()(embeddings, torch.eye(3))  # a query is not retrieved for itself
    value.backward()
    assert value == 0
    assert (embeddings.grad == 0).all()


def test_attributes_are_learnt():
    """Batches of `AttributeBatchSampler`, Jaccard relevance, a linear embedding: H-AP by attributes rises."""
    generator = np.random.default_rng(3)
    attributes = generator.random((120, 10)) < 0.25
    attributes[:5] = False  # nothing is known of these
    noise = generator.normal(size=(120, 16))
    features = torch.tensor(attributes @ generator.normal(size=(10, 16)) + noise, dtype=torch.float32)
    torch.manual_seed(0)
    layer, loss = torch.nn.Linear(16, 8), GradedHAPLoss()

    def h_ap():
        with torch.no_grad():
            vectors = torch.nn.functional.normalize(layer(features), dim=1)
        return evaluate(vectors, None, relevance=lambda q: jaccard(attributes[q], attributes)).summary["H-AP"]

    before = h_ap()
    sampler = AttributeBatchSampler(attributes, batch_size=40, per_attribute=4)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for epoch in range(30):
        sampler.set_epoch(epoch)
        for rows in sampler:
            optimizer.zero_grad()
            relevance = jaccard(torch.from_numpy(attributes[rows]))
            loss(torch.nn.functional.normalize(layer(features[rows]), dim=1), relevance).backward()
            optimizer.step()
    assert h_ap() > before + 0.05


def test_compiles_as_one_graph():
    queries, relevance, items = problem(1)
    loss = GradedHAPLoss(engine="torch")
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(queries, relevance, items), loss(queries, relevance, items))


def test_stays_on_the_device():
    with FakeTensorMode():
        embeddings = torch.empty(16, 6, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        value = GradedHAPLoss(engine="torch")(embeddings, torch.empty(16, 16, device="cuda"))
        assert value.device.type == "cuda"
        assert value.dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.eye(3), torch.ones(3, 2)), r"of shape \(3, 3\), got \(3, 2\)"),
        ((torch.eye(3), -torch.ones(3, 3)), "0 or more"),
        ((torch.eye(3), torch.full((3, 3), torch.nan)), "finite"),
        ((torch.eye(3), torch.ones(3, 4), torch.eye(4)), "3 dimensions, ref_embeddings 4"),
        ((torch.eye(3).numpy(), torch.ones(3, 3)), "embeddings must be a float tensor"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        GradedHAPLoss()(*arguments)
