"""One loss over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def gather_across_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks, in the order of ranks, with a gradient that goes back to every rank.

        forward:   x -> cat(x_1, ..., x_n)
        backward:  g -> own rows of sum_r g_r

    so that under DistributedDataParallel, which averages the gradients of the ranks, n ranks that each
    compute the loss of the joined batch have exactly the gradient of one rank with the joined batch. Ranks
    may have different numbers of rows. Without a process group the tensor comes back as it is.

    Args:
        tensor: ``[B, ...]``; embeddings or labels.

    Returns:
        ``[B_1 + ... + B_n, ...]``, the same on all ranks.

    Relations: `CrossBatchMemory` enlarges the set by earlier batches instead of other ranks' ones.

    >>> import torch
    >>> gather_across_ranks(torch.arange(3)).tolist()
    [0, 1, 2]

    In a training step under DDP::

        loss(gather_across_ranks(embeddings), gather_across_ranks(labels)).backward()
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return tensor
    gathered: torch.Tensor = _Gather.apply(tensor)
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        sizes = _sizes(tensor)
        ctx.start = sum(sizes[: dist.get_rank()])
        ctx.rows = tensor.shape[0]
        # Collectives want equal shapes: pad to the longest, cut afterwards.
        padded = tensor.new_zeros(max(sizes), *tensor.shape[1:])
        padded[: tensor.shape[0]] = tensor
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> torch.Tensor:
        total = outputs[0].contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.start : ctx.start + ctx.rows]


def _sizes(tensor: torch.Tensor) -> list[int]:
    own = torch.tensor([tensor.shape[0]], device=tensor.device)
    sizes = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, own)
    return [int(size) for size in sizes]
