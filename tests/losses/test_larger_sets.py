"""Earlier batches, other ranks, and compiled code around a loss."""

from __future__ import annotations

import textwrap

import pytest
import torch
from processes import run_ranks, script

from happier.errors import InputError, OptionError
from happier.losses import CrossBatchMemory, HAPLoss, HAPPIERLoss, gather_across_ranks


def test_memory_is_a_reference_set(make_batch):
    first, first_labels = make_batch(0, items=10)
    second, second_labels = make_batch(1, items=8)
    memory = CrossBatchMemory(HAPLoss(), size=6)
    torch.testing.assert_close(memory(first, first_labels), HAPLoss()(first, first_labels))
    assert len(memory) == 6
    second.requires_grad_()
    value = memory(second, second_labels)
    (gradient,) = torch.autograd.grad(value, second)
    references = torch.cat([second, first[:6]])
    labels = torch.cat([second_labels, first_labels[:6]])
    expected = HAPLoss()(second, second_labels, references, labels, query_positions=torch.arange(8))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, second)[0])


def test_memory_keeps_the_newest(make_batch):
    memory = CrossBatchMemory(HAPLoss(), size=15)
    batches = [make_batch(seed, items=10) for seed in range(3)]
    for embeddings, labels in batches:
        memory(embeddings.requires_grad_(), labels)
    kept = memory.get_extra_state()["embeddings"]
    assert not kept.requires_grad
    torch.testing.assert_close(kept, torch.cat([batches[2][0], batches[1][0][:5]]).detach())


def test_memory_round_trip_reset_and_evaluation(make_batch):
    embeddings, labels = make_batch(0, items=10)
    memory = CrossBatchMemory(HAPPIERLoss(2, 5), size=7)
    memory(embeddings, labels)
    other = CrossBatchMemory(HAPPIERLoss(2, 5), size=7)
    other.load_state_dict(memory.state_dict())
    assert len(other) == 7
    assert len(memory.proxy_parameters()) == 1
    torch.testing.assert_close(other(embeddings, labels), memory(embeddings, labels))
    memory.eval()
    state = memory.get_extra_state()["embeddings"].clone()
    memory(embeddings.flip(0), labels.flip(0))
    torch.testing.assert_close(memory.get_extra_state()["embeddings"], state)
    memory.reset()
    assert len(memory) == 0
    with pytest.raises(InputError, match="its own reference set"):
        memory(embeddings, labels, embeddings.clone(), labels.clone())
    with pytest.raises(OptionError, match="size must be"):
        CrossBatchMemory(HAPLoss(), size=0)


def test_gather_without_ranks_is_the_tensor_itself():
    tensor = torch.eye(2)
    assert gather_across_ranks(tensor) is tensor


# The joined batch on every rank: 7 and 9 rows, so that sizes differ too.
_RANK = """
    import sys, torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from happier import Taxonomy
    from happier.losses import build_loss, gather_across_ranks

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(16, 6, dtype=torch.float64, generator=generator)
    order = torch.randperm(16, generator=generator)
    labels = torch.stack([torch.arange(16) // 8, torch.arange(16) // 2], 1)[order]
    taxonomy = Taxonomy.from_labels(labels)

    class Step(torch.nn.Module):
        def __init__(self, name):
            super().__init__()
            torch.manual_seed(3)
            self.layer = torch.nn.Linear(6, 4).double()
            self.loss = build_loss(name, taxonomy=taxonomy, dim=4)

        def forward(self, features, labels, gather):
            embeddings = torch.nn.functional.normalize(self.layer(features), dim=1)
            if gather:
                embeddings, labels = gather_across_ranks(embeddings), gather_across_ranks(labels)
            return self.loss(embeddings, labels)

    for name in ("happier", "hap", "sum_smooth_ap", "roadmap", "sup_ndcg", "csl", "triplet"):
        alone = Step(name)
        value = alone(features, labels, False)
        value.backward()
        step = Step(name)
        mine = slice(0, 7) if rank == 0 else slice(7, 16)
        ranks = DistributedDataParallel(step)
        together = ranks(features[mine], labels[mine], True)
        together.backward()
        torch.testing.assert_close(together, value)
        for one, other in zip(alone.parameters(), step.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-6, atol=1e-8)
    dist.destroy_process_group()
    print("same")
"""


@pytest.mark.slow
def test_two_ranks_have_the_gradient_of_one():
    for done in run_ranks(script, textwrap.dedent(_RANK)):
        assert done.code == 0, done.err
        assert "same" in done.out


@pytest.mark.slow
def test_compiled_code_around_the_loss(make_batch):
    embeddings, labels = make_batch(0)
    loss = HAPLoss()
    compiled = torch.compile(lambda v, y: loss(1.0 * v, y), backend="eager")
    torch.testing.assert_close(compiled(embeddings, labels), loss(embeddings, labels))
