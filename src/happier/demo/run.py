"""The demo from end to end: images, three trainings, evaluation, one page. Finished parts are reused."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from happier.data import Manifest, MPerClassBatchSampler, fetch
from happier.data.fetching import fetched_manifest
from happier.data.importers import import_manifest
from happier.data.split import split_by_class
from happier.demo.eta import Clock, Moment
from happier.demo.training import Job, train_together, usable_cores
from happier.errors import CheckpointError, ConfigError, DataError, FetchError
from happier.losses import display_name
from happier.report import ReportOptions, write_report
from happier.runs import read_run
from happier.training.compose import compose, quoted
from happier.training.config import TrainConfig
from happier.training.run import open_run

# The model that the page is about, one trained on fine classes only, and HAPPIER with a wide
# sigmoid for the rank.
LOSSES = ("happier", "nsm", "happier_s")
FETCH_SECONDS, REPORT_SECONDS, START_SECONDS = 75.0, 80.0, 15.0
IMAGES_PER_SECOND = 100.0
"""Of 64 px, trained on one core: the guess until the runs' own pace is known."""


@dataclass(frozen=True)
class Budget:
    """How long to train.

    Attributes:
        name: of the budget.
        epochs: over the emoji.
        images: that each model sees when it is trained on other images, as if they had 64 px.
    """

    name: str
    epochs: int
    images: int


BUDGETS = {
    budget.name: budget
    for budget in (Budget("quick", 2, 9_000), Budget("default", 10, 45_000), Budget("full", 40, 180_000))
}


@dataclass(frozen=True)
class Demo:
    """The outcome of a demo.

    Attributes:
        page: the report.
        runs: the directories of the runs, in the order of the page.
        summary: six lines for people.
        seconds: that this call took.
    """

    page: Path
    runs: tuple[Path, ...]
    summary: tuple[str, ...]
    seconds: float


def demo(
    *,
    budget: Budget = BUDGETS["default"],
    data: Path | None = None,
    out: Path | None = None,
    seed: int = 0,
    epochs: int | None = None,
    tell: Callable[[Moment], None] | None = None,
) -> Demo:
    """Train HAPPIER, NSM and HAPPIER_S on the same images and batches, evaluate them, and write a page.

    The page compares HAPPIER with NSM, query by query, and shows HAPPIER_S alongside.

    Args:
        budget: how long to train.
        data: a folder of images in class folders, or a manifest; by default the emoji.
        out: directory of the runs and of the report.
        seed: of all trainings.
        epochs: instead of the budget's.
        tell: called with all progress.

    Raises:
        FetchError: the emoji are not there and cannot be fetched.
        TrainingError: a training failed.
    """
    started = time.monotonic()
    out = out or default_folder(budget, data, seed, epochs)
    ready = data is not None or fetched_manifest("emoji") is not None
    guesses = {
        "images": 0.0 if ready else FETCH_SECONDS,
        "train": training_seconds(budget, len(LOSSES), usable_cores()),
        "report": REPORT_SECONDS,
    }
    clock = Clock(guesses, tell or _silent)

    clock.start("images", "getting the images")
    manifest = _own_manifest(data, out) if data is not None else _fetch_emoji(clock)
    jobs = [_job(loss, manifest, out, budget, seed, epochs, own=data is not None) for loss in LOSSES]

    steps = sum(job.steps for job in jobs)
    done = sum(job.steps_done() for job in jobs)
    clock.start("train", "training", done / steps)
    names = _listed([display_name(job.name) for job in jobs if not job.is_done])
    train_together(
        jobs,
        lambda done: clock.update(done / steps, f"training {names}, {done:,} of {steps:,} steps"),
        log_folder=out / "logs",
    )

    clock.start("report", "reporting")
    page = out / "report" / "index.html"
    if not _is_current(page, jobs):
        _report(jobs, page.parent, clock, command=_command(budget, data, seed, epochs))
    return Demo(page, tuple(job.directory for job in jobs), summary_lines(page), time.monotonic() - started)


def default_folder(budget: Budget, data: Path | None, seed: int, epochs: int | None) -> Path:
    """Folder of a demo: the same for the same options, another for others.

    >>> default_folder(BUDGETS["quick"], None, 1, None).as_posix()
    'runs/demo-quick-seed1'
    """
    parts = ["demo"]
    if data is not None:
        parts.append(data.resolve().stem)
    if epochs is not None:
        parts.append(f"{epochs}-epochs")
    elif budget.name != "default":
        parts.append(budget.name)
    if seed:
        parts.append(f"seed{seed}")
    return Path("runs") / "-".join(parts)


def training_seconds(budget: Budget, models: int, cores: int) -> float:
    """A guess of how long training takes: as many models side by side as there are cores.

    >>> training_seconds(BUDGETS["quick"], 3, 1) / training_seconds(BUDGETS["quick"], 3, 3)
    3.0
    """
    waves = math.ceil(models / cores)
    # A last wave of few models gives each more cores, see `happier.demo.training.threads_of_each`.
    return waves * START_SECONDS + budget.images / IMAGES_PER_SECOND * max(1.0, models / cores)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _silent(moment: Moment) -> None:
    del moment


def _command(budget: Budget, data: Path | None, seed: int, epochs: int | None) -> str:
    words = ["happier demo"]
    if budget.name != "default":
        words.append(f"--{budget.name}")
    if data is not None:
        words.append(f"--data {data}")
    if seed:
        words.append(f"--seed {seed}")
    if epochs is not None:
        words.append(f"--epochs {epochs}")
    return " ".join(words)


def _fetch_emoji(clock: Clock) -> Path:
    def told(what: str, done: int, total: int) -> None:
        clock.update(0.0, f"{what}, {done:,} of {total:,}")

    try:
        return fetch("emoji", progress=told)
    except FetchError as error:
        raise FetchError(
            f"{error}. The demo's images come from npm packages, fetched once; without a network, try your "
            "own: happier demo --data FOLDER (FOLDER/<kind>/<item>/<image>)"
        ) from error


def _own_manifest(data: Path, out: Path) -> Path:
    """A manifest of the user's images with a training and a test split."""
    if data.suffix in (".parquet", ".csv"):
        manifest = Manifest.read(data)
    elif data.is_dir():
        manifest = import_manifest("folder", data)
    else:
        raise DataError(f"{data} is neither a folder of images nor a manifest (.parquet or .csv)")
    if "train" not in manifest.splits:
        raise DataError(f"{data} has no training images; its splits are {', '.join(manifest.splits)}")
    if not {"test", "query"} & manifest.splits.keys():
        manifest = split_by_class(manifest, seed=0)
    if manifest.name is None:
        manifest.name = data.resolve().stem
    return manifest.write(out / "manifest.parquet")


def _job(
    loss: str, manifest: Path, out: Path, budget: Budget, seed: int, epochs: int | None, *, own: bool
) -> Job:
    """The run of one loss; all losses get the same images, batches and steps."""
    directory = out / loss
    overrides = [
        f"recipe={'folder' if own else 'emoji'}",
        "model.train=all",
        f"loss={loss}",
        f"run={quoted(directory)}",
        f"data.manifest={quoted(manifest)}",
        f"seed={seed}",
        # The last weights count: choosing the best by its figures on the test classes would flatter them.
        "evaluation.every=0",
        "training.log_every=2",
        "training.checkpoint_minutes=1",
        "training.tensorboard=false",
    ]
    config = compose(overrides)
    labels = Manifest.read(manifest).select("train").labels()
    if own:
        overrides += _fitting(config, labels)
        config = compose(overrides)
    per_epoch = len(
        MPerClassBatchSampler(
            labels, batch_size=config.training.batch_size, per_class=config.sampler.per_class
        )
    )
    wanted = epochs or (_own_epochs(config, budget, per_epoch) if own else budget.epochs)
    overrides.append(f"training.epochs={wanted}")
    open_run(compose(overrides))
    return Job(loss, directory, tuple(overrides), wanted * per_epoch)


def _fitting(config: TrainConfig, labels: Any) -> list[str]:
    """A batch size that few classes can fill."""
    classes = len({tuple(row) for row in labels.tolist()})
    wanted = config.training.batch_size // config.sampler.per_class
    if classes >= wanted:
        return []
    if classes < 2:
        raise ConfigError(f"training needs images of at least 2 classes, got {classes}")
    return [f"training.batch_size={classes * config.sampler.per_class}"]


def _own_epochs(config: TrainConfig, budget: Budget, per_epoch: int) -> int:
    """As many epochs as cost the same as the budget's images of 64 px; cost grows with the pixels."""
    size = config.transform.size or 224
    images = budget.images * (64 / size) ** 2
    return max(2, math.ceil(images / (per_epoch * config.training.batch_size)))


def _report(jobs: list[Job], folder: Path, clock: Clock, *, command: str) -> None:
    # Embedding is about half of this stage, the page the other half.
    runs = []
    for place, job in enumerate(jobs):

        def embedded(done: int, total: int, place: int = place, name: str = display_name(job.name)) -> None:
            clock.update(0.5 * (place + done / total) / len(jobs), f"embedding with {name}")

        runs.append(read_run(job.directory, progress=embedded))
    stages = iter((0.5, 0.65, 0.75, 0.8, 0.9))

    def told(what: str) -> None:
        clock.update(next(stages, 0.95), f"report: {what}")

    write_report(runs, folder, options=ReportOptions(commands=(command,)), status=told)


def _is_current(page: Path, jobs: list[Job]) -> bool:
    """Whether the page is about exactly these models."""
    try:
        shown = [model["fingerprint"] for model in _read(page)["models"]]
        mine = [job.run.read_fingerprint() for job in jobs]
    except (CheckpointError, OSError, ValueError, KeyError, TypeError):
        return False
    return page.is_file() and shown == mine


def _read(page: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((page.parent / "data.json").read_text(encoding="utf-8"))
    return content


def summary_lines(page: Path) -> tuple[str, ...]:
    """Six lines about a report: a column for each model, and the difference of the first two."""
    data = _read(page)
    names = [model["name"] for model in data["models"]]
    rows = {row["key"]: row for row in data["metrics"]}
    coarse, fine = data["data"]["levels"][0], data["data"]["levels"][-1]
    near = [sum(level[-1] for level in shares[1:]) for shares in data["severity"]["shares"]]
    keys = ("H-AP", f"AP/{coarse}", f"AP/{fine}", f"R@1/{fine}")
    margin = max(len(key) for key in keys) + 1
    widths = [max(5, len(name)) for name in names]

    def line(key: str) -> str:
        means = [100 * value["mean"] for value in rows[key]["values"]]
        cells = [f"{mean:{width}.1f}" for mean, width in zip(means, widths, strict=True)]
        return "  ".join([f"{key.replace('/', ', ', 1):{margin}}", *cells, f"{means[0] - means[1]:+.1f}"])

    difference = rows["H-AP"]["difference"]
    interval = f"({100 * difference['low']:+.1f} to {100 * difference['high']:+.1f})"
    head = [f"{name:>{width}}" for name, width in zip(names, widths, strict=True)]
    right = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, near, strict=True))
    queries, classes = data["data"]["queries"], data["data"]["classes"][-1]
    first, *others = map(line, keys)
    return (
        "  ".join([" " * margin, *head, f"{names[0]} - {names[1]}"]),
        f"{first} {interval}",
        *others,
        f"Of the first {data['severity']['ks'][-1]} answers, of the right {coarse}: {right} "
        f"({queries:,} queries of {classes:,} classes).",
    )
