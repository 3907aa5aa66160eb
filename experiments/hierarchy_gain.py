"""When does the hierarchy help? HAPPIER against a fine-only loss on emoji whose tree or images are changed.

One thing is changed at a time: how many of the finest classes are moved to another subgroup, at random, so
that the tree says less and less about looks; how many levels the tree has; how many images a training class
has. A head on kept features of a frozen network is trained with HAPPIER and with NSM, both with the settings
of ``recipe=folder_cpu``, and evaluated on the test classes under the same changed tree.
``results/hierarchy-emoji.parquet`` has one row for each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from experiments.built_trees import HEAD, SIZE
from experiments.results import find_result
from experiments.running import add_summary, side_by_side, train_on
from happier.data import Manifest, fetch

LOSSES = ("happier", "nsm")
SEEDS = (0, 1)
# NSM needs the whole budget of the recipe: after half of it, it is far behind.
SETTINGS = ("recipe=folder_cpu", *HEAD[1:])


@dataclass(frozen=True)
class Change:
    """How the data differ from emoji as they are.

    Attributes:
        moved: share of the finest classes that are moved to another subgroup.
        levels: the levels that are kept, coarse to fine.
        images: of a training class at most; 0 for all.
    """

    moved: float = 0.0
    levels: tuple[str, ...] = ("group", "subgroup", "emoji")
    images: int = 0

    def __str__(self) -> str:
        if self.moved:
            return f"{self.moved:.0%} of the classes moved to another subgroup"
        if self.images:
            return f"{self.images} images of each training class"
        if len(self.levels) < 3:
            return f"levels: {', '.join(self.levels)}"
        return "as they are"


CHANGES = (
    Change(),
    *(Change(moved=share) for share in (0.25, 0.5, 1.0)),
    *(Change(levels=(level, "emoji")) for level in ("group", "subgroup")),
    *(Change(images=number) for number in (3, 2)),
)


@dataclass(frozen=True)
class GainRun:
    """One training.

    Attributes:
        change: of the data.
        loss: its name.
        seed: of the training and of the change.
    """

    change: Change
    loss: str
    seed: int

    @property
    def folder(self) -> str:
        """Name of the table."""
        return "hierarchy-emoji"

    @property
    def overrides(self) -> tuple[str, ...]:
        """What identifies the run in its table, beside the loss and the seed."""
        change = self.change
        return (
            f"moved={change.moved:g}",
            f"levels={'-'.join(change.levels)}",
            f"images={change.images}",
            f"trained={self.loss}",
        )


def gain_runs(seeds: Sequence[int] = SEEDS) -> list[GainRun]:
    """All runs, the first seed of every one first."""
    return [GainRun(change, loss, seed) for seed in seeds for change in CHANGES for loss in LOSSES]


def measure_hierarchy_gain(*, seeds: Sequence[int], workers: int, runs: Path) -> None:
    """Train and evaluate what has no result yet; it can be stopped at any time and run again.

    Args:
        seeds: of the runs.
        workers: parallel processes; each uses one core.
        runs: folder of unfinished runs.
    """
    missing = [run for run in gain_runs(seeds) if find_result(run) is None]
    side_by_side(partial(run_one, runs=runs.absolute()), missing, workers)


def run_one(run: GainRun, *, runs: Path) -> str:
    """Train and evaluate one run, write its result, and return a line about it."""
    manifest = changed(Manifest.read(fetch("emoji", size=SIZE)), run.change, run.seed)
    result, seconds = train_on(run, SETTINGS, manifest, runs=runs)
    add_summary(run, result, seconds)
    return f"{run.change}, {run.loss}, seed {run.seed}: H-AP {100 * result.summary['H-AP']:.2f}"


def changed(manifest: Manifest, change: Change, seed: int) -> Manifest:
    """The manifest after a change; every seed moves other classes and keeps other images."""
    generator = np.random.default_rng(seed)
    table = manifest.table.reset_index(drop=True)
    classes = table.drop_duplicates("emoji").set_index("emoji")[["group", "subgroup"]]
    moved = generator.permutation(len(classes))[: round(change.moved * len(classes))]
    places = classes.copy()
    # A cycle in random order: each takes the place of the next one, so subgroups keep their sizes.
    places.iloc[moved] = classes.iloc[np.roll(moved, 1)].to_numpy()
    table[["group", "subgroup"]] = places.loc[table["emoji"]].to_numpy()
    if change.images:
        order = table.loc[generator.permutation(len(table))]
        rank = order.groupby("emoji").cumcount().reindex(table.index)
        table = table[(table["split"] != "train") | (rank < change.images)]
    return Manifest(table, levels=change.levels, root=manifest.root, name=manifest.name)
