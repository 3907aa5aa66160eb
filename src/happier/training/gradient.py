"""One batch -> its gradient, in one pass or two, on one rank or many: the same number each way.

The loss looks at all embeddings of the global batch at once, the network at one image at a time. So the chain
rule is cut at the embeddings E:

    dL/dw = sum_i (dL/dE_i) (dE_i/dw)

The loss gives ``dL/dE`` for the whole batch; each rank pushes its own rows back through its network, whole or
in micro batches that are embedded a second time, now with their graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from happier.losses import gather_across_ranks

__all__ = ["batch_gradient", "seed_everything_at"]


def batch_gradient(
    fabric: Any,
    encoder: Any,
    criterion: nn.Module,
    images: Tensor,
    targets: Tensor,
    *,
    micro_batch: int | None = None,
    seed: int = 0,
    step: int = 0,
) -> float:
    """Add the gradient of the global batch to the weights and the proxies; returns the loss.

    Args:
        fabric: devices, precision, ranks.
        encoder: as set up by `fabric`.
        criterion: the loss; its own parameters get their gradient too.
        images: this rank's part ``[B, 3, H, W]``.
        targets: its labels ``[B, L]``, or attributes ``[B, A]``.
        micro_batch: images held with their graph at a time; None for all in one pass. Exact where a vector
            depends on its own image alone: batch norm must be frozen or absent.
        seed: of dropout and the like, with `step`.
        step: number of the step.
    """
    chunks = [images] if micro_batch is None else list(torch.split(images, micro_batch))

    def embed(number: int) -> Tensor:
        # Both passes must draw the same dropout.
        seed_everything_at(seed, step, fabric.global_rank, number)
        embeddings: Tensor = encoder(chunks[number])
        return embeddings

    with torch.set_grad_enabled(len(chunks) == 1):
        local = torch.cat([embed(number) for number in range(len(chunks))]) if len(chunks) > 1 else embed(0)

    # Every rank has the whole batch, and so the whole loss: the proxies' gradients agree without a reduction.
    everything = gather_across_ranks(local.detach()).requires_grad_()
    loss: Tensor = criterion(everything, gather_across_ranks(targets))
    loss.backward()  # type: ignore[no-untyped-call]
    assert everything.grad is not None
    own = everything.grad[fabric.global_rank * len(local) : (fabric.global_rank + 1) * len(local)]
    # Data-parallel training takes the mean over ranks, the chain rule the sum.
    own = own * fabric.world_size

    if len(chunks) == 1:
        fabric.backward(local, gradient=own)
    else:
        for number, rows in enumerate(torch.split(own, len(chunks[0]))):
            with fabric.no_backward_sync(encoder, enabled=number < len(chunks) - 1):
                fabric.backward(embed(number), gradient=rows)
    return float(loss.detach())


def seed_everything_at(seed: int, step: int, rank: int, part: int) -> None:
    """Seed the network's random draws from these numbers: there is no state to save and restore."""
    mixed = np.random.SeedSequence((seed, step, rank, part)).generate_state(1, np.uint64)[0]
    torch.manual_seed(int(mixed))
