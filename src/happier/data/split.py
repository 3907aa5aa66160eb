"""Open-set splits: every fine class is wholly in train, in val or in test, each parent giving its share.

A parent with a single class in a split adds nothing there: whatever is found at its level is found at the
level below. So a parent gives two or more classes, or none, where possible; `repeated_levels` finds the
levels that still add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from happier.arrays import IntArray
from happier.data.manifest import Manifest
from happier.errors import ManifestError, OptionError
from happier.taxonomy import UNKNOWN


def split_by_class(
    manifest: Manifest, *, test: float = 0.5, val: float = 0.0, seed: int = 0, together: bool = True
) -> Manifest:
    """Put whole fine classes into train, val and test, each parent class giving its share.

    Rows whose label is unknown below some level count by what is known; rows without any become distractors.

    Args:
        manifest: its own splits are replaced, except for distractors.
        test: fraction of the fine classes for test.
        val: fraction of the remaining classes for val, to tune on without looking at test.
        seed: of the choice.
        together: where a parent would have a single class in a split, move one so that it has two or more, or
            none; the fractions hold to within two classes. Where no parent would, nothing changes. Otherwise
            each parent's share is exact to within one class.

    Raises:
        OptionError: a fraction is out of range, or a split would be empty.
        ManifestError: the manifest has several test sets, which a split by class would mix up.
    """
    if not 0 < test < 1:
        raise OptionError(f"test must be between 0 and 1, got {test}")
    if not 0 <= val < 1:
        raise OptionError(f"val must be at least 0 and below 1, got {val}")
    if seed < 0:
        raise OptionError(f"seed must be 0 or more, got {seed}")
    if "set" in manifest.table:
        raise ManifestError("the manifest has several test sets (column 'set'); it cannot be split by class")
    codes = manifest.labels()
    distractor = (manifest.table["split"] == "distractor").to_numpy() | (codes[:, 0] == UNKNOWN)
    if distractor.all():
        raise ManifestError("no row of the manifest has a label to split by")
    classes, own = np.unique(codes[~distractor], axis=0, return_inverse=True)
    names = _split_names(classes, test, val, np.random.default_rng(seed), together=together)
    empty = [
        name
        for name, wanted in (("train", True), ("val", val > 0), ("test", True))
        if wanted and name not in names
    ]
    if empty:
        short = f"{len(classes)} fine classes are too few for test={test} and val={val}"
        raise OptionError(f"{short}: {', '.join(empty)} would be empty")
    splits = np.full(len(manifest), "distractor", dtype=object)
    splits[~distractor] = names[own.reshape(-1)]
    return Manifest(
        manifest.table.assign(split=splits),
        levels=manifest.levels,
        root=manifest.root,
        name=manifest.name,
        credits=manifest.credits,
    )


def _split_names(
    classes: IntArray, test: float, val: float, rng: np.random.Generator, *, together: bool
) -> npt.NDArray[np.object_]:
    """The split of each class."""
    names = np.full(len(classes), "train", dtype=object)
    chosen = _choose(classes, test, rng, together=together)
    names[chosen] = "test"
    if val:
        rest = np.flatnonzero(~chosen)
        names[rest[_choose(classes[rest], val, rng, together=together)]] = "val"
    return names


def _choose(
    classes: IntArray, fraction: float, rng: np.random.Generator, *, together: bool
) -> npt.NDArray[np.bool_]:
    """Choose a fraction of the classes, so that each parent gives its share.

    Classes are lined up by parent, in random order within each; every ``1 / fraction``-th is taken, from a
    random start.
    """
    parents = np.unique(classes[:, :-1], axis=0, return_inverse=True)[1].reshape(-1)
    shuffled_parents = rng.permutation(len(classes))[parents]
    line = np.lexsort((rng.permutation(len(classes)), shuffled_parents))
    steps = np.floor(np.arange(len(classes) + 1) * fraction + rng.random())
    taken = np.zeros(len(classes), dtype=bool)
    taken[line] = np.diff(steps) > 0
    if not together or classes.shape[1] < 2:
        return taken
    moved = _keep_together(classes, line, taken)
    # With very few classes there may be no choice that leaves some on both sides.
    return moved if moved.any() and not moved.all() else taken


def _keep_together(
    classes: IntArray, line: npt.NDArray[np.intp], taken: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Move classes so that no parent of several has a single one among those taken or those left.

    Of the two nearest choices, take the one that keeps the total number of taken classes closest to what it
    was. Parents are grouped by their own parents, so that those keep their shares too, and in random order
    within each.
    """
    taken = taken.copy()
    groups: dict[tuple[int, ...], list[int]] = {}
    for own in line.tolist():
        groups.setdefault(tuple(classes[own, :-1].tolist()), []).append(own)
    surplus, start = 0, bool(taken[line[0]])
    for parent in sorted(groups, key=lambda path: path[:-1]):
        members = np.array(groups[parent])
        count, size = int(taken[members].sum()), len(members)
        allowed = [number for number in range(size + 1) if number != 1 and size - number != 1]
        if size == 1 or count in allowed:
            continue
        fewer = max(number for number in allowed if number < count)
        more = min(number for number in allowed if number > count)
        # Nearest to the number wanted of all; in a tie the parent stays on both sides if it can.
        ways = (more, fewer) if start else (fewer, more)
        costs = [(abs(surplus + way - count), way in (0, size)) for way in ways]
        wanted = ways[costs.index(min(costs))]
        surplus += wanted - count
        if wanted > count:
            taken[members[~taken[members]][: wanted - count]] = True
        else:
            taken[members[taken[members]][wanted:]] = False
    return taken


@dataclass(frozen=True)
class RepeatedLevel:
    """A level that adds nothing in a split: each of its classes has one class of the level below.

    Attributes:
        split: name of the split; ``query`` stands for queries and gallery.
        level: name of the level.
        below: name of the next finer level, whose classes are the same sets of images.
        rows: the first row of each class of the level, counted from 0.
    """

    split: str
    level: str
    below: str
    rows: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"level {self.level} adds nothing in {self.split}: each of its classes has one {self.below}, so "
            "both levels give the same figures"
        )


def repeated_levels(manifest: Manifest) -> list[RepeatedLevel]:
    """The levels whose classes are, within a split, the same sets of images as those of the next level."""
    codes, splits = manifest.labels(), manifest.table["split"].to_numpy()
    found = []
    for name, members in (("train",) * 2, ("val",) * 2, ("test",) * 2, ("query", ("query", "gallery"))):
        rows = np.flatnonzero(np.isin(splits, members))
        for level in range(len(manifest.levels) - 1):
            known = rows[codes[rows, level] != UNKNOWN]
            below = codes[known, level + 1]
            if not len(known) or (below == UNKNOWN).any():
                continue
            own, first = np.unique(codes[known, level], return_index=True)
            if len(own) == len(np.unique(below)):
                places = tuple(sorted(int(row) for row in known[first]))
                level_name, below_name = manifest.levels[level : level + 2]
                found.append(RepeatedLevel(name, level_name, below_name, places))
    return found
