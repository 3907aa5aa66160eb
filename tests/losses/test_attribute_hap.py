"""The loss by attributes is the graded one with Jaccard's relevance."""

from __future__ import annotations

import pytest
import torch

from happier import Taxonomy, jaccard
from happier.errors import InputError
from happier.losses import (
    AttributeHAPLoss,
    CrossBatchMemory,
    GradedHAPLoss,
    SigmoidSurrogate,
    build_loss,
)
from happier.losses.registry import takes_attributes


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(20, 6, generator=generator, dtype=torch.float64))
    attributes = (torch.rand(20, 5, generator=generator) < 0.4).to(torch.uint8)
    attributes[3] = 0  # nothing is known
    return vectors, attributes


@pytest.mark.parametrize("engine", ["kernel", "torch"])
@pytest.mark.parametrize("surrogate", [None, SigmoidSurrogate(0.1)])
def test_equals_the_graded_loss(batch, engine, surrogate):
    vectors, attributes = batch
    options = {"engine": engine, "surrogate": surrogate}
    expected = GradedHAPLoss(**options)(vectors, jaccard(attributes))
    assert AttributeHAPLoss(**options)(vectors, attributes) == expected
    assert expected > 0


def test_against_references(batch):
    vectors, attributes = batch
    own = torch.arange(8)
    expected = GradedHAPLoss()(vectors[:8], jaccard(attributes[:8], attributes), vectors, query_positions=own)
    loss = AttributeHAPLoss()(vectors[:8], attributes[:8], vectors, attributes, query_positions=own)
    assert loss == expected


def test_a_memory_keeps_attributes(batch):
    vectors, attributes = batch
    memory = CrossBatchMemory(AttributeHAPLoss(), size=12)
    memory(vectors[8:], attributes[8:])
    found = memory(vectors[:8], attributes[:8])
    own = torch.arange(8)
    expected = AttributeHAPLoss()(vectors[:8], attributes[:8], vectors, attributes, query_positions=own)
    torch.testing.assert_close(found, expected)


def test_without_any_attribute_nothing_is_learnt(batch):
    vectors = batch[0].requires_grad_()
    value = AttributeHAPLoss()(vectors, torch.zeros(20, 5, dtype=torch.uint8))
    value.backward()
    assert value == 0
    assert (vectors.grad == 0).all()


def test_by_name():
    assert takes_attributes("hap_attributes")
    assert not takes_attributes("happier")
    tree = Taxonomy.from_labels([[0], [1]])
    assert isinstance(build_loss("hap_attributes", taxonomy=tree, dim=4), AttributeHAPLoss)


def test_pairs_are_not_mined(batch):
    pairs = (torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(InputError, match="all pairs: call it without indices_tuple"):
        AttributeHAPLoss()(*batch, indices_tuple=(*pairs, *pairs))
