"""Open-set splits: every fine class is wholly in train, in val or in test, each parent giving its share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from happier.data.manifest import Manifest
from happier.errors import ManifestError, OptionError
from happier.taxonomy import UNKNOWN


def split_by_class(manifest: Manifest, *, test: float = 0.5, val: float = 0.0, seed: int = 0) -> Manifest:
    """Put whole fine classes into train, val and test, each parent class giving its share.

    Rows whose label is unknown below some level go by what is known; rows without a label become distractors.

    Args:
        manifest: its own splits are replaced, except for distractors.
        test: fraction of the fine classes for test.
        val: fraction of the remaining classes for val, to tune on without looking at test.
        seed: of the choice.

    Raises:
        OptionError: a fraction is out of range, or a split would be empty.
        ManifestError: the manifest has several test sets, which a split by class would mix up.
    """
    if not 0 < test < 1:
        raise OptionError(f"test must be between 0 and 1, got {test}")
    if not 0 <= val < 1:
        raise OptionError(f"val must be at least 0 and below 1, got {val}")
    if "set" in manifest.table:
        raise ManifestError("the manifest has several test sets (column 'set'); it cannot be split by class")
    codes = manifest.labels()
    distractor = (manifest.table["split"] == "distractor").to_numpy() | (codes[:, 0] == UNKNOWN)
    if distractor.all():
        raise ManifestError("no row of the manifest has a label to split by")
    classes, own = np.unique(codes[~distractor], axis=0, return_inverse=True)
    own = own.reshape(-1)
    rng = np.random.default_rng(seed)
    names = np.full(len(classes), "train", dtype=object)
    chosen = _systematic(classes, test, rng)
    names[chosen] = "test"
    if val:
        rest = np.flatnonzero(~chosen)
        names[rest[_systematic(classes[rest], val, rng)]] = "val"
    empty = [
        name
        for name, wanted in (("train", True), ("val", val > 0), ("test", True))
        if wanted and name not in names
    ]
    if empty:
        short = f"{len(classes)} fine classes are too few for test={test} and val={val}"
        raise OptionError(f"{short}: {', '.join(empty)} would be empty")
    splits = np.full(len(manifest), "distractor", dtype=object)
    splits[~distractor] = names[own]
    return Manifest(
        manifest.table.assign(split=splits),
        levels=manifest.levels,
        root=manifest.root,
        name=manifest.name,
        credits=manifest.credits,
    )


def _systematic(
    classes: npt.NDArray[np.int64], fraction: float, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Choose a fraction of the classes; each parent's share is exact to within one class.

    Classes stand in line by parent, in random order within each; every ``1 / fraction``-th is taken, from a
    random start.
    """
    parents = np.unique(classes[:, :-1], axis=0, return_inverse=True)[1].reshape(-1)
    shuffled_parents = rng.permutation(len(classes))[parents]
    line = np.lexsort((rng.permutation(len(classes)), shuffled_parents))
    steps = np.floor(np.arange(len(classes) + 1) * fraction + rng.random())
    taken = np.zeros(len(classes), dtype=bool)
    taken[line] = np.diff(steps) > 0
    return taken
