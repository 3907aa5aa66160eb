"""The processes that ``torchrun`` started, as ranks 0 to N - 1: this process's rank and its items.

Without ``torch.distributed`` there is one rank, which has everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch.distributed as dist

from happier.errors import HappierError

__all__ = [
    "barrier",
    "is_distributed",
    "on_all_ranks",
    "on_first_rank",
    "process_group",
    "rank",
    "shard",
    "world_size",
]

T = TypeVar("T")


def is_distributed() -> bool:
    """Whether there is more than one rank."""
    return world_size() > 1


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if _has_group() else 0


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if _has_group() else 1


def shard(total: int, *, rank: int | None = None, world_size: int | None = None) -> tuple[int, int]:
    """First and one-past-last item of a rank, by default of this one.

    The shards of all ranks, in order, are ``range(total)``; their sizes differ by at most one.

    >>> [shard(10, rank=rank, world_size=3) for rank in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    if rank is None or world_size is None:
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if _has_group() else (0, 1)
    return total * rank // world_size, total * (rank + 1) // world_size


def barrier() -> None:
    """Wait until every rank has reached this call."""
    if _has_group():
        dist.barrier()


@contextmanager
def process_group() -> Iterator[int]:
    """Join the ranks that ``torchrun`` started, if it did; yield this process's rank.

    The ranks exchange only small data on the CPU, whatever device computes.
    """
    if _has_group() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield rank()
        return
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def on_first_rank(work: Callable[[], T]) -> T:
    """What ``work`` returns on rank 0, on every rank; the others wait for it.

    Raises:
        HappierError: that of rank 0, on every rank.
    """
    if not is_distributed():
        return work()
    outcome = _attempt(work) if rank() == 0 else None
    box = [_portable(outcome)]
    dist.broadcast_object_list(box)
    if rank() == 0:
        box = [outcome]
    return _results(box)[0]


def on_all_ranks(work: Callable[[], T]) -> list[T]:
    """What ``work`` returns on each rank, in their order, on every rank.

    Raises:
        HappierError: that of the first rank that raised one, on every rank.
    """
    if not is_distributed():
        return [work()]
    outcomes: list[T | Exception | None] = [None] * world_size()
    dist.all_gather_object(outcomes, _portable(_attempt(work)))
    return _results(outcomes)


def _attempt(work: Callable[[], T]) -> T | Exception:
    try:
        return work()
    except (HappierError, OSError) as error:
        return error


def _portable(outcome: T | Exception | None) -> T | Exception | None:
    """An error that can be pickled: its class may need more arguments than its message."""
    return HappierError(str(outcome)) if isinstance(outcome, Exception) else outcome


def _results(outcomes: list[T | Exception | None]) -> list[T]:
    results: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        results.append(outcome)  # type: ignore[arg-type]
    return results


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()
