"""Can HAPPIER be beaten? Its chosen configuration on emoji with one change at a time, on held-out classes.

Heads on kept features, as in `tuned`; every change is trained with several seeds on four fifths of the
training classes, and evaluated on the other fifth. ``results/candidates-emoji.parquet`` has one row for each
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.results import find_result
from experiments.running import side_by_side
from experiments.tuned import FEATURES, TunedRun, prepare_features, read_methods, run_one
from happier.errors import ConfigError

AS_CHOSEN = "as it was chosen"
CHANGES: dict[str, tuple[str, ...]] = {
    AS_CHOSEN: (),
    "batches of 512": ("training.batch_size=512",),
    "batches of 1,024": ("training.batch_size=1024",),
    "ranked against 2,048 earlier images, too": ("training.memory=2048",),
    "ranked against 4,096 earlier images, too": ("training.memory=4096",),
    "batches from pairs of groups": ("sampler=hierarchical",),
    "twice as many steps": ("training.steps=480",),
    "1,024 hidden units": ("model.hidden=1024",),
    "512 dimensions": ("model.dim=512",),
    "no surrogate for H-rank": ("loss.hrank=false",),
    "a sigmoid": ("loss.surrogate=sigmoid",),
    "clustering with sigma 0.1": ("loss.sigma=0.1",),
}
SEEDS = (0, 1, 2)


def candidate_runs(change: str, seeds: Sequence[int] = SEEDS) -> list[TunedRun]:
    """The runs of a change.

    Raises:
        ConfigError: HAPPIER has not been tuned yet.
    """
    chosen = read_methods(FEATURES, "emoji")[0][0].final
    if not chosen:
        raise ConfigError("HAPPIER is not tuned: python -m experiments tuned features --set emoji")
    settings = dict(text.split("=", 1) for text in (*chosen[0].settings, *CHANGES[change]))
    run = replace(
        chosen[0], table="candidates-emoji", split="val", settings=tuple(map("=".join, settings.items()))
    )
    return [replace(run, seed=seed) for seed in seeds]


def measure_candidates(*, seeds: Sequence[int], workers: int, runs: Path) -> None:
    """Train and evaluate what has no result yet; it can be stopped at any time and run again.

    Args:
        seeds: of the runs.
        workers: parallel processes; each uses one core.
        runs: folder of features and unfinished runs.
    """
    prepare_features("emoji", runs)
    jobs = [run for change in CHANGES for run in candidate_runs(change, seeds)]
    missing = [run for run in sorted(jobs, key=lambda run: run.seed) if find_result(run) is None]
    side_by_side(partial(run_one, runs=runs), missing, workers)
