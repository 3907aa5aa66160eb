"""Losses on an accelerator, without one: fake tensors check devices and shapes and refuse to show data."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from happier import Taxonomy
from happier.losses import (
    LOSSES,
    CrossBatchMemory,
    HAPLoss,
    NormSoftmaxLoss,
    ROADMAPLoss,
    SigmoidHAPLoss,
    SmoothAPLoss,
    SupNDCGLoss,
    SupRecallLoss,
    build_loss,
)

TREE = Taxonomy.from_labels([[c // 4, c] for c in range(8)])
# Triplets are mined by another library, which waits for the device.
NAMES = [name for name in LOSSES if "triplet" not in name]
RANKING = [HAPLoss, SigmoidHAPLoss, SmoothAPLoss, ROADMAPLoss, SupNDCGLoss, SupRecallLoss]


def build(name):
    options = {"engine": "torch"} if "engine" in LOSSES[name].options else {}
    return build_loss(name, taxonomy=TREE, dim=6, **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", ["batch", "references", "memory"])
def test_everything_stays_on_the_device(name, case):
    """A tensor of the CPU among those of the device, or a wait for the device, raises.

    The ranking losses compute their gradient in the forward pass; a backward pass needs a real device.
    """
    with FakeTensorMode():
        with torch.device("cuda"):
            loss = build(name)
        embeddings = torch.empty(16, 6, device="cuda", requires_grad=True)
        labels = torch.empty(16, 2, dtype=torch.int64, device="cuda")
        arguments = ()
        if case == "references":
            arguments = (
                torch.empty(9, 6, device="cuda"),
                torch.empty(9, 2, dtype=torch.int64, device="cuda"),
            )
        elif case == "memory":
            loss = CrossBatchMemory(loss, size=20)
            loss(embeddings, labels)
        value = loss(embeddings, labels, *arguments)
        assert value.device == torch.device("cuda", 0)
        assert value.shape == ()
        assert value.requires_grad


def test_labels_on_the_cpu_are_moved():
    with FakeTensorMode():
        embeddings = torch.empty(16, 6, device="cuda", requires_grad=True)
        value = HAPLoss(engine="torch")(embeddings, torch.empty(16, 2, dtype=torch.int64))
        assert value.device.type == "cuda"


def test_the_check_notices_a_wait():
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        int(torch.empty(3, device="cuda").sum())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    with FakeTensorMode():
        embeddings = torch.empty(16, 6, device="cuda", dtype=dtype, requires_grad=True)
        labels = torch.empty(16, 2, dtype=torch.int64, device="cuda")
        value = HAPLoss(engine="torch")(embeddings, labels)
        assert value.dtype == torch.float32
        assert value.requires_grad


@pytest.mark.parametrize("make", RANKING)
def test_compiles_as_one_graph(make, make_batch):
    torch._dynamo.reset()
    embeddings, labels = make_batch(0, items=10, unknown=0.2)
    results = []
    for compiled in (False, True):
        loss = make(engine="torch")
        leaf = embeddings.clone().requires_grad_()
        value = (torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss)(leaf, labels)
        value.backward()
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0])


def test_a_class_without_proxy_raises_in_compiled_code():
    loss = torch.compile(NormSoftmaxLoss(4, 6), fullgraph=True, backend="eager")
    with pytest.raises(RuntimeError, match="a class number has no proxy: there are 4"):
        loss(torch.eye(6), torch.tensor([0, 1, 2, 3, 4, 0]))
