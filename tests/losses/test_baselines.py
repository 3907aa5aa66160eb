"""Each baseline against its formula, and against pytorch-metric-learning where that has it."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners
from pytorch_metric_learning.utils import loss_and_miner_utils

from happier import Taxonomy
from happier.errors import InputError, OptionError
from happier.losses import (
    ArcFaceLoss,
    BlackboxAPLoss,
    CosFaceLoss,
    CSLLoss,
    FastAPLoss,
    HAPLoss,
    HiMulConLoss,
    MultiSimilarityLoss,
    NormSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyNCAPPLoss,
    ROADMAPLoss,
    SigmoidHAPLoss,
    SmoothAPLoss,
    StepSurrogate,
    SumOverLevels,
    SupNDCGLoss,
    SupRecallLoss,
    TripletLoss,
    norm_softmax,
)

ENGINES = ("kernel", "torch")


def gradient_of(function, embeddings):
    leaf = embeddings.detach().clone().requires_grad_()
    value = function(leaf)
    value.backward()
    return value.detach(), leaf.grad


def assert_equal_with_gradient(got, expected, embeddings):
    for a, b in zip(gradient_of(got, embeddings), gradient_of(expected, embeddings), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.fixture
def batch(make_batch):
    return make_batch(11, items=14, depth=2, branching=3, unknown=0.15)


def rows_of(reference, labels, **options):
    return reference.level_rows(labels.tolist(), labels.tolist(), same=True, **options)


@pytest.mark.parametrize("engine", ENGINES)
def test_smooth_ap(reference, batch, engine):
    embeddings, labels = batch
    rows = reference.binary(rows_of(reference, labels), 2)

    def slow(v):
        ranks = lambda s, levels, rel, k: reference.sigmoid_ranks(s, levels, rel, k, 0.01)  # noqa: E731
        return reference.hap_loss(v @ v.T, rows, 1, reference.constant([1.0]), ranks)

    assert_equal_with_gradient(lambda v: SmoothAPLoss(engine=engine)(v, labels), slow, embeddings)


def test_smooth_ap_equals_pytorch_metric_learning():
    """Its form leaves the query in, and wants classes of equal size in a row."""
    generator = torch.Generator().manual_seed(0)
    embeddings = F.normalize(torch.randn(16, 6, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.arange(4).repeat_interleave(4)
    ours = SmoothAPLoss(include_query=True)(embeddings, labels)
    theirs = pml.SmoothAPLoss(temperature=0.01)(embeddings, labels)
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-5, atol=1e-6)


def test_one_level_of_the_hierarchical_losses_is_average_precision(batch):
    embeddings, labels = batch
    fine = labels[:, 0] * 3 + labels[:, 1].clamp(min=0)
    torch.testing.assert_close(SigmoidHAPLoss()(embeddings, fine), SmoothAPLoss()(embeddings, fine))
    torch.testing.assert_close(HAPLoss()(embeddings, fine), ROADMAPLoss(weight=0.0)(embeddings, fine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("weights", [(0.1, None), (1.0, 1.0)])
def test_roadmap(reference, batch, engine, weights):
    embeddings, labels = batch
    weight, ap_weight = weights
    rows = reference.binary(rows_of(reference, labels), 2)

    def slow(v):
        scores = v @ v.T
        ranks = lambda s, levels, rel, k: reference.surrogate_ranks(s, levels, rel, k, StepSurrogate())  # noqa: E731
        ap = reference.hap_loss(scores, rows, 1, reference.constant([1.0]), ranks)
        far, near = [], []
        for i, row in enumerate(rows):
            for j, level in enumerate(row):
                if level == 1 and scores[i, j] < 0.9:
                    far.append(0.9 - scores[i, j])
                if level == 0 and scores[i, j] > 0.6:
                    near.append(scores[i, j] - 0.6)
        calibration = sum(far) / max(len(far), 1) + sum(near) / max(len(near), 1)
        return (1 - weight if ap_weight is None else ap_weight) * ap + weight * calibration

    loss = ROADMAPLoss(weight=weight, ap_weight=ap_weight, engine=engine)
    assert_equal_with_gradient(lambda v: loss(v, labels), slow, embeddings)


def test_calibration_equals_the_contrastive_loss(batch):
    embeddings, labels = batch
    labels = labels[:, 0]
    from pytorch_metric_learning.distances import CosineSimilarity

    contrastive = pml.ContrastiveLoss(pos_margin=0.9, neg_margin=0.6, distance=CosineSimilarity())
    ours = ROADMAPLoss(weight=1.0, ap_weight=0.0)(embeddings, labels)
    torch.testing.assert_close(ours, contrastive(embeddings, labels), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_sup_recall(reference, batch, engine):
    embeddings, labels = batch
    rows = reference.binary(rows_of(reference, labels), 2)
    loss = SupRecallLoss(ks=(1, 2, 5), temperature=0.7, engine=engine)
    slow = lambda v: reference.recall_loss(v @ v.T, rows, StepSurrogate(), (1, 2, 5), 0.7)  # noqa: E731
    assert_equal_with_gradient(lambda v: loss(v, labels), slow, embeddings)


@pytest.mark.parametrize("engine", ENGINES)
def test_sup_ndcg(reference, batch, engine):
    embeddings, labels = batch
    rows = rows_of(reference, labels)
    slow = lambda v: reference.ndcg_loss(v @ v.T, rows, 2, StepSurrogate())  # noqa: E731
    assert_equal_with_gradient(lambda v: SupNDCGLoss(engine=engine)(v, labels), slow, embeddings)


def test_norm_softmax(batch):
    embeddings, _ = batch
    classes = torch.arange(len(embeddings)) % 4
    loss = NormSoftmaxLoss(4, 5, sigma=0.1)
    other = pml.NormalizedSoftmaxLoss(4, 5, temperature=0.1)
    other.W.data = loss.proxies.weight.detach().T.double().clone()
    torch.testing.assert_close(loss(embeddings, classes), other(embeddings, classes))
    bound = 1 / math.sqrt(5)
    assert loss.proxies.weight.abs().max() <= bound
    some = torch.where(classes == 1, -1, classes)
    known = classes != 1
    torch.testing.assert_close(loss(embeddings, some), loss(embeddings[known], classes[known]))


def test_proxy_nca(batch):
    embeddings, _ = batch
    classes = torch.arange(len(embeddings)) % 4
    loss = ProxyNCAPPLoss(4, 5)
    proxies = F.normalize(loss.proxies.weight.double(), dim=1)
    distances = torch.cdist(3 * embeddings, 3 * proxies).square()
    expected = -(-distances).log_softmax(1)[torch.arange(len(classes)), classes].mean()
    torch.testing.assert_close(loss(embeddings, classes), expected)
    same = NormSoftmaxLoss(4, 5, sigma=1 / 18)
    same.load_state_dict(loss.state_dict())
    torch.testing.assert_close(same(embeddings, classes), expected)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_csl(make_batch, depth):
    embeddings, labels = make_batch(3, depth=depth, items=20)
    taxonomy = Taxonomy.from_labels(labels)
    codes = torch.from_numpy(taxonomy.codes)
    loss = CSLLoss(taxonomy, 5)
    proxies = F.normalize(loss.proxies.weight.double(), dim=1).detach()
    paths = {int(row[-1]): row.tolist() for row in codes}
    total = 0.0
    for level in range(depth):
        for vector, row in zip(embeddings, codes.tolist(), strict=True):
            others = [
                math.exp(32 * float(vector @ proxies[c]))
                for c, path in paths.items()
                if path[level] != row[level]
            ]
            own = 32 * float(vector @ proxies[row[-1]])
            if others:
                hinge = math.log(sum(others)) - own + 32 * loss.margins[level]
                total += math.log1p(math.exp(hinge)) / len(codes) if hinge < 500 else hinge / len(codes)
    assert float(loss(embeddings, codes).detach()) == pytest.approx(total, rel=1e-9)


def test_csl_margins_are_coarse_to_fine():
    margins = {2: (0.45, 0.25), 3: (0.45, 0.35, 0.25), 7: (0.75, 0.65, 0.55, 0.45, 0.35, 0.25, 0.15)}
    for depth, expected in margins.items():
        taxonomy = Taxonomy.from_labels([[0] * depth, [1] * depth])
        assert CSLLoss(taxonomy, 4).margins == expected
    with pytest.raises(OptionError, match="one for each of the 2 levels"):
        CSLLoss(Taxonomy.from_labels([[0, 0]]), 4, margins=[0.1])
    with pytest.raises(InputError, match="labels have 1 levels, the taxonomy of this loss 2"):
        CSLLoss(Taxonomy.from_labels([[0, 0]]), 4)(torch.eye(4)[:1], torch.tensor([0]))


@pytest.mark.parametrize("constraint", [True, False])
def test_himulcon(reference, batch, constraint):
    embeddings, labels = batch
    rows = rows_of(reference, labels)

    def slow(v):
        scores = v @ v.T / 0.1
        total = 0.0
        for level in (2, 1):
            means = []
            for i, row in enumerate(rows):
                others = torch.stack([scores[i, j] for j in range(len(row)) if j != i]).logsumexp(0)
                loss = {j: others - scores[i, j] for j in range(len(row)) if j != i}
                finer = [loss[j] for j in loss if row[j] > level]
                floor = max(finer) if finer and constraint else 0.0
                positive = [loss[j] for j in loss if row[j] >= level]
                if positive:
                    means.append(
                        sum(max(entry, floor) if finer and constraint else entry for entry in positive)
                        / len(positive)
                    )
            total = total + math.exp(1 / (2 - level + 1)) / 2 * sum(means) / len(means)
        return total

    loss = HiMulConLoss(constraint=constraint)
    assert_equal_with_gradient(lambda v: loss(v, labels), slow, embeddings)


def test_himulcon_with_one_level_is_the_supervised_contrastive_loss(batch):
    embeddings, labels = batch
    expected = math.e * pml.SupConLoss(temperature=0.1)(embeddings, labels[:, 0])
    torch.testing.assert_close(HiMulConLoss()(embeddings, labels[:, 0]), expected, rtol=1e-6, atol=1e-6)


def test_triplets_are_those_of_pytorch_metric_learning(batch):
    embeddings, labels = batch
    fine = torch.unique(labels, dim=0, return_inverse=True)[1]
    unknown = labels[:, 1] == -1
    fine[unknown] = 100 + torch.arange(int(unknown.sum()))
    triplets = miners.TripletMarginMiner(margin=0.3, type_of_triplets="semihard")(embeddings, fine)
    expected = pml.TripletMarginLoss(margin=0.3)(embeddings, fine, triplets)
    torch.testing.assert_close(TripletLoss(margin=0.3)(embeddings, labels), expected)
    torch.testing.assert_close(TripletLoss(margin=0.3)(embeddings, labels, triplets), expected)
    everything = loss_and_miner_utils.get_all_triplets_indices(fine)
    expected = pml.TripletMarginLoss(margin=0.3)(embeddings, fine, everything)
    torch.testing.assert_close(TripletLoss(margin=0.3, mining="all")(embeddings, labels), expected)
    with pytest.raises(OptionError, match="did you mean 'semihard'"):
        TripletLoss(mining="semi-hard")


def test_sum_over_levels(batch):
    embeddings, labels = batch
    loss = SumOverLevels(lambda classes: SmoothAPLoss(), (3, 9), weights=(0.3, 0.7))
    expected = 0.3 * SmoothAPLoss()(embeddings, labels[:, :1]) + 0.7 * SmoothAPLoss()(embeddings, labels)
    torch.testing.assert_close(loss(embeddings, labels), expected)
    parts = [SmoothAPLoss()(embeddings, labels[:, :1]), SmoothAPLoss()(embeddings, labels)]
    for reduction, whole in (("mean", sum(parts) / 2), ("sum", sum(parts))):
        loss = SumOverLevels(lambda classes: SmoothAPLoss(), (3, 9), reduction=reduction)
        torch.testing.assert_close(loss(embeddings, labels), whole)
    with pytest.raises(OptionError, match="mean or sum, got 'max'"):
        SumOverLevels(lambda classes: SmoothAPLoss(), (3, 9), reduction="max")
    with pytest.raises(OptionError, match="one number of 0 or more for each of the 2 levels"):
        SumOverLevels(lambda classes: SmoothAPLoss(), (3, 9), weights=(1.0,))
    with pytest.raises(OptionError, match="labels have 1 levels, this loss 2"):
        loss(embeddings, labels[:, 0])


def test_a_sum_over_levels_is_a_mean_to_adam_and_not_to_sgd(batch):
    def step(optimizer, reduction):
        vectors = torch.nn.Parameter(batch[0].detach().clone())
        loss = SumOverLevels(lambda classes: SmoothAPLoss(tau=0.1), (3, 9), reduction=reduction)
        loss(torch.nn.functional.normalize(vectors), batch[1]).backward()
        before = vectors.detach().clone()
        optimizer([vectors]).step()
        return vectors.detach() - before

    for name, factor in (("Adam", 1.0), ("SGD", 2.0)):
        optimizer = partial(getattr(torch.optim, name), lr=0.1, **({"eps": 1e-30} if name == "Adam" else {}))
        torch.testing.assert_close(
            step(optimizer, "sum"), factor * step(optimizer, "mean"), rtol=1e-4, atol=1e-9
        )


def test_smooth_ap_takes_whole_paths():
    """A finest id that recurs under another parent is another class."""
    embeddings = F.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    recurring = torch.tensor([[0, 5], [1, 5], [0, 5], [1, 5]])
    distinct = torch.tensor([[0, 5], [1, 6], [0, 5], [1, 6]])
    for loss in (SmoothAPLoss(), ROADMAPLoss(), TripletLoss(mining="all"), SupRecallLoss()):
        assert torch.equal(loss(embeddings, recurring), loss(embeddings, distinct))


def known_classes(labels):
    """Items whose finest class is known, and their classes."""
    known = labels[:, -1] != -1
    return known, labels[known, -1]


def slow_margin_softmax(loss, margined):
    def slow(v, labels):
        proxies = F.normalize(loss.proxies.weight.double(), dim=1)
        total, count = 0.0, 0
        for vector, row in zip(v, labels.tolist(), strict=True):
            if row[-1] != -1:
                logits = [vector @ proxy for proxy in proxies]
                logits[row[-1]] = margined(logits[row[-1]])
                logits = loss.scale * torch.stack(logits)
                total, count = total + logits.logsumexp(0) - logits[row[-1]], count + 1
        return total / count

    return slow


def wider_angle(margin):
    def margined(cosine):
        angle = torch.acos(cosine)
        return torch.cos(angle + margin) if angle <= math.pi - margin else cosine - margin * math.sin(margin)

    return margined


@pytest.mark.parametrize("margin", [0.5, 2.5])
def test_arcface(batch, margin):
    """With the wide margin most items are beyond the place where the cosine stops to fall."""
    embeddings, labels = batch
    loss = ArcFaceLoss(9, embeddings.shape[1], margin=margin, scale=8.0)
    slow = slow_margin_softmax(loss, wider_angle(margin))
    assert_equal_with_gradient(lambda v: loss(v, labels), lambda v: slow(v, labels), embeddings)
    theirs = pml.ArcFaceLoss(9, embeddings.shape[1], margin=math.degrees(margin), scale=8.0)
    theirs.W.data = loss.proxies.weight.data.T.double()
    known, classes = known_classes(labels)
    torch.testing.assert_close(loss(embeddings, labels), theirs(embeddings[known], classes))
    with pytest.raises(OptionError, match="below pi"):
        ArcFaceLoss(9, 4, margin=28.6)


def test_cosface(batch):
    embeddings, labels = batch
    loss = CosFaceLoss(9, embeddings.shape[1], scale=8.0)
    slow = slow_margin_softmax(loss, lambda cosine: cosine - 0.35)
    assert_equal_with_gradient(lambda v: loss(v, labels), lambda v: slow(v, labels), embeddings)
    theirs = pml.CosFaceLoss(9, embeddings.shape[1], scale=8.0)
    theirs.W.data = loss.proxies.weight.data.T.double()
    known, classes = known_classes(labels)
    torch.testing.assert_close(loss(embeddings, labels), theirs(embeddings[known], classes))


def test_proxy_anchor(batch):
    embeddings, labels = batch
    loss = ProxyAnchorLoss(9, embeddings.shape[1])
    known, classes = known_classes(labels)

    def slow(v):
        proxies, pulled, pushed = F.normalize(loss.proxies.weight.double(), dim=1), [], []
        for number, proxy in enumerate(proxies):
            own = [vector @ proxy for vector, one in zip(v[known], classes, strict=True) if one == number]
            others = [vector @ proxy for vector, one in zip(v[known], classes, strict=True) if one != number]
            if own:
                pulled.append(torch.log(1 + sum(torch.exp(-32 * (cosine - 0.1)) for cosine in own)))
            pushed.append(torch.log(1 + sum(torch.exp(32 * (cosine + 0.1)) for cosine in others)))
        return sum(pulled) / len(pulled) + sum(pushed) / len(proxies)

    assert_equal_with_gradient(lambda v: loss(v, labels), slow, embeddings)
    theirs = pml.ProxyAnchorLoss(9, embeddings.shape[1])
    theirs.proxies.data = loss.proxies.weight.data.double()
    torch.testing.assert_close(loss(embeddings, labels), theirs(embeddings[known], classes))


def test_multi_similarity(reference, batch):
    embeddings, labels = batch
    rows = reference.binary(rows_of(reference, labels), 2)

    def slow(v):
        scores, total = v @ v.T, 0.0
        for i, row in enumerate(rows):
            near = sum(torch.exp(-2 * (scores[i, j] - 0.5)) for j in range(len(row)) if row[j] == 1)
            far = sum(torch.exp(50 * (scores[i, j] - 0.5)) for j in range(len(row)) if row[j] == 0)
            total = total + torch.log(1 + near + 0 * scores[0, 0]) / 2 + torch.log(1 + far) / 50
        return total / len(rows)

    assert_equal_with_gradient(lambda v: MultiSimilarityLoss()(v, labels), slow, embeddings)
    known, _ = known_classes(labels)
    fine = torch.unique(labels[known], dim=0, return_inverse=True)[1]
    expected = pml.MultiSimilarityLoss()(embeddings[known], fine)
    torch.testing.assert_close(MultiSimilarityLoss()(embeddings[known], labels[known]), expected)


@pytest.mark.parametrize("bins", [10, 19])
def test_fast_ap_and_softbin_ap(reference, batch, bins):
    embeddings, labels = batch
    rows = reference.binary(rows_of(reference, labels), 2)

    def slow(v):
        """As Revaud et al. write it: precision of each bin times the recall that it adds."""
        scores, losses = v @ v.T, []
        for i, row in enumerate(rows):
            positives, above, items, ap = row.count(1), 0.0, 0.0, 0.0
            for number in range(bins + 1):
                centre = 1 - 2 * number / bins
                weights = [torch.relu(1 - (score - centre).abs() * bins / 2) for score in scores[i]]
                added = sum(weights[j] for j in range(len(row)) if row[j] == 1)
                above = above + added
                items = items + sum(weights[j] for j in range(len(row)) if row[j] is not None)
                if positives and items > 0:
                    ap = ap + above / items * added / positives
            if positives:
                losses.append(1 - ap)
        return sum(losses) / len(losses)

    assert_equal_with_gradient(lambda v: FastAPLoss(bins=bins)(v, labels), slow, embeddings)
    known, _ = known_classes(labels)
    fine = torch.unique(labels[known], dim=0, return_inverse=True)[1]
    expected = pml.FastAPLoss(num_bins=bins)(embeddings[known], fine)
    torch.testing.assert_close(FastAPLoss(bins=bins)(embeddings[known], labels[known]), expected)
    with pytest.raises(OptionError, match="bins must be a whole number"):
        FastAPLoss(bins=0)


def test_blackbox_ap(reference, batch):
    """The value is the true AP, the gradient that of two rankings, a query at a time."""
    embeddings, labels = batch
    rows = reference.binary(rows_of(reference, labels), 2)
    lam, margin = 4.0, 0.02

    def rank(scores, among):
        return {k: 1 + sum(scores[j] > scores[k] for j in among) for k in among}

    values, gradient = [], torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for i, row in enumerate(rows):
        items = [j for j in range(len(row)) if row[j] is not None]
        own = [j for j in items if row[j] == 1]
        if not own:
            continue
        raw = (embeddings[i] @ embeddings.T).tolist()
        scores = {j: raw[j] + (-margin / 2 if j in own else margin / 2) for j in items}
        ranks, within = rank(scores, items), rank(scores, own)
        values.append(1 - sum(within[k] / ranks[k] for k in own) / len(own))
        moved = {
            j: scores[j] + (lam * within[j] / ranks[j] ** 2 / len(own) if j in own else 0) for j in items
        }
        for j, after in rank(moved, items).items():
            gradient[i, j] = -(ranks[j] - after) / lam
    gradient /= len(values)
    value, got = gradient_of(lambda v: BlackboxAPLoss()(v, labels), embeddings)
    assert float(value) == pytest.approx(sum(values) / len(values), abs=1e-12)
    torch.testing.assert_close(got, gradient @ embeddings + gradient.T @ embeddings)
    assert got.abs().sum() > 0


def test_the_narrow_cross_entropy_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    items, proxies = (torch.randn(rows, 8, generator=generator).bfloat16() for rows in (37, 11))
    classes = torch.arange(37) % 11
    classes[::9] = -1

    def gradients(total):
        ours, theirs = items.clone().requires_grad_(), proxies.clone().requires_grad_()
        value = total(ours, theirs)
        (value / 5).backward()
        return value.detach(), ours.grad.float(), theirs.grad.float()

    found = gradients(lambda ours, theirs: norm_softmax._NarrowCrossEntropy.apply(ours, theirs, classes))
    expected = gradients(
        lambda ours, theirs: F.cross_entropy(
            (ours @ theirs.T).float(), classes, ignore_index=-1, reduction="sum"
        )
    )
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1:], expected[1:], rtol=0.02, atol=0.02)
    assert (found[1][classes == -1] == 0).all()


def test_products_with_proxies_in_bfloat16_are_close_and_their_gradients_float32():
    loss = NormSoftmaxLoss(50, 64, generator=torch.Generator().manual_seed(0))
    embeddings = F.normalize(torch.randn(30, 64, generator=torch.Generator().manual_seed(1)), dim=1)
    labels = torch.arange(30) % 50
    exact, slope = gradient_of(lambda vectors: loss(vectors, labels), embeddings)
    loss.proxies.product = torch.bfloat16
    rounded, rounded_slope = gradient_of(lambda vectors: loss(vectors, labels), embeddings)
    assert rounded.dtype == rounded_slope.dtype == loss.proxies.weight.grad.dtype == torch.float32
    assert rounded != exact
    torch.testing.assert_close(rounded, exact, rtol=1e-2, atol=0)
    assert F.cosine_similarity(rounded_slope, slope).min() > 0.999
