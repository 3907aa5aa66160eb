"""Every method tuned with the same effort, then run with several seeds: heads on features, whole networks.

Of every method the same number of configurations is drawn at random (the first is given), trained on
four fifths of the training classes, and evaluated on the other fifth. The best by H-AP is trained on all of
them with several seeds, and evaluated on the test classes. ``protocols.yaml`` has the two protocols: their
sets, methods and what is drawn; ``results/PROTOCOL-SET.parquet`` one row for each run.

A head takes seconds, so a process trains many: it loads its libraries and the features once. Commands that
run side by side share the work: a run that another one is training is left to it.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import yaml

from experiments.features import feature_array
from experiments.results import RunResult, find_result
from experiments.running import (
    add_summary,
    add_test_result,
    dyml_figures,
    evaluate,
    side_by_side,
    train_run,
)
from happier.data import fetch
from happier.errors import BusyError, ConfigError, did_you_mean
from happier.runs import read_run
from happier.training.compose import quoted

PROTOCOLS = Path(__file__).parent / "protocols.yaml"
FEATURES, FINE_TUNING = "features", "fine-tuning"


@dataclass(frozen=True)
class TunedRun:
    """One training.

    Attributes:
        protocol: a key of ``protocols.yaml``.
        set_name: the set of images.
        split: ``val`` to choose a configuration, ``test`` for the chosen one.
        settings: overrides of ``happier train``, without data and seed.
        seed: of the run.
    """

    protocol: str
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
        return f"{self.protocol}-{self.set_name}"

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
    tuning: tuple[TunedRun, ...]
    tuned_on: tuple[TunedRun, ...]
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
    def final(self) -> tuple[TunedRun, ...]:
        """The runs of the best configuration; none before all were tried."""
        if len(self.tried) < len(self.tuned_on):
            return ()
        best = self.tuning[int(np.argmax(self.tried))]
        return tuple(replace(best, split="test", seed=seed) for seed in self.seeds)

    @property
    def first(self) -> TunedRun:
        """The first of the final runs.

        Raises:
            ConfigError: not all configurations were tried yet.
        """
        if not self.final:
            run = self.tuning[0]
            raise ConfigError(
                f"{self.name} is not tuned: python -m experiments tuned {run.protocol} --set {run.set_name}"
            )
        return self.final[0]

    @property
    def results(self) -> dict[int, RunResult]:
        """Results of the final runs, by seed."""
        found = {run.seed: find_result(run) for run in self.final}
        return {seed: result for seed, result in found.items() if result is not None}


def read_protocol(name: str) -> dict[str, Any]:
    """One of the protocols of ``protocols.yaml``.

    Raises:
        ConfigError: there is no such protocol.
    """
    content: dict[str, dict[str, Any]] = yaml.safe_load(PROTOCOLS.read_text(encoding="utf-8"))
    if name not in content:
        raise ConfigError(
            f"no protocol {name!r}{did_you_mean(name, content)}; there are {', '.join(content)}"
        )
    return content[name]


def read_methods(protocol_name: str, set_name: str) -> list[list[Method]]:
    """The methods of a set, round after round.

    Raises:
        ConfigError: there is no such protocol, or it has no such set.
    """
    protocol = read_protocol(protocol_name)
    if set_name not in protocol["sets"]:
        hint = did_you_mean(set_name, protocol["sets"])
        raise ConfigError(f"no set {set_name!r}{hint}; there are {', '.join(protocol['sets'])}")
    chosen_on = protocol["sets"][set_name].get("tuned_on", set_name)
    rounds = []
    for entries in protocol["rounds"]:
        methods = []
        for name, entry in entries.items():
            tuning, tuned_on = (
                tuple(
                    TunedRun(protocol_name, one, "val", settings, seed=0)
                    for settings in _configurations(protocol, one, name, entry)
                )
                for one in (set_name, chosen_on)
            )
            methods.append(Method(name, tuning, tuned_on, tuple(protocol["seeds"])))
        rounds.append(methods)
    return rounds


def find_method(protocol: str, set_name: str, name: str) -> Method:
    """One method of a set, by its name in print."""
    return next(one for methods in read_methods(protocol, set_name) for one in methods if one.name == name)


def _configurations(
    protocol: Mapping[str, Any], set_name: str, name: str, entry: Mapping[str, Any]
) -> list[tuple[str, ...]]:
    ranges = {**protocol["space"], **entry["space"], **(protocol["proxies"] if entry.get("proxies") else {})}
    first = (*protocol["base"], *protocol["sets"][set_name].get("base", ()), f"loss={entry['loss']}")
    drawn = draw(ranges, protocol["configurations"] - 1, seed=crc32(name.encode()))
    return [(*first, *values) for values in (tuple(protocol.get("first", ())), *drawn)]


def draw(ranges: Mapping[str, Sequence[float]], number: int, *, seed: int) -> list[tuple[str, ...]]:
    """Configurations at random.

    Args:
        ranges: two numbers for the ends of a range, log-uniform, more for choices.
        number: of configurations.
        seed: of the choice.

    >>> draw({"lr": [1e-3, 1e-1], "dropout": [0, 0.3, 0.5]}, 2, seed=0)
    [('lr=0.0188', 'dropout=0.3'), ('lr=0.00121', 'dropout=0')]
    """
    generator = np.random.default_rng(seed)

    def value(ends: Sequence[float]) -> float:
        ends = [float(end) for end in ends]
        if len(ends) > 2:
            return float(generator.choice(ends))
        return float(np.exp(generator.uniform(*np.log(ends))))

    return [tuple(f"{key}={value(ends):.3g}" for key, ends in ranges.items()) for _ in range(number)]


def run_protocol(
    protocol: str, set_name: str, *, workers: int, runs: Path, methods: Sequence[str] | None = None
) -> None:
    """Tune every method of a set, then run the chosen configurations; what has a result is not run again.

    Args:
        protocol: a key of ``protocols.yaml``.
        set_name: one of its sets.
        workers: parallel processes; each uses one core.
        runs: folder of features and unfinished runs.
        methods: only these; None for all.

    Raises:
        ConfigError: there is no such protocol, set or method.
    """
    rounds = read_methods(protocol, set_name)
    known = [one.name for methods_of_round in rounds for one in methods_of_round]
    if unknown := [name for name in methods or () if name not in known]:
        hint = did_you_mean(unknown[0], known)
        raise ConfigError(f"{protocol} has no method {unknown[0]!r}{hint}; it has {', '.join(known)}")
    for methods_of_round in rounds:
        chosen = [one for one in methods_of_round if not methods or one.name in methods]
        run_missing([one.tuned_on for one in chosen], workers, runs)
        run_missing([one.final for one in chosen], workers, runs)


def run_missing(of_methods: Sequence[Sequence[TunedRun]], workers: int, runs: Path) -> None:
    """Run what has no result, the first run of every method first: an interruption leaves as many of each.

    Args:
        of_methods: the runs of each method.
        workers: parallel processes; each uses one core.
        runs: folder of features and unfinished runs.
    """
    jobs = [run for trial in zip_longest(*of_methods) for run in trial if run is not None]
    missing = [run for run in jobs if find_result(run) is None]
    for set_name in {run.set_name for run in missing if run.protocol == FEATURES}:
        prepare_features(set_name, runs)  # once, before the workers ask for them
    side_by_side(partial(run_one, runs=runs), missing, workers)


def run_one(run: TunedRun, *, runs: Path) -> str:
    """Train and evaluate one run, write its result, and return a line about it."""
    if find_result(run) is not None:
        return f"{run.folder} {' '.join(run.overrides)}: done by another process"
    started = time.process_time()
    try:
        directory = train_tuned(run, runs)
    except BusyError:
        return f"{run.directory(runs)}: left to another process"
    trained = read_run(directory, split=run.split)
    result = evaluate(trained, split=run.split)
    if run.split == "test":
        add_test_result(run, result, time.process_time() - started, dyml=dyml_figures(trained))
    else:
        add_summary(run, result, time.process_time() - started)
    shutil.rmtree(directory, ignore_errors=True)
    return f"{run.folder} {' '.join(run.overrides)} seed={run.seed}: H-AP {100 * result.summary['H-AP']:.2f}"


def train_tuned(run: TunedRun, runs: Path) -> Path:
    """Train a run, or continue it, and return its directory.

    Raises:
        BusyError: another process is training it.
    """
    settings = list(run.settings)
    if run.protocol == FEATURES:
        settings.append(f"data.features={quoted(prepare_features(run.set_name, runs))}")
    manifest = _manifest(run.protocol, run.set_name, held_out=run.split == "val")
    train_run(settings, run.directory(runs), manifest, seed=run.seed)
    return run.directory(runs)


def prepare_features(set_name: str, runs: Path) -> Path:
    """The file with the features of a set, computed if missing."""
    entry = read_protocol(FEATURES)["sets"][set_name]
    return feature_array(
        runs.absolute() / "features" / f"{set_name}.npy",
        _manifest(FEATURES, set_name, held_out=False),
        side=max(entry["size"], 128),
        model=entry.get("model", "efficientnet_lite0"),
    )


def _manifest(protocol: str, set_name: str, *, held_out: bool) -> Path:
    """The manifest of a set; with and without held-out classes its rows are the same, in the same order."""
    values = read_protocol(protocol)
    entry = values["sets"][set_name]
    return fetch(entry["data"], size=entry["size"], val=values["val"] if held_out else 0.0)
