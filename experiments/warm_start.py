"""Head first, then everything? One network at the same cost in four ways, on classes that were not seen.

    frozen                  the features as they are
    head                    a head on the kept features
    fine-tuned              backbone and head together, from the start
    head, then fine-tuned   the trained head is where fine-tuning starts

Batch norm stays frozen while the backbone moves. What the head costs, its pass over the images included, the
last way has less for fine-tuning: an epoch or more. CPU seconds are noted with every figure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.results import RunResult, find_result
from experiments.running import add_test_result, evaluate_run, train_run
from happier.arrays import Float32Array
from happier.data import Manifest, fetch
from happier.encoder import Encoder
from happier.encoder.features import FeatureStore
from happier.evaluation.protocol import evaluate_manifest
from happier.runs import RunDirectory
from happier.training.compose import quoted

FROZEN, HEAD, ALL, BOTH = WAYS = ("frozen", "head", "fine-tuned", "head, then fine-tuned")
SIZE, SEEDS = 128, range(5)
EPOCHS = {"emoji": (3, 2), "wesnoth": (10, 8)}
"""Of fine-tuning from the start, and after a head that has cost the rest."""
_COMMON = ("transform=small", f"transform.size={SIZE}", "transform.normalize=backbone", "loss=happier")
_TUNED = (
    "recipe=folder_cpu",
    "model.train=all",
    "model.freeze_batch_norm=true",
    "optimizer.lr=3e-4",
    "training.steps=null",
    "training.batch_size=128",
)


@dataclass(frozen=True)
class WarmStart:
    """One way on one set, a row of ``results/warm-start-SET.parquet``.

    Attributes:
        set_name: ``emoji`` or ``wesnoth``.
        way: one of `WAYS`.
        seed: of the run.
    """

    set_name: str
    way: str
    seed: int
    loss: str = "happier"

    @property
    def folder(self) -> str:
        """Name of the table."""
        return f"warm-start-{self.set_name}"

    @property
    def overrides(self) -> tuple[str, ...]:
        """What identifies the run in its table, beside the seed."""
        return (f"way={self.way}",)

    def settings(self, head: Path) -> tuple[str, ...]:
        """Of ``happier train``; the last way starts at the run `head`."""
        alone, after = EPOCHS[self.set_name]
        return {
            HEAD: ("recipe=folder_cpu",),
            ALL: (*_TUNED, f"training.epochs={alone}"),
            BOTH: (*_TUNED, f"training.epochs={after}", f"model.start={quoted(head)}"),
        }[self.way]


def warm_starts(set_name: str, way: str) -> list[WarmStart]:
    """The runs that there may be of a way."""
    return [WarmStart(set_name, way, seed) for seed in SEEDS]


def measure_warm_start(set_name: str, runs: Path, *, seeds: Sequence[int]) -> None:
    """Train and evaluate what has no figures yet; it can be stopped at any time and run again."""
    manifest = fetch(set_name, size=192)
    for seed in seeds:
        head = runs / f"warm-start-{set_name}" / f"{HEAD},seed={seed}"
        for way in (HEAD, FROZEN, ALL, BOTH):
            run = WarmStart(set_name, way, seed)
            found = find_result(run)
            if found is None:
                found = _measure(run, manifest, head)
            cost = found.details["cpu_seconds"]
            print(f"{set_name}, {way}, seed {seed}: H-AP {100 * found.summary['H-AP']:.2f}, {cost} CPU s")


def _measure(run: WarmStart, manifest: Path, head: Path) -> RunResult:
    if run.way in (FROZEN, BOTH):
        # Its weights are not kept with its figures: a clone has the latter alone.
        head_run = replace(run, way=HEAD)
        train_run([*_COMMON, *head_run.settings(head)], head, manifest, seed=run.seed)
    directory, started = head.with_name(f"{run.way},seed={run.seed}"), time.process_time()
    if run.way == FROZEN:
        test = Manifest.read(manifest).select("test")
        result = evaluate_manifest(_frozen(head, test), test, split="test").results[0]
    else:
        train_run([*_COMMON, *run.settings(head)], directory, manifest, seed=run.seed)
        result = evaluate_run(directory)
    return add_test_result(run, result, time.process_time() - started)


def _frozen(head: Path, test: Manifest) -> Float32Array:
    """Unit vectors of the features that the head was trained on."""
    encoder: Encoder = RunDirectory(head).read_model()
    vectors = np.asarray(FeatureStore.open_or_compute(encoder, test).vectors, dtype=np.float32)
    unit: Float32Array = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
