"""Sharding over the ranks of ``torch.distributed``: each takes a range of queries and gets all results."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from happier import distributed as ranks
from happier.errors import InputError


def query_range(queries: int, *, distributed: bool) -> tuple[int, int]:
    """First and one-past-last query of this rank."""
    if not is_active(distributed):
        return 0, queries
    return ranks.shard(queries)


def is_active(distributed: bool) -> bool:
    """Whether there is a group of more than one rank to share the work with."""
    return distributed and ranks.is_distributed()


def check_same_inputs(shapes: tuple[int, ...]) -> None:
    """Fail on every rank if the ranks were not given the same inputs.

    Raises:
        InputError: the shapes differ between ranks.
    """
    mine = torch.tensor(shapes, dtype=torch.int64, device=_device())
    all_shapes = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_shapes, mine)
    if any(not torch.equal(other, mine) for other in all_shapes):
        raise InputError(
            "evaluate shards its queries over the ranks: each must be given the same inputs; sizes by rank: "
            + ", ".join(str(tuple(other.tolist())) for other in all_shapes)
            + " (pass distributed=False to evaluate each rank's own)"
        )


def gather_rows(rows: npt.NDArray[Any], total: int) -> npt.NDArray[Any]:
    """Join each rank's rows, in the order of `shard`."""
    world = dist.get_world_size()
    shards = [ranks.shard(total, rank=rank, world_size=world) for rank in range(world)]
    sizes = [last - first for first, last in shards]
    padded = np.zeros((max(sizes), *rows.shape[1:]), dtype=rows.dtype)
    padded[: len(rows)] = rows
    mine = torch.from_numpy(padded).to(_device())
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine)
    return np.concatenate([part[:size].cpu().numpy() for part, size in zip(parts, sizes, strict=True)])


def _device() -> torch.device:
    """Device that the group's backend expects its tensors on."""
    return (
        torch.device("cuda", torch.cuda.current_device())
        if dist.get_backend() == "nccl"
        else torch.device("cpu")
    )
