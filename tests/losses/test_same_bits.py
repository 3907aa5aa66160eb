"""The compiled losses round the same wherever their arrays lie in memory, so that a run can be repeated."""

import pytest
import torch

from happier.losses import HAPLoss, SigmoidSurrogate


@pytest.mark.parametrize("items", [6, 16, 24, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("surrogate", [None, SigmoidSurrogate(0.05)], ids=["step", "sigmoid"])
def test_the_gradient_does_not_depend_on_where_arrays_lie(items, dtype, surrogate):
    random = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(items, 32, generator=random, dtype=dtype))
    labels = torch.stack([torch.arange(items) % 2, torch.arange(items) % 4], 1)
    loss = HAPLoss(surrogate=surrogate) if surrogate else HAPLoss()
    seen, held = set(), []
    for _ in range(150):
        # Blocks of all sizes come and go, so that the loss finds its memory elsewhere each time.
        held.append(torch.empty(int(torch.randint(1, 300, (), generator=random))))
        if len(held) > 20:
            held.pop(int(torch.randint(20, (), generator=random)))
        embeddings = vectors.clone().requires_grad_()
        loss(embeddings, labels).backward()
        seen.add(embeddings.grad.numpy().tobytes())
    assert len(seen) == 1
