"""The features protocol: heads on kept features of a frozen network, every method tuned with the same effort.

Of every method the same number of configurations is drawn at random (the first is the defaults), trained on
four fifths of the training classes, and evaluated on the other fifth. The best by H-AP is trained on all of
them with several seeds, and evaluated on the test classes. ``features.yaml`` has the sets, the methods and
what is drawn; ``results/features-SET.parquet`` one row for each run.

A run takes seconds, so a process trains many: it loads its libraries and the features once. Commands that run
side by side share the work: a run that another one is training is left to it.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import yaml

from experiments.results import RunResult, StoredRun, add_classes, add_result, find_result
from experiments.running import KINDS, side_by_side
from happier.arrays import Float32Array, FloatArray, IntArray
from happier.data import Manifest, fetch
from happier.errors import BusyError, ConfigError, did_you_mean
from happier.evaluation import Result
from happier.evaluation.protocol import evaluate_manifest
from happier.storage.atomic import atomic_file
from happier.storage.lock import locked

PROTOCOL = Path(__file__).parent / "features.yaml"


@dataclass(frozen=True)
class FeatureRun:
    """One head.

    Attributes:
        set_name: the set of images and features.
        split: ``val`` to choose a configuration, ``test`` for the chosen one.
        settings: overrides of ``happier train``, without data and seed.
        seed: of the run.
    """

    set_name: str
    split: str
    settings: tuple[str, ...]
    seed: int

    @property
    def loss(self) -> str:
        """Name of the loss."""
        return next(text.removeprefix("loss=") for text in self.settings if text.startswith("loss="))

    @property
    def folder(self) -> str:
        """Name of the table."""
        return f"features-{self.set_name}"

    @property
    def overrides(self) -> tuple[str, ...]:
        """What identifies the run in its table, beside the seed."""
        return (f"split={self.split}", *self.settings)

    def directory(self, runs: Path) -> Path:
        """Where it is trained; removed when its result is written."""
        digest = hashlib.blake2b(repr(self).encode(), digest_size=8).hexdigest()
        return runs / self.folder / digest


@dataclass(frozen=True)
class Method:
    """The runs of one method on one set.

    Attributes:
        name: in print.
        tuning: a run for each configuration.
        tuned_on: the same on the set that its configuration is chosen on; `tuning` where that is this set.
        seeds: of the final runs.
    """

    name: str
    tuning: tuple[FeatureRun, ...]
    tuned_on: tuple[FeatureRun, ...]
    seeds: tuple[int, ...]

    @property
    def tried(self) -> list[float]:
        """H-AP on held-out classes of the configurations that have run."""
        return [found.summary["H-AP"] for run in self.tuned_on if (found := find_result(run)) is not None]

    @property
    def drawn(self) -> set[str]:
        """The settings that differ between the configurations."""
        return {text for run in self.tuning for text in run.settings} - set(self.tuning[0].settings)

    @property
    def final(self) -> tuple[FeatureRun, ...]:
        """The runs of the best configuration; none before all were tried."""
        if len(self.tried) < len(self.tuned_on):
            return ()
        best = self.tuning[int(np.argmax(self.tried))]
        return tuple(FeatureRun(best.set_name, "test", best.settings, seed) for seed in self.seeds)

    @property
    def results(self) -> dict[int, RunResult]:
        """Results of the final runs, by seed."""
        found = {run.seed: find_result(run) for run in self.final}
        return {seed: result for seed, result in found.items() if result is not None}


def read_protocol() -> dict[str, Any]:
    """The content of ``features.yaml``."""
    content: dict[str, Any] = yaml.safe_load(PROTOCOL.read_text(encoding="utf-8"))
    return content


def read_methods(set_name: str) -> list[list[Method]]:
    """The methods of a set, round after round.

    Raises:
        ConfigError: there is no such set.
    """
    protocol = read_protocol()
    if set_name not in protocol["sets"]:
        hint = did_you_mean(set_name, protocol["sets"])
        raise ConfigError(f"no set {set_name!r}{hint}; there are {', '.join(protocol['sets'])}")
    chosen_on = protocol["sets"][set_name].get("tuned_on", set_name)
    rounds = []
    for entries in protocol["rounds"]:
        methods = []
        for name, entry in entries.items():
            tuning, tuned_on = (_tuning(protocol, one, name, entry) for one in (set_name, chosen_on))
            methods.append(Method(name, tuning, tuned_on, tuple(protocol["seeds"])))
        rounds.append(methods)
    return rounds


def _tuning(
    protocol: Mapping[str, Any], set_name: str, name: str, entry: Mapping[str, Any]
) -> tuple[FeatureRun, ...]:
    ranges = {**protocol["space"], **entry["space"], **(protocol["proxies"] if entry.get("proxies") else {})}
    first = (*protocol["base"], *protocol["sets"][set_name].get("base", ()), f"loss={entry['loss']}")
    drawn = draw(ranges, protocol["configurations"], seed=crc32(name.encode()))
    return tuple(FeatureRun(set_name, "val", (*first, *values), seed=0) for values in drawn)


def draw(ranges: Mapping[str, Sequence[float]], number: int, *, seed: int) -> list[tuple[str, ...]]:
    """Configurations at random, after the one that sets nothing.

    Args:
        ranges: two numbers for the ends of a range, log-uniform, more for choices.
        number: of configurations.
        seed: of the choice.

    >>> draw({"lr": [1e-3, 1e-1], "dropout": [0, 0.3, 0.5]}, 3, seed=0)
    [(), ('lr=0.0188', 'dropout=0.3'), ('lr=0.0012', 'dropout=0')]
    """
    generator = np.random.default_rng(seed)

    def value(ends: Sequence[float]) -> float:
        ends = [float(end) for end in ends]
        if len(ends) > 2:
            return float(generator.choice(ends))
        return float(np.exp(generator.uniform(*np.log(ends))))

    drawn = [tuple(f"{key}={value(ends):.3g}" for key, ends in ranges.items()) for _ in range(number - 1)]
    return [(), *drawn]


def run_features(set_name: str, *, workers: int, runs: Path, methods: Sequence[str] | None = None) -> None:
    """Tune every method of a set, then run the chosen configurations; what has a result is not run again.

    Args:
        set_name: one of the sets.
        workers: parallel processes; each uses one core.
        runs: folder of features and unfinished runs.
        methods: only these; None for all.
    """
    feature_array(set_name, runs)
    for methods_of_round in read_methods(set_name):
        chosen = [one for one in methods_of_round if not methods or one.name in methods]
        _run_missing([one.tuned_on for one in chosen], workers, runs)
        _run_missing([one.final for one in chosen], workers, runs)


def _run_missing(of_methods: Sequence[Sequence[FeatureRun]], workers: int, runs: Path) -> None:
    """Run what has no result, the first run of every method first: an interruption leaves as many of each."""
    jobs = [run for trial in zip_longest(*of_methods) for run in trial if run is not None]
    missing = [run for run in jobs if find_result(run) is None]
    side_by_side(partial(run_one, runs=runs), missing, workers)


def run_one(run: FeatureRun, *, runs: Path) -> str:
    """Train and evaluate one head, write its result, and return a line about it."""
    from happier.runs import read_run
    from happier.training.compose import compose, quoted
    from happier.training.loop import train

    if find_result(run) is not None:
        return f"{run.folder} {' '.join(run.overrides)}: done by another process"
    directory, started = run.directory(runs), time.process_time()
    config = compose(
        [
            *run.settings,
            f"seed={run.seed}",
            f"run={quoted(directory)}",
            f"data.manifest={quoted(_manifest(run.set_name, held_out=run.split == 'val'))}",
            f"data.features={quoted(feature_array(run.set_name, runs))}",
            "evaluation.every=0",  # the last weights are used; nothing is chosen on what is evaluated
            "training.tensorboard=false",
        ]
    )
    try:
        train(config)
    except BusyError:
        return f"{directory}: left to another process"
    trained = read_run(directory, split=run.split)
    result = evaluate_manifest(trained.vectors, trained.manifest, split=run.split).results[0]
    seconds = time.process_time() - started
    if run.split == "test":
        add_test_result(run, result, seconds)
    else:
        add_summary(run, result, seconds)
    shutil.rmtree(directory, ignore_errors=True)
    return f"{run.folder} {' '.join(run.overrides)} seed={run.seed}: H-AP {100 * result.summary['H-AP']:.2f}"


def train_on(
    run: StoredRun, settings: Sequence[str], manifest: Manifest, *, runs: Path, judge: Path | None = None
) -> tuple[Result, float]:
    """Train on a manifest and evaluate on its test classes; returns the result and the CPU seconds.

    Args:
        run: names the directory, which is removed at the end.
        settings: overrides of ``happier train``.
        manifest: the images to train on.
        runs: folder of unfinished runs.
        judge: a manifest with the labels to evaluate under; None for the same.
    """
    from happier.runs import read_run
    from happier.training.compose import compose, quoted
    from happier.training.loop import train

    name = ",".join((*run.overrides, f"loss={run.loss}", f"seed={run.seed}"))
    directory, started = runs / run.folder / name, time.process_time()
    written = manifest.write(runs / run.folder / f"{name}.parquet")
    config = compose(
        [
            *settings,
            f"loss={run.loss}",
            f"data.manifest={quoted(written)}",
            f"run={quoted(directory)}",
            f"seed={run.seed}",
            "data.workers=0",
            "evaluation.every=0",  # the last weights are used; nothing is chosen on what is evaluated
            "training.tensorboard=false",
        ]
    )
    train(config)
    trained = read_run(directory, manifest=judge or written, split="test")
    result = evaluate_manifest(trained.vectors, trained.manifest, split="test").results[0]
    shutil.rmtree(directory, ignore_errors=True)
    written.unlink()
    return result, time.process_time() - started


def add_test_result(run: StoredRun, result: Result, seconds: float) -> None:
    """Add the row of a run that was evaluated on test classes, with the mean H-AP of each class."""
    assert result.classes is not None
    means, classes = class_means(result.per_query["H-AP"], result.classes)
    add_classes(run.folder, classes)
    add_result(run, _stored(result, means, seconds))


def add_summary(run: StoredRun, result: Result, seconds: float) -> None:
    """Add the row of a run without anything of single classes."""
    add_result(run, _stored(result, np.empty(0), seconds))


def _stored(result: Result, means: FloatArray, seconds: float) -> RunResult:
    summary = {name: round(value, 6) for name, value in result.summary.items() if name.startswith(KINDS)}
    details = {"queries": result.summary["queries"], "cpu_seconds": round(seconds, 1)}
    return RunResult(summary, {}, means, details)


def class_means(values: FloatArray, classes: IntArray) -> tuple[FloatArray, IntArray]:
    """Means over the queries of each class ``[C]``, and the number 0 to C-1 of each query's class.

    Queries that are undefined are left out. ``means[numbers]`` has the same mean as the values, in a fraction
    of the space.

    >>> class_means(np.array([0.5, 1.0, 0.25, np.nan]), np.array([3, 3, 1, 1]))
    (array([0.25, 0.75]), array([1, 1, 0]))
    """
    defined = ~np.isnan(values)
    _, numbers = np.unique(classes[defined], return_inverse=True)
    return np.bincount(numbers, weights=values[defined]) / np.bincount(numbers), numbers


def feature_array(set_name: str, runs: Path) -> Path:
    """The features of a set's images as an array, a row for each row of its manifest; computed if missing."""
    return _feature_array(set_name, runs.absolute())


@cache
def _feature_array(set_name: str, runs: Path) -> Path:
    path = runs / "features" / f"{set_name}.npy"
    with locked(path.parent):
        if not path.exists():
            vectors = _features(set_name)
            with atomic_file(path) as part, part.open("wb") as file:
                np.save(file, vectors)
    return path


def _features(set_name: str) -> Float32Array:
    entry = read_protocol()["sets"][set_name]
    manifest = _manifest(set_name, held_out=False)
    model = entry.get("model", "efficientnet_lite0")
    return backbone_features(manifest, Manifest.read(manifest), side=max(entry["size"], 128), model=model)


def backbone_features(
    path: Path, rows: Manifest, *, side: int, model: str = "efficientnet_lite0"
) -> Float32Array:
    """Features of a frozen network of some rows of a manifest; those computed before are read.

    Args:
        path: of the manifest.
        rows: of it.
        side: of the images, in pixels.
        model: the network.
    """
    from happier.encoder.features import FeatureStore
    from happier.training.compose import compose, quoted
    from happier.training.setup import build_encoder, build_fabric

    config = compose(
        [
            "recipe=folder_head",
            f"model={model}",
            "model.train=head",
            "transform=small",
            f"transform.size={side}",
            "transform.normalize=backbone",
            f"data.manifest={quoted(path)}",
        ]
    )
    return FeatureStore.open_or_compute(build_encoder(config, rows, build_fabric(config)), rows).vectors


def _manifest(set_name: str, *, held_out: bool) -> Path:
    """The manifest of a set; with and without held-out classes its rows are the same, in the same order."""
    protocol = read_protocol()
    entry = protocol["sets"][set_name]
    return fetch(entry["data"], size=entry["size"], val=protocol["val"] if held_out else 0.0)
