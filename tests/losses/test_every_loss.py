"""What holds for every loss of the registry that takes labels."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F

import happier
import happier.losses
from happier import Taxonomy
from happier.errors import InputError, OptionError
from happier.losses import LOSSES, CrossBatchMemory, RetrievalLoss, SumOverLevels, build_loss

NAMES = [name for name, entry in LOSSES.items() if not entry.takes_attributes]
WITH_PROXIES_OR_TRIPLETS = {"cluster", "nsm", "proxy", "csl", "triplet", "arcface", "cosface"}
RANKING = [name for name in NAMES if not WITH_PROXIES_OR_TRIPLETS & set(name.split("_"))]
# Part of what they do needs no positive pair.
REPELLING = (
    "happier",
    "happier_f",
    "happier_s",
    "roadmap",
    "sum_roadmap",
    "multi_similarity",
    "sum_multi_similarity",
)
# Distance-weighted triplets are drawn at random.
CERTAIN = [name for name in NAMES if name != "triplet_dw"]


def toy(classes=(3, 3), per_class=5, dim=16, noise=1.2, seed=0):
    """Features of a two-level tree that hold both levels among noise."""
    generator = torch.Generator().manual_seed(seed)
    coarse, fine = classes
    labels = torch.tensor(
        [[c, c * fine + f] for c in range(coarse) for f in range(fine) for _ in range(per_class)]
    )
    centres = torch.randn(coarse, dim, generator=generator)
    leaves = 0.7 * torch.randn(coarse * fine, dim, generator=generator)
    noise = noise * torch.randn(len(labels), dim, generator=generator)
    return centres[labels[:, 0]] + leaves[labels[:, 1]] + noise, labels


def build(name, labels, dim, **options):
    torch.manual_seed(0)
    return build_loss(name, taxonomy=Taxonomy.from_labels(labels), dim=dim, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_training_raises_h_ap(name):
    """200 steps on a linear embedding: a loss with its sign wrong would lower it."""
    features, labels = toy()
    loss = build(name, labels, dim=8)
    layer = torch.nn.Linear(features.shape[1], 8)
    groups = [{"params": layer.parameters(), "lr": 1e-2}, {"params": loss.proxy_parameters(), "lr": 1e-1}]
    optimizer = torch.optim.Adam(groups)

    def h_ap():
        with torch.no_grad():
            embeddings = F.normalize(layer(features), dim=1).numpy()
        return happier.evaluate(embeddings, labels.numpy()).summary["H-AP"]

    before = h_ap()
    for _ in range(200):
        optimizer.zero_grad()
        loss(F.normalize(layer(features), dim=1), labels).backward()
        optimizer.step()
    assert h_ap() > before + 0.05


@pytest.mark.parametrize("name", NAMES)
def test_scalar_with_finite_gradient(name):
    features, labels = toy()
    embeddings = F.normalize(features, dim=1).requires_grad_()
    loss = build(name, labels, dim=16)
    value = loss(embeddings, labels)
    value.backward()
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert embeddings.grad.isfinite().all()
    assert embeddings.grad.abs().sum() > 0
    assert all(proxies.grad is not None for proxies in loss.proxy_parameters())


@pytest.mark.parametrize("name", CERTAIN)
def test_order_of_the_batch_plays_no_part(name):
    features, labels = toy()
    embeddings = F.normalize(features, dim=1).double()
    loss = build(name, labels, dim=16)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss(embeddings[order], labels[order]), loss(embeddings, labels))


@pytest.mark.parametrize("name", NAMES)
def test_no_positives_gives_a_zero_that_back_propagates(name):
    labels = torch.tensor([[0, 0], [1, 1], [2, 2]])
    embeddings = F.normalize(
        torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), dim=1
    ).requires_grad_()
    value = build(name, labels, dim=4)(embeddings, labels)
    value.backward()
    assert embeddings.grad.isfinite().all()
    if name in RANKING and name not in REPELLING:
        assert value == 0
        assert (embeddings.grad == 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("case", ["one class", "duplicates", "unknown", "all unknown"])
def test_small_and_degenerate_batches(name, items, case):
    tree = torch.tensor([[0, 0], [0, 1], [1, 2]])
    labels = torch.tensor([[0, 0], [0, 0]])[:items]
    embeddings = F.normalize(torch.randn(items, 4, generator=torch.Generator().manual_seed(2)), dim=1)
    if case == "duplicates":
        embeddings = embeddings[:1].expand(items, 4).clone()
    elif case == "unknown":
        labels = torch.tensor([[0, -1], [0, 0]])[:items]
    elif case == "all unknown":
        labels = torch.full((items, 2), -1)
    embeddings.requires_grad_()
    value = build(name, tree, dim=4)(embeddings, labels)
    value.backward()
    assert value.isfinite()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_collapsed_batch(name):
    """All embeddings equal: every score is a tie, and everything stays finite."""
    _, labels = toy(per_class=2)
    embeddings = F.normalize(torch.ones(len(labels), 4), dim=1).requires_grad_()
    value = build(name, labels, dim=4)(embeddings, labels)
    value.backward()
    assert value.isfinite()
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name in RANKING if not name.startswith("happier")])
def test_unknown_below_a_level_matches_down_to_what_is_known(name):
    """An unknown finest class matches no other, not even another unknown."""
    features, labels = toy(per_class=3)
    embeddings = F.normalize(features, dim=1).double()
    loss = build(name, labels, dim=16)
    hidden, distinct = labels.clone(), labels.clone()
    rows = torch.tensor([0, 4, 9, 13])
    hidden[rows, 1] = -1
    distinct[rows, 1] = 100 + torch.arange(4)
    torch.testing.assert_close(loss(embeddings, hidden), loss(embeddings, distinct))


@pytest.mark.parametrize("name", CERTAIN)
def test_the_batch_as_reference_set(name):
    """The same tensor is the batch; a copy with positions is too; a copy without keeps each query in."""
    features, labels = toy(per_class=3)
    embeddings = F.normalize(features, dim=1).double()
    loss = build(name, labels, dim=16)
    alone = loss(embeddings, labels)
    torch.testing.assert_close(loss(embeddings, labels, embeddings, labels), alone)
    places = torch.arange(len(labels))
    copied = loss(embeddings, labels, embeddings.clone(), labels.clone(), query_positions=places)
    torch.testing.assert_close(copied, alone)


@pytest.mark.parametrize("name", CERTAIN)
def test_call_of_pytorch_metric_learning(name):
    features, labels = toy(per_class=3)
    embeddings = F.normalize(features, dim=1).double()
    others, other_labels = embeddings[::2].clone(), labels[::2].clone()
    loss = build(name, labels, dim=16)
    expected = loss(embeddings, labels, others, other_labels)
    by_name = loss(embeddings, labels, indices_tuple=None, ref_emb=others, ref_labels=other_labels)
    torch.testing.assert_close(by_name, expected)
    torch.testing.assert_close(loss(embeddings, labels, None, others, other_labels), expected)
    if "triplet" in name:
        return
    everything = torch.ones(len(labels), len(labels)).fill_diagonal_(0).nonzero(as_tuple=True)
    torch.testing.assert_close(loss(embeddings, labels, (*everything, *everything)), loss(embeddings, labels))


@pytest.mark.parametrize("name", RANKING)
def test_mined_pairs_are_the_only_ones_seen(name):
    features, labels = toy(per_class=3)
    embeddings = F.normalize(features, dim=1).double()
    loss = build(name, labels, dim=16, **({"weight": 0.0} if name.startswith("happier") else {}))
    first, second = torch.cartesian_prod(torch.arange(27), torch.arange(20)).T
    apart = first != second
    pairs = (first[apart], second[apart])
    seen = loss(embeddings, labels, indices_tuple=(*pairs, *pairs))
    places = torch.where(torch.arange(27) < 20, torch.arange(27), -1)
    expected = loss(embeddings, labels, embeddings[:20], labels[:20], query_positions=places)
    torch.testing.assert_close(seen, expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(name, dtype):
    features, labels = toy(per_class=3)
    embeddings = F.normalize(features, dim=1).to(dtype)
    loss = build(name, labels, dim=16)
    torch.manual_seed(1)
    expected = loss(embeddings.float(), labels)
    torch.manual_seed(1)
    half = embeddings.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(half, labels)
    value.backward()
    assert value.dtype == torch.float32
    assert half.grad.dtype == dtype
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("name", NAMES)
def test_proxies_stay_in_float32(name):
    _, labels = toy(per_class=1)
    loss = build(name, labels, dim=4)
    before = [proxies.detach().clone() for proxies in loss.proxy_parameters()]
    loss.half()
    loss.to(torch.bfloat16)
    for proxies, values in zip(loss.proxy_parameters(), before, strict=True):
        assert proxies.dtype == torch.float32
        assert torch.equal(proxies, values)
    assert {id(p) for p in loss.proxy_parameters()} == {id(p) for p in loss.parameters()}
    loss.double()
    assert all(proxies.dtype == torch.float64 for proxies in loss.proxy_parameters())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RANKING and "triplet" not in name])
def test_class_without_a_proxy(name):
    loss = build(name, torch.tensor([[0, 0], [0, 1]]), dim=4)
    with pytest.raises(InputError, match=r"class number 7 has no proxy: there are 2"):
        loss(torch.eye(4)[:2], torch.tensor([[0, 0], [0, 7]]))
    with pytest.raises(InputError, match=r"5 dimensions, the proxies 4"):
        loss(torch.eye(5)[:2], torch.tensor([[0, 0], [0, 1]]))


@pytest.mark.parametrize("name", NAMES)
def test_state_survives_a_round_trip(name):
    features, labels = toy(per_class=2)
    embeddings = F.normalize(features, dim=1)
    loss, other = build(name, labels, dim=16), build_loss(name, taxonomy=Taxonomy.from_labels(labels), dim=16)
    other.load_state_dict(loss.state_dict())
    if name in CERTAIN:
        assert torch.equal(loss(embeddings, labels), other(embeddings, labels))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (torch.eye(3)[0], torch.tensor([0, 1, 2])),
            r"embeddings must be a float tensor \[items, dimensions\]",
        ),
        ((torch.eye(3).long(), torch.tensor([0, 1, 2])), "embeddings must be a float tensor"),
        ((torch.eye(3), torch.tensor([0.0, 1, 2])), "labels must be integers"),
        ((torch.eye(3), torch.tensor([0, 1])), "with 3 rows as embeddings"),
        ((torch.eye(3), torch.tensor([0, 1, 2]), torch.eye(3)), "without ref_labels"),
        ((torch.eye(3), torch.tensor([0, 1, 2]), torch.eye(4), torch.arange(4)), "they must agree"),
        ((torch.eye(3), torch.tensor([0, 1, 2]), None, torch.tensor([0, 1, 3])), "without ref_embeddings"),
        ((torch.eye(3), torch.tensor([0, 1, 2]), (torch.tensor([0]),)), "a triplet or two pairs"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        happier.losses.HAPLoss()(*arguments)


def test_not_a_number_shows():
    """A model that diverged gives NaN, not a plausible loss."""
    labels = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]])
    embeddings = torch.eye(4)
    embeddings[1, 1] = torch.nan
    for engine in ("kernel", "torch"):
        for name in ("hap", "hap_sigmoid", "smooth_ap", "sup_ndcg"):
            assert build(name, labels, dim=4, engine=engine)(embeddings, labels).isnan()
    with pytest.raises(InputError, match="must be a float tensor, got ndarray"):
        happier.losses.HAPLoss()(embeddings.numpy(), labels)


def test_light_imports():
    """The losses need torch, numpy and numba alone; only triplets ask for more, when they are made."""
    script = """
        import sys
        for name in ("pytorch_metric_learning", "pandas", "timm", "lightning", "torchvision", "faiss"):
            sys.modules[name] = None
        import torch
        from happier.errors import MissingExtraError
        from happier.losses import HAPLoss, TripletLoss
        HAPLoss()(torch.eye(2), torch.tensor([0, 0]))
        try:
            TripletLoss()
        except MissingExtraError as error:
            assert "happier-retrieval[train]" in str(error)
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_every_loss_has_a_name():
    public = [getattr(happier.losses, name) for name in happier.losses.__all__]
    classes = {entry for entry in public if isinstance(entry, type) and issubclass(entry, RetrievalLoss)}
    labels = torch.tensor([[0, 0], [0, 1]])
    built = {type(build(name, labels, dim=4)) for name in LOSSES}
    assert classes - {RetrievalLoss, CrossBatchMemory} == built


def test_registry_errors_name_the_nearest():
    labels = torch.tensor([[0, 0], [0, 1]])
    with pytest.raises(OptionError, match=r"unknown loss 'hapier' \(did you mean 'happier'\?\)"):
        build("hapier", labels, dim=4)
    with pytest.raises(OptionError, match=r"'sum_nsm' has no option 'sigam' \(did you mean 'sigma'\?\)"):
        build("sum_nsm", labels, dim=4, sigam=0.1)
    with pytest.raises(OptionError, match=r"has no option 'num_classes'"):
        build("nsm", labels, dim=4, num_classes=5)


@pytest.mark.parametrize("name", NAMES)
def test_an_option_of_the_wrong_type_is_refused(name):
    """Configurations bring words: ``loss.hrank=none`` must not train as if it were true."""
    labels = torch.tensor([[0, 0], [0, 1], [1, 2]])
    for option in LOSSES[name].options:
        for value in ("a word", float("nan"), [], ["a", "b"]):
            with pytest.raises(OptionError, match=option):
                build(name, labels, dim=4, **{option: value})
        build(name, labels, dim=4, **{option: LOSSES[name].options[option]})


def test_options_list_the_defaults_in_force():
    labels = torch.tensor([[0, 0], [0, 1], [1, 2]])
    for name in LOSSES:
        options = LOSSES[name].options
        assert not {"taxonomy", "num_classes", "dim"} & set(options)
        build(name, labels, dim=4, **options)
    assert LOSSES["happier_f"].options["alpha"] == 5.0
    assert (LOSSES["happier_s"].options["surrogate"], LOSSES["happier_s"].options["tau"]) == ("sigmoid", 0.05)
    assert LOSSES["triplet_dw"].options["mining"] == "distance"
    loss = build("sum_nsm", labels, dim=4, weights=(0.25, 0.75))
    assert isinstance(loss, SumOverLevels)
    assert loss.weights == (0.25, 0.75)


@pytest.mark.parametrize("module", [m.name for m in pkgutil.iter_modules(happier.losses.__path__)])
def test_examples_of_the_docstrings(module):
    results = doctest.testmod(importlib.import_module(f"happier.losses.{module}"))
    assert results.failed == 0


def test_every_public_class_explains_itself():
    for name in happier.losses.__all__:
        entry = getattr(happier.losses, name)
        if isinstance(entry, type) and issubclass(entry, RetrievalLoss) and entry is not RetrievalLoss:
            for part in ("Relations:", "Shapes:", "Reference:", ">>>", " = "):
                assert part in entry.__doc__, f"{name} lacks {part!r}"
