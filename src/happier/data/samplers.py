"""Batches of images that share classes or attributes, with guarantees.

- A batch has exactly ``batch_size`` images, or there is an error.
- No class is twice in a batch; consecutive batches of an epoch share no class where there are enough classes,
  and every class is drawn before any is repeated.
- Batches depend on (seed, epoch) alone: not on ranks, workers, or where a run was interrupted.
- The class of an image is the deepest one that is known; images that share only a coarse class make one too.
- Each of ``world_size`` ranks gets its part of the same global batch, in whole classes.
- Batches by attributes hold no image twice, and an epoch holds each image once, but for what fills no batch.
"""

from __future__ import annotations

import itertools
import logging
import zlib
from collections.abc import Iterator
from typing import Any, Literal, final

import numpy as np

from happier.arrays import IntArray
from happier.data.class_sampler import ClassBatchSampler, GroupBatchSampler, Rounds, TooFew
from happier.errors import InputError, OptionError
from happier.taxonomy import UNKNOWN

log = logging.getLogger(__name__)


@final
class MPerClassBatchSampler(ClassBatchSampler):
    """Class-balanced batches: ``batch_size / per_class`` classes, ``per_class`` images of each.

    Args:
        labels: integer labels ``[N]`` or ``[N, L]``; the class is the row (its path), as far as it is known.
        batch_size: images of all ranks together; a multiple of ``per_class x world_size``.
        per_class: images of each class in a batch.
        batches_per_epoch: by default as many as the images fill.
        seed: batches depend on (seed, epoch) alone.
        rank: this process.
        world_size: number of processes.
        too_few: classes with fewer than ``per_class`` images repeat them (``replace``) or are left out
            (``skip``).

    Raises:
        OptionError: a batch would hold a class twice, or an option is out of range.

    >>> sampler = MPerClassBatchSampler([0, 0, 1, 1, 2, 2, 3, 3], batch_size=4, per_class=2)
    >>> [len(batch) for batch in sampler]
    [4, 4]
    """

    def __init__(
        self,
        labels: Any,
        *,
        batch_size: int,
        per_class: int = 4,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        too_few: TooFew = "replace",
    ) -> None:
        super().__init__(
            labels,
            batch_size=batch_size,
            per_class=per_class,
            seed=seed,
            rank=rank,
            world_size=world_size,
            too_few=too_few,
        )
        self._per_batch = batch_size // per_class
        if len(self._classes) < self._per_batch:
            raise OptionError(
                f"a batch of {batch_size} with {per_class} images per class needs {self._per_batch} classes, "
                f"but only {len(self._classes)} can be sampled; lower batch_size or raise per_class"
            )
        if batches_per_epoch is not None and batches_per_epoch < 1:
            raise OptionError(f"batches_per_epoch must be at least 1, got {batches_per_epoch}")
        images = sum(len(rows) for rows in self._members.values())
        self._length = batches_per_epoch or max(1, images // batch_size)

    def __len__(self) -> int:
        return self._length

    def _class_batches(self, rng: np.random.Generator) -> Iterator[list[int]]:
        rounds = Rounds(self._classes, rng)
        for _ in range(self._length):
            yield rounds.draw(self._per_batch)


@final
class HierarchicalBatchSampler(ClassBatchSampler):
    """Batches of two coarse classes each, so that a batch is full of hard coarse and fine negatives.

    An epoch goes ``batches_per_pair`` times through all pairs of coarse classes, in shuffled order; a batch
    takes half of its images from each of the two. With the 12 categories of SOP that is 66 x 5 = 330 batches.

    Args:
        labels: integer labels ``[N, L]`` of at least two levels, coarse first.
        batch_size: images of all ranks together; a multiple of ``2 x per_class`` and of
            ``per_class x world_size``.
        per_class: images of each fine class in a batch.
        batches_per_pair: how often each pair is drawn in an epoch.
        level: the level whose classes are paired; 0 is the coarsest.
        seed: batches depend on (seed, epoch) alone.
        rank: this process.
        world_size: number of processes.
        too_few: fine classes with fewer than ``per_class`` images repeat them (``replace``) or are left out
            (``skip``).
        small_groups: coarse classes with too few fine classes for half a batch are an error (``raise``), or
            all of their pairs are left out (``skip``).

    Raises:
        OptionError: a batch would hold a class twice, or an option is out of range.
        InputError: the labels have fewer than two levels.
    """

    def __init__(  # noqa: PLR0913 - every option of a configuration, by keyword
        self,
        labels: Any,
        *,
        batch_size: int,
        per_class: int = 4,
        batches_per_pair: int = 5,
        level: int = 0,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        too_few: TooFew = "replace",
        small_groups: Literal["raise", "skip"] = "raise",
    ) -> None:
        super().__init__(
            labels,
            batch_size=batch_size,
            per_class=per_class,
            seed=seed,
            rank=rank,
            world_size=world_size,
            too_few=too_few,
        )
        depth = self._codes.shape[1]
        if depth < 2:
            raise InputError(
                "HierarchicalBatchSampler pairs coarse classes, so labels must have two levels or more, got "
                "one; use MPerClassBatchSampler"
            )
        if not 0 <= level < depth - 1:
            raise OptionError(f"level must be 0 to {depth - 2}, above the finest level, got {level}")
        if batches_per_pair < 1:
            raise OptionError(f"batches_per_pair must be at least 1, got {batches_per_pair}")
        if small_groups not in ("raise", "skip"):
            raise OptionError(f"small_groups must be 'raise' or 'skip', got {small_groups!r}")
        if batch_size % (2 * per_class):
            raise OptionError(
                f"batch_size must be a multiple of 2 x per_class = {2 * per_class}, got {batch_size}: each "
                "of two coarse classes gives half of the batch"
            )
        self._per_group = batch_size // (2 * per_class)
        self._groups = self._coarse_groups(level, skip_small=small_groups == "skip")
        self._pairs = list(itertools.combinations(self._groups, 2))
        self._batches_per_pair = batches_per_pair

    def _coarse_groups(self, level: int, *, skip_small: bool) -> dict[int, IntArray]:
        """The fine classes of each coarse class that has enough of them for half a batch."""
        groups: dict[int, list[int]] = {}
        for own, rows in self._members.items():
            if (group := int(self._codes[rows[0], level])) != UNKNOWN:
                groups.setdefault(group, []).append(own)
        small = {group: len(classes) for group, classes in groups.items() if len(classes) < self._per_group}
        if small and not skip_small:
            raise OptionError(
                f"half a batch of {self.batch_size} with {self.per_class} images per class needs "
                f"{self._per_group} fine classes of each coarse class, but {len(small)} of {len(groups)} "
                f"coarse classes have fewer (the smallest has {min(small.values())}); lower batch_size, "
                "raise per_class, or leave them out with small_groups='skip'"
            )
        if small:
            log.info(
                "%d of %d coarse classes have too few fine classes and are not sampled",
                len(small),
                len(groups),
            )
        kept = {group: np.array(own) for group, own in sorted(groups.items()) if group not in small}
        if len(kept) < 2:
            raise OptionError(f"at least two coarse classes are needed to make pairs, got {len(kept)}")
        return kept

    def __len__(self) -> int:
        return len(self._pairs) * self._batches_per_pair

    def _class_batches(self, rng: np.random.Generator) -> Iterator[list[int]]:
        rounds = {group: Rounds(classes, rng) for group, classes in self._groups.items()}
        for _ in range(self._batches_per_pair):
            for number in rng.permutation(len(self._pairs)):
                first, second = self._pairs[number]
                halves = (rounds[first].draw(self._per_group), rounds[second].draw(self._per_group))
                # Interleaved, so that every rank's part has classes of both.
                yield [own for pair in zip(*halves, strict=True) for own in pair]


@final
class AttributeBatchSampler(GroupBatchSampler):
    """Batches of groups of ``per_attribute`` images that have an attribute in common.

    In each epoch the attributes are passed through in random order; each groups those images with it that
    earlier ones have left. Images that are left over at the end are grouped at random.

    Args:
        attributes: ``[N, A]``, not 0 where an image has an attribute: `Manifest.attributes`. Images without
            any are not drawn.
        batch_size: images of all ranks together; a multiple of ``per_attribute x world_size``.
        per_attribute: images of each group.
        seed: batches depend on (seed, epoch) alone.
        rank: this process.
        world_size: number of processes.

    Raises:
        InputError: not a matrix.
        OptionError: too few images for a batch, or an option is out of range.

    >>> table = [[1, 0], [1, 1], [0, 1], [0, 1], [0, 0]]
    >>> sampler = AttributeBatchSampler(table, batch_size=4, per_attribute=2)
    >>> [sorted(batch) for batch in sampler]
    [[0, 1, 2, 3]]
    """

    _unit = "per_attribute"

    def __init__(
        self,
        attributes: Any,
        *,
        batch_size: int,
        per_attribute: int = 4,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(
            batch_size=batch_size, per_class=per_attribute, seed=seed, rank=rank, world_size=world_size
        )
        table = np.asarray(attributes) != 0
        if table.ndim != 2:
            raise InputError(f"attributes must be [images, attributes], got shape {table.shape}")
        self._table, self._known = table, table.any(axis=1)
        self._rows = [np.flatnonzero(column) for column in table.T]
        images = int(self._known.sum())
        if images < len(table):
            log.info("%d images have no attributes and are not sampled", len(table) - images)
        if images < batch_size:
            raise OptionError(f"a batch of {batch_size} needs as many images with attributes, got {images}")

    def __len__(self) -> int:
        return int(self._known.sum()) // self.batch_size

    def _batches(self) -> Iterator[list[int]]:
        rng = np.random.default_rng((self.seed, self._epoch))
        free = self._known.copy()
        groups: list[list[int]] = []

        def group(rows: IntArray) -> None:
            whole = rng.permutation(rows)[: len(rows) // self.per_class * self.per_class]
            free[whole] = False
            groups.extend(whole.reshape(-1, self.per_class).tolist())

        for attribute in rng.permutation(len(self._rows)):
            rows = self._rows[attribute]
            group(rows[free[rows]])
        group(np.flatnonzero(free))
        order = rng.permutation(len(groups))
        share = self.batch_size // self.per_class
        for number in range(len(self)):
            chosen = order[number * share : (number + 1) * share]
            yield [row for place in chosen for row in groups[place]]

    def _contents(self) -> dict[str, int]:
        return {"images": len(self._table), "labels": zlib.crc32(np.packbits(self._table).tobytes())}
