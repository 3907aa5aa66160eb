"""The H-AP losses against loops over scalars: value and gradient, both forms, every option."""

from __future__ import annotations

import textwrap

import pytest
import torch
from processes import run_fresh
from processes import script as run_script
from torch.autograd import gradcheck

from happier import HierarchyRelevance, LevelRelevance, WeightedAPRelevance
from happier.errors import HappierError, OptionError
from happier.losses import HAPLoss, HAPPIERLoss, SigmoidHAPLoss, SigmoidSurrogate, StepSurrogate

ENGINES = ("kernel", "torch")


def value_and_gradient(loss, *tensors):
    tensors = [
        tensor.detach().clone().requires_grad_() if tensor.is_floating_point() else tensor
        for tensor in tensors
    ]
    value = loss(*tensors)
    value.backward()
    return value.detach(), [tensor.grad for tensor in tensors if tensor.requires_grad]


def assert_same(got, expected, tolerance):
    value, gradients = got
    expected_value, expected_gradients = expected
    assert abs(value - expected_value) <= tolerance * max(1.0, abs(expected_value))
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        assert (gradient - other).abs().max() <= tolerance * max(1.0, float(other.abs().max()))


OPTIONS = {
    "paper": ({}, StepSurrogate(), lambda r: r.eq4()),
    "authors": ({"preset": "authors"}, StepSurrogate(offset=1.44, hrank=False), lambda r: r.eq4()),
    "authors on iNaturalist": (
        {"surrogate": StepSurrogate(start=0.0, offset=1.0, hrank=False)},
        StepSurrogate(start=0.0, offset=1.0, hrank=False),
        lambda r: r.eq4(),
    ),
    "alpha": ({"alpha": 3.0}, StepSurrogate(), lambda r: r.eq4(3.0)),
    "other parameters": (
        {"surrogate": StepSurrogate(tau=0.1, rho=7.0, delta=0.2, gamma=2.0, nu=3.0, mu=0.25)},
        StepSurrogate(tau=0.1, rho=7.0, delta=0.2, gamma=2.0, nu=3.0, mu=0.25),
        lambda r: r.eq4(),
    ),
    "weighted AP": (
        {"relevance": WeightedAPRelevance([0.5, 0.2, 0.3])},
        StepSurrogate(),
        lambda r: r.weighted_ap([0.5, 0.2, 0.3]),
    ),
    "equal relevances": (
        {"relevance": LevelRelevance([0.5, 0.5, 1.0])},
        StepSurrogate(),
        lambda r: r.constant([0.5, 0.5, 1.0]),
    ),
    "no relevance for a level": (
        {"relevance": LevelRelevance([0.0, 0.0, 1.0])},
        StepSurrogate(),
        lambda r: r.constant([0.0, 0.0, 1.0]),
    ),
    "query counted": (
        {"relevance": HierarchyRelevance(count_query=True)},
        StepSurrogate(),
        lambda r: r.eq4(count_query=True),
    ),
    "very sharp": ({"surrogate": StepSurrogate(tau=1e-4)}, StepSurrogate(tau=1e-4), lambda r: r.eq4()),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", OPTIONS)
def test_equals_the_loops(reference, make_batch, engine, case):
    options, surrogate, relevance = OPTIONS[case]
    for seed in range(3):
        # All rows fully known where the query counts: the reference adds it to the finest level.
        embeddings, labels = make_batch(seed, unknown=0.0 if case == "query counted" else 0.2)
        rows = reference.level_rows(labels.tolist(), labels.tolist(), same=True)

        def slow(v, y, rows=rows):
            ranks = lambda s, levels, rel, k: reference.surrogate_ranks(s, levels, rel, k, surrogate)  # noqa: E731
            return reference.hap_loss(v @ v.T, rows, y.shape[1], relevance(reference), ranks)

        expected = value_and_gradient(slow, embeddings, labels)
        assert_same(
            value_and_gradient(HAPLoss(engine=engine, **options), embeddings, labels), expected, 1e-10
        )
        single = HAPLoss(engine=engine, **options)
        value, gradients = value_and_gradient(single, embeddings.float(), labels)
        if case != "very sharp":  # float32 scores are too coarse for that temperature
            assert_same((value.double(), [g.double() for g in gradients]), expected, 1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tau", [0.01, 0.1, 1e-4])
def test_sigmoid_equals_the_loops(reference, make_batch, engine, tau):
    for seed in range(3):
        embeddings, labels = make_batch(seed, unknown=0.2)
        rows = reference.level_rows(labels.tolist(), labels.tolist(), same=True)

        def slow(v, y, rows=rows):
            ranks = lambda s, levels, rel, k: reference.sigmoid_ranks(s, levels, rel, k, tau)  # noqa: E731
            return reference.hap_loss(v @ v.T, rows, y.shape[1], reference.eq4(), ranks)

        expected = value_and_gradient(slow, embeddings, labels)
        assert_same(
            value_and_gradient(SigmoidHAPLoss(tau=tau, engine=engine), embeddings, labels), expected, 1e-10
        )


@pytest.mark.parametrize("depth", [1, 2, 4, 7])
@pytest.mark.parametrize("engine", ENGINES)
def test_any_depth(reference, make_batch, engine, depth):
    embeddings, labels = make_batch(5, depth=depth, branching=2, items=14)
    rows = reference.level_rows(labels.tolist(), labels.tolist(), same=True)

    def slow(v, y):
        ranks = lambda s, levels, rel, k: reference.surrogate_ranks(s, levels, rel, k, StepSurrogate())  # noqa: E731
        return reference.hap_loss(v @ v.T, rows, depth, reference.eq4(), ranks)

    expected = value_and_gradient(slow, embeddings, labels)
    assert_same(value_and_gradient(HAPLoss(engine=engine), embeddings, labels), expected, 1e-10)


@pytest.mark.parametrize("engine", ENGINES)
def test_query_left_in(reference, make_batch, engine):
    embeddings, labels = make_batch(1)
    rows = reference.level_rows(labels.tolist(), labels.tolist(), same=True, include_query=True)

    def slow(v, y):
        ranks = lambda s, levels, rel, k: reference.surrogate_ranks(s, levels, rel, k, StepSurrogate())  # noqa: E731
        return reference.hap_loss(v @ v.T, rows, 3, reference.eq4(), ranks)

    expected = value_and_gradient(slow, embeddings, labels)
    assert_same(
        value_and_gradient(HAPLoss(engine=engine, include_query=True), embeddings, labels), expected, 1e-10
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_reference_set(reference, make_batch, engine):
    embeddings, labels = make_batch(1)
    others, other_labels = make_batch(2, items=17)
    rows = reference.level_rows(labels.tolist(), other_labels.tolist(), same=False)

    def slow(v, y, w, z):
        ranks = lambda s, levels, rel, k: reference.surrogate_ranks(s, levels, rel, k, StepSurrogate())  # noqa: E731
        return reference.hap_loss(v @ w.T, rows, 3, reference.eq4(), ranks)

    arguments = (embeddings, labels, others, other_labels)
    assert_same(
        value_and_gradient(HAPLoss(engine=engine), *arguments), value_and_gradient(slow, *arguments), 1e-10
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "surrogate", [StepSurrogate(tau=0.1), SigmoidSurrogate(0.1)], ids=["step", "sigmoid"]
)
def test_gradcheck(make_batch, engine, surrogate):
    embeddings, labels = make_batch(3, unknown=0.2)
    loss = HAPLoss(surrogate=surrogate, engine=engine)
    # No pair of scores may sit on a corner of the surrogate, where there is no derivative.
    assert gradcheck(lambda v: loss(v, labels), embeddings.clone().requires_grad_(), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_second_derivative_says_why_not(make_batch, engine):
    embeddings, labels = make_batch(0)
    embeddings.requires_grad_()
    (gradient,) = torch.autograd.grad(
        HAPLoss(engine=engine)(embeddings, labels), embeddings, create_graph=True
    )
    with pytest.raises(HappierError, match="differentiated twice"):
        gradient.square().sum().backward()


def test_wide_scores_in_float32(make_batch):
    """Spreads at which the factored exponentials leave float32, then float64."""
    embeddings, labels = make_batch(4, items=40, dim=8)
    for scale in (1.0, 3.0, 30.0):
        expected = value_and_gradient(HAPLoss(engine="torch"), scale * embeddings, labels)
        for make in (HAPLoss, SigmoidHAPLoss):
            expected = value_and_gradient(make(engine="torch"), scale * embeddings, labels)
            assert_same(value_and_gradient(make(engine="kernel"), scale * embeddings, labels), expected, 1e-9)
            value, gradients = value_and_gradient(make(engine="kernel"), (scale * embeddings).float(), labels)
            assert value.isfinite()
            assert all(gradient.isfinite().all() for gradient in gradients)
            assert abs(value - expected[0]) <= 1e-3 * abs(expected[0])


def test_threads_change_nothing(make_batch):
    embeddings, labels = make_batch(6, items=64, dim=16)
    alone = value_and_gradient(HAPLoss(), embeddings, labels)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = value_and_gradient(HAPLoss(), embeddings, labels)
    finally:
        torch.set_num_threads(before)
    assert_same(together, alone, 0.0)


def test_threads_of_torch_stay_as_they_are():
    """Numba and torch share OpenMP: starting the threads of one must not change those of the other."""
    script = """
        import torch
        from happier.losses import HAPLoss
        for threads in (1, 2):
            torch.set_num_threads(threads)
            HAPLoss()(torch.eye(4), torch.tensor([0, 0, 1, 1]))
            assert torch.get_num_threads() == threads
    """
    done = run_fresh(run_script, textwrap.dedent(script))
    assert done.code == 0, done.err


def test_happier_is_the_sum_of_its_terms(make_batch):
    embeddings, labels = make_batch(0)
    labels[:, 2] = torch.arange(len(labels)) % 5
    loss = HAPPIERLoss(5, 5, alpha=2.0, weight=0.3)
    expected = 0.7 * HAPLoss(alpha=2.0)(embeddings, labels) + 0.3 * loss.cluster(embeddings, labels)
    torch.testing.assert_close(loss(embeddings, labels), expected)
    sigmoid = HAPPIERLoss(5, 5, weight=0.0, surrogate=SigmoidSurrogate(0.05))
    torch.testing.assert_close(sigmoid(embeddings, labels), SigmoidHAPLoss(tau=0.05)(embeddings, labels))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HAPLoss(preset="papr"), "did you mean 'paper'"),
        (lambda: HAPLoss(surrogate=0.1), "surrogate must be a StepSurrogate or a SigmoidSurrogate"),
        (lambda: HAPLoss(preset="authors", surrogate=StepSurrogate()), "give one of them"),
        (lambda: StepSurrogate(tau=0.0), "tau must be"),
        (lambda: StepSurrogate(rho=-1.0), "rho must be"),
        (lambda: HAPLoss(alpha=2.0, relevance=LevelRelevance([1.0])), "give one of them"),
        (lambda: HAPPIERLoss(3, 4, weight=1.5), "weight must be in 0..1"),
        (lambda: HAPPIERLoss(0, 4), "num_classes must be"),
        (lambda: HAPLoss(engine="kernal")(torch.eye(2), torch.tensor([0, 0])), "did you mean 'kernel'"),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(OptionError, match=message):
        make()
