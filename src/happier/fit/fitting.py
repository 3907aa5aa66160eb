"""A fit from end to end: images, features, two trainings, evaluation, report, index."""

from __future__ import annotations

import hashlib
import logging
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from happier.data import Manifest
from happier.data.split import repeated_levels
from happier.errors import DataError, OptionError
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.protocol import splits_to_search
from happier.evaluation.result import Difference, compare
from happier.fit.directory import LOSSES, FitDirectory, FitRecord
from happier.fit.images import digest, prepare, read_source
from happier.progress import StageProgress, no_stages
from happier.report import ReportOptions, write_report
from happier.runs import Run, read_run
from happier.runs.comparison import Comparison, compare_runs, store
from happier.runs.run_features import FeatureSource, head_vectors
from happier.search import build_index
from happier.training.compose import compose, quoted
from happier.training.config import TrainConfig
from happier.training.loop import train
from happier.training.setup import build_encoder, build_fabric

__all__ = ["Fit", "FitOptions", "fit"]

log = logging.getLogger(__name__)
FROZEN = "without training"
_SET_HERE = ("recipe", "loss", "run", "data.manifest", "data.feature_folder", "evaluation.every")


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How to fit.

    Attributes:
        levels: names of the levels, coarse to fine.
        train: ``head``, ``all``, or None for all with a GPU and the head without.
        seed: of both trainings.
        overrides: further settings, as of ``happier train``.
    """

    levels: Sequence[str] | None = None
    train: str | None = None
    seed: int = 0
    overrides: Sequence[str] = ()


@dataclass(frozen=True)
class Fit:
    """What a fit came to.

    Attributes:
        directory: of the fit.
        images: that are used.
        left_out: how many are not, for each reason.
        notes: what a reader should know of the data.
        training: H-AP of the model minus that of the network without training.
        hierarchy: H-AP of the model minus that of the same training on fine classes alone.
        h_ap: of the model, of fine classes alone, and without training.
    """

    directory: FitDirectory
    images: int
    left_out: dict[str, int]
    notes: tuple[str, ...]
    training: Difference
    hierarchy: Difference
    h_ap: tuple[float, float, float]

    def lines(self) -> tuple[str, ...]:
        """The outcome in five lines."""
        model, fine, frozen = (100 * value for value in self.h_ap)
        place = self.directory
        tune = [
            "happier",
            "train",
            "recipe=folder",
            "model.train=all",
            f"model.start={place.run(LOSSES[0]).path}",
            f"data.manifest={place.manifest}",
            f"run={place.tuned}",
        ]
        return (
            f"{_verdict('Training', self.training)}: H-AP {model:.1f}, {frozen:.1f} {FROZEN} "
            f"({_interval(self.training)})",
            f"{_verdict('The hierarchy', self.hierarchy)}: H-AP {model:.1f}, {fine:.1f} with fine classes "
            f"alone ({_interval(self.hierarchy)})",
            f"Look: {place.page}",
            f"Serve: {shlex.join(['happier', 'serve', str(place.index)])}",
            f"Fine-tune further: {shlex.join(tune)}",
        )


def fit(
    source: Path, out: Path, options: FitOptions | None = None, *, progress: StageProgress = no_stages
) -> Fit:
    """Make a model of someone's images, compare it, and write a report and an index.

    Args:
        source: a folder of images in class folders, or a manifest.
        out: directory to write; a fit that is there goes on, and only what changed is made again.
        options: how.
        progress: called with each stage and how far it is.

    Raises:
        DataError: the images cannot be used, or `out` holds something else.
        BusyError: another command fits into the same directory.
    """
    options = options or FitOptions()
    directory = FitDirectory(out)
    directory.check()
    if source.is_dir() and directory.path.resolve().is_relative_to(source.resolve()):
        raise DataError(
            f"{out} is inside of {source}: its pictures would become images; choose another with -o"
        )
    config = _config(directory, LOSSES[0], options)
    given = read_source(source, options.levels)
    images, prepared = digest(given), None
    checking = lambda done, total: progress("checking", done, total)  # noqa: E731
    if directory.read().images != images:
        # Before anything is written: faulty images leave nothing behind.
        prepared = prepare(given, source, progress=checking)
    with directory.locked():
        # Only now: another fit may have changed the directory meanwhile.
        record, manifest = directory.read(), directory.read_manifest()
        if record.images != images or manifest is None:
            prepared = prepared or prepare(given, source, progress=checking)
            manifest = prepared.manifest
            record = record.model_copy(update={"images": images, "left_out": prepared.left_out})
            directory.write_manifest(manifest, record)
        found = _Fitting(directory, options, config, record, progress).run()
    if digest(given) != images:
        log.warning("images of %s were changed meanwhile; run it again to use them as they are now", source)
    return found


class _Fitting:
    """The stages after the images; each notes in the record what it was made of."""

    def __init__(
        self,
        directory: FitDirectory,
        options: FitOptions,
        config: TrainConfig,
        record: FitRecord,
        progress: StageProgress,
    ) -> None:
        self.directory, self.options, self.config, self.record = directory, options, config, record
        self.progress = progress
        # Read as others will read it, rather than as it was prepared.
        self.manifest = Manifest.read(directory.manifest)
        self.content = ""

    def run(self) -> Fit:
        """All stages."""
        frozen = self._frozen()
        self._train()
        model, fine = (
            read_run(self.directory.run(loss).path, progress=lambda *at: self.progress("embedding", *at))
            for loss in LOSSES
        )
        self.progress("evaluating", 0, 0)
        found = compare_runs((model, fine, frozen), EvaluationOptions(), resamples=0, reuse=True)
        store(found)
        self._report(found)
        self._index(model)
        results = [evaluation.results[0] for evaluation in found.evaluations]
        return Fit(
            self.directory,
            len(self.manifest),
            self.record.left_out,
            tuple(str(level) for level in repeated_levels(self.manifest)),
            compare(results[2], results[0])["H-AP"],
            compare(results[1], results[0])["H-AP"],
            (results[0].summary["H-AP"], results[1].summary["H-AP"], results[2].summary["H-AP"]),
        )

    def _frozen(self) -> Run:
        """The network without training: its features of every image, of which those to search make a run."""
        torch.manual_seed(self.config.seed)
        fabric = build_fabric(self.config)
        encoder = build_encoder(self.config, self.manifest, fabric).to(fabric.device)
        source = FeatureSource(folder=self.config.data.feature_folder)
        features = source.features(
            encoder,
            self.manifest,
            tuple(self.manifest.splits),
            progress=lambda *at: self.progress("computing features", *at),
        )
        self.content = digest(self.manifest, [content.hash for content in features.contents])
        searched = np.isin(self.manifest.table["split"], splits_to_search(self.manifest))
        vectors = np.asarray(features.vectors[searched], dtype=np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return Run(str(source.folder), FROZEN, vectors, self.manifest.take(np.flatnonzero(searched)))

    def _train(self) -> None:
        key = _digest(self.content, self.config)
        if self.record.training != key:
            self.directory.remove_runs()
            self._note(training=key)
        for loss in LOSSES:
            if not self.directory.run(loss).has_model:
                name = f"training {loss}"
                config = _config(self.directory, loss, self.options)
                train(config, progress=lambda done, total, name=name: self.progress(name, done, total))

    def _report(self, found: Comparison) -> None:
        key = "-".join([self.content, *(str(run.fingerprint) for run in found.runs)])
        if self.record.report == key and self.directory.page.is_file():
            return
        self.progress("reporting", 0, 0)
        command = shlex.join(["happier", "fit", "...", "-o", str(self.directory.path)])
        write_report(
            found.runs, self.directory.report, options=ReportOptions(commands=(command,), figures=False)
        )
        self._note(report=key)

    def _index(self, model: Run) -> None:
        key = f"{self.content}-{model.fingerprint}"
        if self.record.index == key and self.directory.index.is_dir():
            return
        self.progress("indexing", 0, 0)
        run = self.directory.run(LOSSES[0])
        encoder = run.read_model()
        vectors = head_vectors(run, encoder, self.manifest, tuple(self.manifest.splits))
        build_index(encoder, self.manifest, self.directory.index, overwrite=True, vectors=vectors).close()
        self._note(index=key)

    def _note(self, **parts: str) -> None:
        self.record = self.record.model_copy(update=parts)
        self.directory.write(self.record)


def _config(directory: FitDirectory, loss: str, options: FitOptions) -> TrainConfig:
    """The settings of one training; both losses get the same images, batches and steps.

    Raises:
        ConfigError: an override is faulty.
        OptionError: no such part to train.
    """
    part = options.train or ("all" if torch.cuda.is_available() else "head")
    if part not in ("all", "head"):
        raise OptionError(f"train must be head or all, got {part!r}")
    own = [text for text in options.overrides if text.split("=")[0] in _SET_HERE]
    if own:
        raise OptionError(f"{', '.join(own)}: `happier fit` sets {', '.join(_SET_HERE)} itself")
    config = compose(
        [
            "recipe=folder",
            f"model.train={part}",
            f"seed={options.seed}",
            "training.tensorboard=false",
            *options.overrides,
            f"loss={loss}",
            f"run={quoted(directory.run(loss).path)}",
            f"data.manifest={quoted(directory.manifest)}",
            # The last weights count: choosing the best by its figures on the test classes would flatter them.
            "evaluation.every=0",
        ]
    )
    folder = str(directory.feature_folder(_backbone_digest(config)))
    return replace(config, data=replace(config.data, feature_folder=folder))


def _backbone_digest(config: TrainConfig) -> str:
    """Of what features depend on, beside the images: the backbone, its weights, the preprocessing."""
    model, transform = config.model, config.transform
    random = model.pretrained is None and model.start is None
    parts = [model.backbone, model.pretrained, model.start, config.seed if random else None]
    parts += [transform.preset, transform.size, transform.normalize]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _digest(content: str, config: TrainConfig) -> str:
    settings = asdict(config)
    for place in ("manifest", "feature_folder"):
        del settings["data"][place]
    del settings["run"]
    return hashlib.sha256(f"{content} {settings!r}".encode()).hexdigest()


def _verdict(what: str, difference: Difference) -> str:
    if difference.low > 0:
        return f"{what} helped"
    return f"{what} did harm" if difference.high < 0 else f"{what} made no clear difference"


def _interval(difference: Difference) -> str:
    mean, low, high = (100 * value for value in (difference.mean, difference.low, difference.high))
    return f"{mean:+.1f}, 95 % interval {low:+.1f} to {high:+.1f}"
