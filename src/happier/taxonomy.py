"""Label rows -> a checked tree -> the level two items share.

Labels are an integer array ``[N, L]``, coarse first. A class *is its path*: the level two items share is the
length of their common prefix, so the same id under two parents is two classes. ``-1`` means unknown: it
equals nothing, another unknown included, and everything below it must be unknown too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from happier.arrays import IntArray
from happier.errors import InputError, TaxonomyError

UNKNOWN = -1


def as_labels(labels: Any, *, name: str = "labels") -> IntArray:
    """Check label rows and return them as an int64 array ``[N, L]`` (a vector is taken as one level).

    Raises:
        InputError: not a non-empty integer array of one or two axes.
        TaxonomyError: a label below -1, or a known label below an unknown one.
    """
    array = labels.detach().cpu().numpy() if isinstance(labels, torch.Tensor) else np.asarray(labels)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise InputError(f"{name} must be an integer array [items, levels], got shape {array.shape}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise InputError(f"{name} must have at least one row and one level, got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers, got dtype {array.dtype}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{name} must fit into int64, got the value {array.max()}")
    array = np.ascontiguousarray(array, dtype=np.int64)
    if (bad := array < UNKNOWN).any():
        row, column = np.argwhere(bad)[0]
        raise TaxonomyError(
            f"{name}[{row}, {column}] is {array[row, column]}: a label is 0 or more, or -1 for unknown"
        )
    below_unknown = (array[:, :-1] == UNKNOWN) & (array[:, 1:] != UNKNOWN)
    if below_unknown.any():
        row, column = np.argwhere(below_unknown)[0]
        raise TaxonomyError(
            f"{name}[{row}] is {array[row].tolist()}: the known label at level {column + 2} is below an "
            f"unknown one at level {column + 1}; {len(np.unique(np.argwhere(below_unknown)[:, 0]))} such rows"
        )
    return array


def path_codes(labels: IntArray) -> IntArray:
    """Number the classes of each level: equal codes mean equal paths down to that level; -1 stays -1.

    Codes are dense, and in depth-first order of the tree: sorting rows by the codes of all levels
    makes every class one contiguous range.
    """
    items, depth = labels.shape
    codes = np.empty_like(labels)
    parent: IntArray = np.zeros(items, dtype=np.int64)
    for level in range(depth):
        column = labels[:, level]
        known = column != UNKNOWN
        codes[:, level] = UNKNOWN
        if known.any():
            # One integer for (parent, own label): labels may be any size, so number them first.
            values, own = np.unique(column[known], return_inverse=True)
            _, codes[known, level] = np.unique(parent[known] * len(values) + own, return_inverse=True)
        parent = codes[:, level]
    return codes


Rows = TypeVar("Rows", npt.NDArray[np.int64], torch.Tensor)


def shared_levels(queries: Rows, gallery: Rows) -> Rows:
    """Level 0..L that each query shares with each gallery item: the length of their common prefix.

    Args:
        queries: label rows ``[Q, L]``, numpy or torch.
        gallery: label rows ``[N, L]`` of the same kind.

    Returns:
        int8 array ``[Q, N]`` of the same kind as the inputs.

    >>> import numpy as np
    >>> shared_levels(np.array([[0, 1]]), np.array([[0, 1], [0, 2], [1, 1]])).tolist()
    [[2, 1, 0]]
    """
    known = queries - _as_int8(queries == UNKNOWN)  # an unknown label equals none
    same = known[:, None, 0] == gallery[None, :, 0]
    shared: Rows = _as_int8(same)
    for level in range(1, queries.shape[1]):
        same = same & (known[:, None, level] == gallery[None, :, level])
        shared += same
    return shared


def _as_int8(flags: Any) -> Any:
    return flags.to(torch.int8) if isinstance(flags, torch.Tensor) else flags.astype(np.int8)


def check_level_names(level_names: Sequence[str] | None, depth: int) -> tuple[str, ...]:
    """Return the level names, ``1..L`` where there are none.

    Raises:
        InputError: the wrong number of names, or one name twice.
    """
    if level_names is None:
        return tuple(str(level) for level in range(1, depth + 1))
    names = tuple(str(name) for name in level_names)
    if len(names) != depth:
        raise InputError(f"level_names must name each of the {depth} levels, got {list(names)}")
    if len(set(names)) != depth:
        raise InputError(f"level_names must differ, got {list(names)}")
    return names


@dataclass(frozen=True)
class Taxonomy:
    """A checked tree over label rows.

    Attributes:
        labels: the rows as given, int64 ``[N, L]``, coarse first, -1 unknown.
        codes: the same rows with one dense number per class and level (see `path_codes`).
        level_names: one name per level, coarse first.

    >>> tree = Taxonomy.from_labels([[0, 0], [0, 1], [1, 0]], level_names=["kind", "item"])
    >>> tree.num_classes
    (2, 3)
    >>> tree.shared_level(0, 1)
    1
    """

    labels: IntArray
    codes: IntArray
    level_names: tuple[str, ...]

    @classmethod
    def from_labels(cls, labels: Any, level_names: Sequence[str] | None = None) -> Taxonomy:
        """Build the tree from integer label rows ``[N, L]``, coarse first.

        Raises:
            InputError: not a non-empty integer array, or the names do not fit.
            TaxonomyError: a known label below an unknown one, or a label below -1.
        """
        rows = as_labels(labels)
        return cls(rows, path_codes(rows), check_level_names(level_names, rows.shape[1]))

    @property
    def depth(self) -> int:
        """Number of levels L."""
        return int(self.labels.shape[1])

    @property
    def num_classes(self) -> tuple[int, ...]:
        """Number of classes of each level, coarse first; a class is its path."""
        return tuple(int(column.max()) + 1 for column in self.codes.T)

    def shared_level(self, first: int, second: int) -> int:
        """Level 0..L that two rows share."""
        return int(shared_levels(self.labels[[first]], self.labels[[second]])[0, 0])

    def parents(self) -> tuple[IntArray, ...]:
        """For each level but the first, the parent's code of each of its classes."""
        result = []
        for level in range(1, self.depth):
            parent = np.zeros(self.num_classes[level], dtype=np.int64)
            known = self.codes[:, level] != UNKNOWN
            parent[self.codes[known, level]] = self.codes[known, level - 1]
            result.append(parent)
        return tuple(result)
