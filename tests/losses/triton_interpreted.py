"""Compares the Triton kernels, run by Triton's interpreter, with loops over scalars; a line for each case.

TRITON_INTERPRET=1 python tests/losses/triton_interpreted.py
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

from happier.losses import (
    GradedHAPLoss,
    HAPLoss,
    ROADMAPLoss,
    SigmoidHAPLoss,
    SmoothAPLoss,
    StepSurrogate,
    SupNDCGLoss,
    SupRecallLoss,
    triton_kernel,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference, batches = load("reference"), load("conftest")
# Blocks that divide no size here, yet several of them.
triton_kernel.BLOCK_POSITIVES, triton_kernel.BLOCK_ITEMS = 8, 16


def problem(seed, depth, *, items=21, ties=False, unknown=0.0):
    """Three queries, the second of which is also the fourth item."""
    others, other_labels = batches._batch(seed, items=items, depth=depth, unknown=unknown)
    queries, labels = batches._batch(seed + 50, items=3, depth=depth)
    if ties:
        others, queries = (2 * others).round() / 2, queries.round()
    return queries, labels, others, other_labels, torch.tensor([-1, 3, -1])


def compare(name, loss, slow, case, dtype=torch.float32):
    queries, labels, others, other_labels, positions = case
    queries, others = queries.to(dtype).double(), others.to(dtype).double()
    rows = reference.level_rows(
        labels.tolist(), other_labels.tolist(), same=False, positions=positions.tolist()
    )
    one, other = queries.to(dtype).requires_grad_(), others.to(dtype).requires_grad_()
    value = loss(one, labels, other, other_labels, query_positions=positions)
    value.backward()
    slow_one, slow_other = queries.clone().requires_grad_(), others.clone().requires_grad_()
    expected = slow(slow_one @ slow_other.T, rows)
    expected.backward()
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-5)
    rough = 1e-3 if dtype == torch.float32 else 8e-3  # gradients have the type of the embeddings
    torch.testing.assert_close(one.grad.double(), slow_one.grad, rtol=rough, atol=1e-4)
    torch.testing.assert_close(other.grad.double(), slow_other.grad, rtol=rough, atol=1e-4)
    print(name, "same", flush=True)


def step(p=StepSurrogate()):  # noqa: B008
    return lambda s, levels, rel, k: reference.surrogate_ranks(s, levels, rel, k, p)


def hap(depth, ranks):
    return lambda scores, rows: reference.hap_loss(scores, rows, depth, reference.eq4(), ranks)


def fine(depth, slow):
    return lambda scores, rows: slow(scores, reference.binary(rows, depth))


def sigmoid(s, levels, rel, k):
    return reference.sigmoid_ranks(s, levels, rel, k, 0.05)


def ndcg(scores, rows):
    return reference.ndcg_loss(scores, rows, 3, StepSurrogate())


def recall(scores, rows):
    return reference.recall_loss(scores, rows, StepSurrogate(), (1, 2, 5), 0.7)


def main():
    triton = {"engine": "triton"}
    for depth in (1, 2, 3, 7):
        compare(f"H-AP {depth}", HAPLoss(**triton), hap(depth, step()), problem(depth, depth))
    special = {"ties": {"ties": True}, "unknown": {"unknown": 0.4}, "one block": {"items": 16}}
    for name, options in special.items():
        compare(f"H-AP {name}", HAPLoss(**triton), hap(2, step()), problem(7, 2, **options))
    other = StepSurrogate(tau=0.1, rho=7.0, delta=0.2, start=0.7, offset=2.0, gamma=2.0, nu=3.0, mu=0.25)
    compare("other", HAPLoss(surrogate=other, **triton), hap(2, step(other)), problem(8, 2))
    authors = StepSurrogate(offset=1.44, hrank=False)
    compare("authors", HAPLoss(preset="authors", **triton), hap(2, step(authors)), problem(9, 2))
    compare("sigmoid", SigmoidHAPLoss(tau=0.05, **triton), hap(3, sigmoid), problem(10, 3))
    compare("Smooth-AP", SmoothAPLoss(tau=0.05, **triton), fine(2, hap(1, sigmoid)), problem(11, 2))
    compare("SupAP", ROADMAPLoss(weight=0.0, **triton), fine(2, hap(1, step())), problem(12, 2))
    compare("NDCG", SupNDCGLoss(**triton), ndcg, problem(13, 3))
    compare("recall", SupRecallLoss(ks=(1, 2, 5), temperature=0.7, **triton), fine(2, recall), problem(14, 2))

    for dtype in (torch.bfloat16, torch.float16):
        compare(str(dtype), HAPLoss(**triton), hap(2, step()), problem(15, 2), dtype)

    embeddings, labels = batches._batch(16, items=19, depth=3)
    rows = reference.level_rows(labels.tolist(), labels.tolist(), same=True)
    batch = embeddings.float().requires_grad_()
    value = HAPLoss(**triton)(batch, labels)
    value.backward()
    slow = embeddings.clone().requires_grad_()
    expected = hap(3, step())(slow @ slow.T, rows)
    expected.backward()
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(batch.grad.double(), slow.grad, rtol=1e-3, atol=1e-4)
    print("the batch itself same")

    # Any graded relevance: the CPU's kernel is the reference here, which other tests compare with loops.
    relevance = torch.rand(19, 19, generator=torch.Generator().manual_seed(0)).mul(4).round()
    batch, slow = (embeddings.float().requires_grad_() for _ in range(2))
    value, expected = GradedHAPLoss(**triton)(batch, relevance), GradedHAPLoss()(slow, relevance)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(batch.grad, slow.grad, rtol=1e-3, atol=1e-4)
    print("graded same")

    lonely = torch.eye(4).requires_grad_()
    value = HAPLoss(**triton)(lonely, torch.arange(4))
    value.backward()
    assert value == 0
    assert (lonely.grad == 0).all()
    print("no positives same")


main()
