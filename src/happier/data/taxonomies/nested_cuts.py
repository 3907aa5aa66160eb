"""A tree of any depth -> a taxonomy of as many levels as wanted, each of about the size wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from happier.errors import OptionError

__all__ = ["TreeNode", "cut_paths", "default_sizes", "level_names"]

DEFAULT_LEVELS: Final = ("level1", "level2")


@dataclass
class TreeNode:
    """A branch of a tree over classes.

    Attributes:
        name: what it is called.
        classes: the classes at or below it.
        children: its branches; empty where it is not to be divided.
        weight: of the branches that can be divided, the one with the largest weight is divided next.
    """

    name: str
    classes: list[str]
    children: list[TreeNode] = field(default_factory=list)
    weight: float = 0.0


def level_names(levels: Sequence[str] | None, sizes: Sequence[int] | None) -> tuple[str, ...]:
    """The names of the levels above the classes: those given, or one for each size, or two.

    Raises:
        OptionError: the numbers of names and sizes differ.
    """
    if levels is not None and sizes is not None and len(levels) != len(sizes):
        raise OptionError(f"there must be a size for each level: {len(levels)} levels, {len(sizes)} sizes")
    if levels is not None:
        return tuple(levels)
    return DEFAULT_LEVELS if sizes is None else tuple(f"level{at}" for at in range(1, len(sizes) + 1))


def default_sizes(classes: int, levels: int) -> tuple[int, ...]:
    """Numbers of branches that grow by the same factor from level to level down to the classes.

    >>> default_sizes(1000, 2)
    (10, 100)
    """
    return tuple(max(2, round(classes ** (level / (levels + 1)))) for level in range(1, levels + 1))


def cut_paths(root: TreeNode, sizes: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """The path of each class: the branches it is in when the tree is cut into a few, then into more.

    The tree is cut by dividing the branch with the largest weight into its children until there are as many
    branches as wanted, so a level may get a few more than its size, or fewer where nothing can be divided.

    Args:
        root: the whole tree.
        sizes: wanted number of branches of each level, coarse first.

    Raises:
        OptionError: sizes that do not rise from 2 to the number of classes.
    """
    number = len(root.classes)
    rising = all(above < below for above, below in pairwise(sizes))
    if not sizes or not rising or sizes[0] < 2 or sizes[-1] > number:
        raise OptionError(
            f"sizes must rise from level to level, from 2 to the {number} classes, got {list(sizes)}"
        )
    paths: dict[str, tuple[str, ...]] = dict.fromkeys(root.classes, ())
    branches = [root]
    for size in sizes:
        while len(branches) < size:
            at = max(range(len(branches)), key=lambda at: _order(branches[at]))
            if not branches[at].children:
                break
            branches[at : at + 1] = branches[at].children
        taken: set[tuple[str, ...]] = set()
        for branch in branches:
            path = _free((*paths[branch.classes[0]], branch.name), taken)
            paths.update(dict.fromkeys(branch.classes, path))
    return paths


def _order(branch: TreeNode) -> tuple[bool, float]:
    return bool(branch.children), branch.weight


def _free(path: tuple[str, ...], taken: set[tuple[str, ...]]) -> tuple[str, ...]:
    """The path, numbered where another branch has it: two meanings of a word may stand side by side."""
    free, number = path, 1
    while free in taken:
        number += 1
        free = (*path[:-1], f"{path[-1]} ({number})")
    taken.add(free)
    return free
