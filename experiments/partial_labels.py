"""What images are worth whose finest label is unknown: HAPPIER on emoji with fewer and fewer fine labels.

The finest label of a share of the training images is removed, at random. A model is trained on all images,
those that are only labelled down to the subgroup among them, and another one only on those that are fully
labelled. Both train for the same number of steps, and are evaluated on the test classes, whose labels are
whole. Two protocols: a head on kept features (``features``) and the whole network (``fine-tuning``).
``results/partial-emoji.parquet`` has one row for each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from experiments.built_trees import BUDGET, HEAD, SIZE
from experiments.results import find_result
from experiments.running import add_test_result, side_by_side, train_on
from happier.data import Manifest, fetch
from happier.errors import ConfigError, did_you_mean

REMOVED = (0.0, 0.25, 0.5, 0.75, 0.9)
SEEDS = (0, 1, 2)
PROTOCOLS = {
    "features": (*HEAD, *BUDGET),
    # As many steps as two epochs of all images.
    "fine-tuning": ("recipe=emoji", "optimizer.proxies.lr=0.05", "training.steps=72"),
}


@dataclass(frozen=True)
class PartialRun:
    """One training.

    Attributes:
        protocol: one of `PROTOCOLS`.
        removed: share of the training images whose finest label is removed.
        kept: whether those images are trained on.
        seed: of the training and of the choice of images.
    """

    protocol: str
    removed: float
    kept: bool
    seed: int

    @property
    def folder(self) -> str:
        """Name of the table."""
        return "partial-emoji"

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return "happier"

    @property
    def overrides(self) -> tuple[str, ...]:
        """What identifies the run in its table, beside the seed."""
        return f"protocol={self.protocol}", f"removed={self.removed:g}", f"partly={self.partly}"

    @property
    def partly(self) -> str:
        """What happens to the images that are partly labelled."""
        return "kept" if self.kept else "left out"


def partial_runs(protocol: str, seeds: Sequence[int] = SEEDS) -> list[PartialRun]:
    """The runs of a protocol, the first seed of all first; where nothing is removed nothing is left out."""
    return [
        PartialRun(protocol, removed, kept, seed)
        for seed in seeds
        for removed in REMOVED
        for kept in ((True, False) if removed else (True,))
    ]


def measure_partial_labels(protocol: str, *, seeds: Sequence[int], workers: int, runs: Path) -> None:
    """Train and evaluate what has no result yet; it can be stopped at any time and run again.

    Args:
        protocol: one of `PROTOCOLS`.
        seeds: of the runs.
        workers: parallel processes; each uses one core.
        runs: folder of unfinished runs.

    Raises:
        ConfigError: no such protocol.
    """
    if protocol not in PROTOCOLS:
        hint = did_you_mean(protocol, PROTOCOLS)
        raise ConfigError(f"no protocol {protocol!r}{hint}; there are {', '.join(PROTOCOLS)}")
    missing = [run for run in partial_runs(protocol, seeds) if find_result(run) is None]
    side_by_side(partial(run_one, runs=runs.absolute()), missing, workers)


def run_one(run: PartialRun, *, runs: Path) -> str:
    """Train and evaluate one run, write its result, and return a line about it."""
    whole = fetch("emoji", size=SIZE) if run.protocol == "features" else fetch("emoji")
    manifest = partly_labelled(Manifest.read(whole), run)
    result, seconds = train_on(run, PROTOCOLS[run.protocol], manifest, runs=runs, judge=whole)
    add_test_result(run, result, seconds)
    return f"{' '.join(run.overrides)} seed={run.seed}: H-AP {100 * result.summary['H-AP']:.2f}"


def partly_labelled(manifest: Manifest, run: PartialRun) -> Manifest:
    """The manifest without the finest label of some training images, or without those images."""
    train = np.flatnonzero(manifest.table["split"] == "train")
    generator = np.random.default_rng(run.seed)
    poor = np.sort(generator.permutation(train)[: round(run.removed * len(train))])
    if not run.kept:
        return manifest.take(np.setdiff1d(np.arange(len(manifest)), poor))
    finest = manifest.table[manifest.levels[-1]].copy()
    finest.iloc[poor] = ""
    table = manifest.table.assign(**{manifest.levels[-1]: finest})
    return Manifest(table, levels=manifest.levels, root=manifest.root, name=manifest.name)
