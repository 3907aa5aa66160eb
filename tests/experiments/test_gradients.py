"""How a gradient is spread over pairs."""

import pytest
import torch

from experiments.gradients import SURROGATES, spread

LABELS = torch.tensor([[i // 8, i // 4, i // 2] for i in range(16)])
NAMES = ("group", "subgroup", "item")


@pytest.fixture
def scores():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(16, 6, generator=generator), dim=1)
    return vectors @ vectors.T


@pytest.mark.parametrize("name", SURROGATES)
def test_shares_add_up(name, scores):
    found = spread([(scores, LABELS)], SURROGATES[name], NAMES)
    assert sum(value for key, value in found.items() if "/" in key) == pytest.approx(1, abs=1e-4)
    assert 0 < found["moved"] < 1
    assert found["pulled/item"] > found["pushed/item"]


@pytest.mark.parametrize("name", [name for name in SURROGATES if name.startswith("sigmoid")])
def test_a_sigmoid_pushes_only_what_is_unrelated(name, scores):
    found = spread([(scores, LABELS)], SURROGATES[name], NAMES)
    assert found["pulled/none"] == 0
    assert found["pushed/none"] > 0


def test_batches_are_averaged(scores):
    once = spread([(scores, LABELS)], SURROGATES["sigmoid, τ = 0.05"], NAMES)
    twice = spread([(scores, LABELS), (scores, LABELS)], SURROGATES["sigmoid, τ = 0.05"], NAMES)
    assert twice == pytest.approx(once, abs=1e-4)
