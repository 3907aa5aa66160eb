"""The torchmetrics face of `evaluate`."""

import numpy as np
import pytest
import torch
import world

import happier
from happier.errors import InputError
from happier.torchmetrics import HierarchicalRetrieval


def test_batches_equal_the_whole():
    generator = np.random.default_rng(0)
    labels = torch.from_numpy(world.random_labels(generator, 30, 2))
    vectors = torch.from_numpy(world.small_integers(generator, 30))
    metric = HierarchicalRetrieval(ks=(1, 5), level_names=["kind", "item"])
    for batch in torch.arange(30).split(7):
        metric.update(vectors[batch], labels[batch])
    expected = happier.evaluate(vectors, labels, ks=(1, 5), level_names=["kind", "item"]).summary
    found = metric.compute()
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, abs=1e-12, nan_ok=True), name
    metric.reset()
    with pytest.raises(InputError, match="nothing to evaluate"), pytest.warns(UserWarning, match="compute"):
        metric.compute()


def test_repeated_ids_are_kept_once():
    vectors, labels = torch.eye(3), torch.tensor([[0], [0], [1]])
    metric = HierarchicalRetrieval(ks=(1,), metrics=["queries", "AP/1"])
    metric.update(vectors, labels, torch.tensor([5, 6, 7]))
    metric.update(vectors[:2], labels[:2], torch.tensor([5, 6]))
    assert metric.compute()["queries"] == 3


def test_wrong_use_is_refused():
    metric = HierarchicalRetrieval(metrics=["H-AQ"])
    with pytest.raises(InputError, match="one row per item"):
        metric.update(torch.eye(3), torch.zeros(2, 1, dtype=torch.long))
    metric.update(torch.eye(3), torch.zeros(3, dtype=torch.long))
    with pytest.raises(InputError, match="in every update or in none"):
        metric.update(torch.eye(3), torch.zeros(3, 1, dtype=torch.long), torch.arange(3))
    with pytest.raises(InputError, match=r"no such metrics: .*H-AQ"):
        metric.compute()
