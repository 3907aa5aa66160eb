"""What all batch samplers share: ranks, epochs, resuming; and rounds of classes and images."""

from __future__ import annotations

import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from torch.utils.data import Sampler

from happier.arrays import IntArray
from happier.errors import OptionError
from happier.taxonomy import UNKNOWN, as_labels, path_codes

log = logging.getLogger(__name__)

TooFew = Literal["replace", "skip"]


class Rounds:
    """Draws from a pool: each member once per round, and none in two consecutive draws."""

    def __init__(self, pool: IntArray, rng: np.random.Generator) -> None:
        self._pool, self._rng = pool, rng
        self._waiting: list[int] = []
        self._last: list[int] = []

    def draw(self, count: int) -> list[int]:
        """Draw ``count`` different members; the pool must have as many."""
        drawn: list[int] = []
        barred = set(self._last)
        while True:
            held = []
            while self._waiting and len(drawn) < count:
                member = self._waiting.pop()
                if member in barred:
                    held.append(member)
                else:
                    drawn.append(member)
                    barred.add(member)
            self._waiting += reversed(held)
            if len(drawn) < count and held:
                # The pool is smaller than two draws: some of the previous draw must be repeated.
                again = [member for member in held if member not in drawn][: count - len(drawn)]
                drawn += again
                barred.update(again)
                self._waiting = [member for member in self._waiting if member not in again]
            if len(drawn) == count:
                self._last = drawn
                return drawn
            assert not self._waiting
            self._waiting = self._rng.permutation(self._pool).tolist()


def deepest_classes(codes: IntArray) -> IntArray:
    """A number for the deepest known class of each row of path codes ``[N, L]``; -1 where none is known.

    The finest classes keep their codes; those of coarser levels follow.

    >>> deepest_classes(np.array([[0, 0], [0, 1], [1, -1], [-1, -1]])).tolist()
    [0, 1, 3, -1]
    """
    found = np.full(len(codes), UNKNOWN, dtype=np.int64)
    first = 0
    for column in codes.T[::-1]:
        here = (found == UNKNOWN) & (column != UNKNOWN)
        found[here] = first + column[here]
        first += int(column.max(initial=-1)) + 1
    return found


class GroupBatchSampler(Sampler[list[int]], ABC):
    """Batches of groups of ``per_class`` images; each rank gets whole groups of each batch."""

    _unit = "per_class"  # what the size of a group is called

    def __init__(self, *, batch_size: int, per_class: int, seed: int, rank: int, world_size: int) -> None:
        sizes = {"batch_size": batch_size, self._unit: per_class, "world_size": world_size}
        for name, value in sizes.items():
            if value < 1:
                raise OptionError(f"{name} must be at least 1, got {value}")
        if not 0 <= rank < world_size:
            raise OptionError(f"rank must be 0 to {world_size - 1} (world_size - 1), got {rank}")
        if seed < 0:
            raise OptionError(f"seed must be 0 or more, got {seed}")
        if batch_size % (per_class * world_size):
            raise OptionError(
                f"batch_size must be a multiple of {self._unit} x world_size = {per_class} x {world_size}, "
                f"got {batch_size}; it counts the images of all ranks together"
            )
        self.batch_size, self.per_class, self.seed = batch_size, per_class, seed
        self.rank, self.world_size = rank, world_size
        self._epoch = 0
        self._start = 0  # where the next iteration begins: set only by load_state_dict
        self._done = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _batches(self) -> Iterator[list[int]]:
        """The global batches of the epoch: always all of them, so that each follows from (seed, epoch)."""

    @abstractmethod
    def _contents(self) -> dict[str, int]:
        """What a state must agree with, beside the options."""

    @property
    def epoch(self) -> int:
        """The epoch whose batches are drawn."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Draw the batches of this epoch; a position loaded for the same epoch is kept."""
        if epoch < 0:
            raise OptionError(f"epoch must be 0 or more, got {epoch}")
        if epoch != self._epoch:
            self._epoch, self._start, self._done = epoch, 0, 0

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start, 0
        share = self.batch_size // self.world_size
        part = slice(self.rank * share, (self.rank + 1) * share)
        self._done = start
        for number, batch in enumerate(self._batches()):
            if number >= start:
                self._done = number + 1
                yield batch[part]
        self._done = 0

    def state_dict(self, done: int | None = None) -> dict[str, int]:
        """What `load_state_dict` needs to resume from here.

        Args:
            done: batches of this epoch that were actually used. A `DataLoader` with workers draws batches
                ahead of their use, so a training loop must pass its own count; by default all drawn ones.
        """
        done = self._done if done is None else done
        return {"epoch": self._epoch, "done": done, **self._identity()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration begin where the state was taken.

        Raises:
            OptionError: the state is of a sampler with other options or other labels.
        """
        own = self._identity()
        differ = [
            f"{name} {state.get(name)} (here {value})"
            for name, value in own.items()
            if state.get(name) != value
        ]
        if differ:
            raise OptionError(f"the state belongs to another sampler: {', '.join(differ)}")
        if not 0 <= state["done"] <= len(self):
            raise OptionError(f"the state has {state['done']} batches done of an epoch of {len(self)}")
        self._epoch, self._start, self._done = state["epoch"], state["done"], state["done"]

    def _identity(self) -> dict[str, int]:
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "per_class": self.per_class,
            **self._contents(),
            "batches": len(self),
        }


class ClassBatchSampler(GroupBatchSampler):
    """What the samplers by class share: classes and their images."""

    def __init__(
        self,
        labels: Any,
        *,
        batch_size: int,
        per_class: int,
        seed: int,
        rank: int,
        world_size: int,
        too_few: TooFew,
    ) -> None:
        super().__init__(
            batch_size=batch_size, per_class=per_class, seed=seed, rank=rank, world_size=world_size
        )
        if too_few not in ("replace", "skip"):
            raise OptionError(f"too_few must be 'replace' or 'skip', got {too_few!r}")
        self._codes = path_codes(as_labels(labels))
        deepest = deepest_classes(self._codes)
        known = np.flatnonzero(deepest != UNKNOWN)
        order = known[np.argsort(deepest[known], kind="stable")]
        classes, starts = np.unique(deepest[order], return_index=True)
        members: list[IntArray] = np.split(order, starts[1:]) if len(classes) else []
        small = [number for number, rows in enumerate(members) if len(rows) < per_class]
        unlabelled = len(deepest) - len(known)
        partly = int((self._codes[known, -1] == UNKNOWN).sum())
        if unlabelled:
            log.info("%d images have no label and are not sampled", unlabelled)
        if partly:
            log.info("%d images are labelled in part and drawn by the deepest class that is known", partly)
        if small:
            fate = "repeat images to fill their share" if too_few == "replace" else "are not sampled"
            log.info(
                "%d of %d classes have fewer than %d images and %s", len(small), len(classes), per_class, fate
            )
        dropped = set(small) if too_few == "skip" else set()
        self._members = {
            int(c): rows for n, (c, rows) in enumerate(zip(classes, members, strict=True)) if n not in dropped
        }
        self._classes = np.array(sorted(self._members), dtype=np.int64)

    @abstractmethod
    def _class_batches(self, rng: np.random.Generator) -> Iterator[list[int]]:
        """The classes of each batch of one epoch."""

    def _batches(self) -> Iterator[list[int]]:
        rng = np.random.default_rng((self.seed, self._epoch))
        images: dict[int, Rounds] = {}
        for classes in self._class_batches(rng):
            batch: list[int] = []
            for own in classes:
                rows = self._members[own]
                if len(rows) < self.per_class:
                    # Each image as often as any other, to within one.
                    repeats = -(-self.per_class // len(rows))
                    batch += np.concatenate([rng.permutation(rows) for _ in range(repeats)])[
                        : self.per_class
                    ].tolist()
                    continue
                if own not in images:
                    images[own] = Rounds(rows, rng)
                batch += images[own].draw(self.per_class)
            assert len(batch) == self.batch_size
            yield batch

    def _contents(self) -> dict[str, int]:
        return {
            "images": len(self._codes),
            "labels": zlib.crc32(self._codes.tobytes()),
            "classes": len(self._classes),
        }
