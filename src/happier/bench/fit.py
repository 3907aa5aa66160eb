"""A whole fit of photographs against the bare pass of the same photographs through the same network.

Both run in a process of their own, one after the other, from nothing kept: the pass decodes every image and
computes its features; the fit also checks the images, trains two heads, evaluates, and writes report and
index.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import psutil

from happier.bench.photographs import write_photographs
from happier.fit import FitOptions, fit
from happier.fit.directory import FitDirectory
from happier.fit.images import read_source
from happier.fit.options import training_config
from happier.progress import Status
from happier.runs.run_features import FeatureSource
from happier.training.setup import build_encoder, build_fabric
from happier.vectors.image_pass import PassOptions

__all__ = ["FitCost", "measure_fit"]

_KINDS, _ITEMS = 10, 10
_BETWEEN_SAMPLES = 0.2


@dataclass(frozen=True)
class FitCost:
    """What one process cost.

    Attributes:
        what: the pass, or the fit.
        seconds: from its start to its end.
        memory: the most that it and its child processes held at once, in MiB; shared pages count once.
    """

    what: str
    seconds: float
    memory: float


def measure_fit(
    *, images: int = 10_000, overrides: Sequence[str] = ("transform.size=224",), status: Status
) -> list[FitCost]:
    """The cost of the bare pass and of a fit.

    Args:
        images: photographs of 500 x 375 pixels, in 100 classes of 10 kinds.
        overrides: settings of the fit.
        status: called with what is measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        status(f"writing {images:,} photographs")
        write_photographs(
            root.joinpath("photos", f"kind {n % _KINDS}", f"item {n % (_KINDS * _ITEMS)}", f"{n}.jpg")
            for n in range(images)
        )
        found = []
        options = FitOptions(train="head", overrides=tuple(overrides))
        for what, work in (("bare pass", _compute_features), ("fit", _fit)):
            status(what)
            found.append(_measure(what, work, root, options))
        return found


def _run(work: Callable[[Path, FitOptions], None], root: Path, options: FitOptions) -> None:
    """As a command would run it: a process that was spawned would spawn its own workers, too."""
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)
    work(root, options)


def _compute_features(root: Path, options: FitOptions) -> None:
    """Nothing but the features of all photographs."""
    config = training_config(FitDirectory(root / "pass"), options.loss, "head", options)
    manifest = read_source(root / "photos")
    fabric = build_fabric(config)
    encoder = build_encoder(config, manifest, fabric).to(fabric.device)
    source = FeatureSource(folder=str(root / "pass"), options=PassOptions(workers=config.data.workers))
    source.features(encoder, manifest, tuple(manifest.splits))


def _fit(root: Path, options: FitOptions) -> None:
    """All of it."""
    fit(root / "photos", root / "fit", options)


def _measure(what: str, work: Callable[[Path, FitOptions], None], root: Path, options: FitOptions) -> FitCost:
    start = time.perf_counter()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(work, root, options))
    process.start()
    ended, most = Event(), [0]
    assert process.pid is not None
    sampler = Thread(target=_sample, args=(process.pid, ended, most))
    sampler.start()
    process.join()
    seconds = time.perf_counter() - start
    ended.set()
    sampler.join()
    if process.exitcode:
        raise RuntimeError(f"{what} ended with exit code {process.exitcode}")
    return FitCost(what, seconds, most[0] / 2**20)


def _sample(pid: int, ended: Event, most: list[int]) -> None:
    while not ended.wait(_BETWEEN_SAMPLES):
        try:
            parent = psutil.Process(pid)
            family = [parent, *parent.children(recursive=True)]
            most[0] = max(most[0], sum(one.memory_full_info().pss for one in family))
        except psutil.NoSuchProcess:
            continue
