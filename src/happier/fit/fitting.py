"""A fit from end to end: images, features, heads, fine-tuning where it is asked for, report, index."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import Final

import numpy as np
import torch

from happier.data import Manifest
from happier.data.split import repeated_levels
from happier.encoder.features import Features
from happier.errors import DataError, UnreadableImagesError
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.protocol import splits_to_search
from happier.evaluation.result import compare
from happier.fit.clock import Clock, Tell, no_moments
from happier.fit.directory import FitDirectory, FitRecord, Part
from happier.fit.images import digest, prepare, read_source
from happier.fit.options import FitOptions, settings_digest, training_config
from happier.fit.outcome import FROZEN, Fit, further_tuning
from happier.losses import display_name
from happier.report import ReportOptions, write_report
from happier.runs import Run, read_run
from happier.runs.comparison import Comparison, compare_runs, store
from happier.runs.run_features import FeatureSource, head_vectors
from happier.search import build_index
from happier.training.config import TrainConfig
from happier.training.loop import train
from happier.training.setup import build_encoder, build_fabric
from happier.vectors.image_pass import PassOptions

__all__ = ["fit"]

log = logging.getLogger(__name__)
# Seconds on one CPU core, until the pace of a stage is known; of images of 224 px.
_DECODE_IMAGE: Final = 2e-3
_COMPUTE_FEATURES: Final = 1e-2
_HEAD_STEP_IMAGE: Final = 2e-4
_TUNE_IMAGE: Final = 8e-2
_INDEX_IMAGE: Final = 2e-4
_EVALUATE: Final = 3.0
_REPORT: Final = 25.0
_VERBS: Final[dict[Part, str]] = {"head": "training", "all": "fine-tuning"}


def fit(source: Path, out: Path, options: FitOptions | None = None, *, tell: Tell = no_moments) -> Fit:
    """Make a model of someone's images, compare it, and write a report and an index.

    Args:
        source: a folder of images in class folders, or a manifest.
        out: directory to write; an existing fit is resumed, and only what changed is made again.
        options: how.
        tell: called with each stage, how far it is, and the time that is left for all of them.

    Raises:
        DataError: the images cannot be used, or `out` holds something else.
        BusyError: another command fits into the same directory.
    """
    options = options or FitOptions()
    directory, clock = FitDirectory(out), Clock(tell)
    directory.check()
    if source.is_dir() and directory.path.resolve().is_relative_to(source.resolve()):
        raise DataError(
            f"{out} is inside {source}, so its pictures would be taken as images; "
            "choose another directory with -o"
        )
    configs = {
        (part, loss): training_config(directory, loss, part, options)
        for part in options.parts
        for loss in options.losses
    }
    given = read_source(source, options.levels)
    clock.plan(_guesses(len(given), configs))
    images = digest(given)
    network = _FrozenNetwork(configs["head", options.loss], given, clock)
    with directory.locked():
        # Only now: another fit may have changed the directory meanwhile.
        record = directory.read()
        if record.images != images or directory.read_manifest() is None:
            with directory.begun(record):
                prepared = prepare(given, source, *network.read(given))
            record = record.model_copy(update={"images": images, "left_out": prepared.left_out})
            directory.write_manifest(prepared.manifest, record)
        found = _Fitting(directory, options, configs, record, network, clock).run(source)
    if digest(given) != images:
        log.warning("images of %s were changed meanwhile; run it again to use them as they are now", source)
    return found


class _FrozenNetwork:
    """The network without training, and its features of images, which are kept.

    Args:
        config: of a head.
        manifest: of images.
        clock: told of the images.
    """

    def __init__(self, config: TrainConfig, manifest: Manifest, clock: Clock) -> None:
        self.folder, self.workers = config.data.feature_folder, config.data.workers
        self.clock = clock
        torch.manual_seed(config.seed)
        fabric = build_fabric(config)
        self.encoder = build_encoder(config, manifest, fabric).to(fabric.device)

    def features(self, manifest: Manifest, *, to_the_end: bool = False) -> Features:
        """Of every image.

        Raises:
            ImageError: an image cannot be read; see `PassOptions`.
        """
        source = FeatureSource(
            folder=self.folder, options=PassOptions(workers=self.workers, to_the_end=to_the_end)
        )
        return source.features(
            self.encoder,
            manifest,
            tuple(manifest.splits),
            progress=lambda *at: self.clock("computing features", *at),
        )

    def read(self, manifest: Manifest) -> tuple[dict[Path, str], dict[Path, str]]:
        """Compute the features of all images that can be read.

        Returns:
            The hash of each image's content, and why the others cannot be read.
        """
        files, unreadable = manifest.files(), dict[Path, str]()
        while rows := [row for row, file in enumerate(files) if file not in unreadable]:
            try:
                contents = self.features(manifest.take(rows), to_the_end=True).contents
            except UnreadableImagesError as error:
                unreadable |= {Path(file): reason for file, reason in error.reasons.items()}
            else:
                hashes = (content.hash for content in contents)
                return dict(zip((files[row] for row in rows), hashes, strict=True)), unreadable
        return {}, unreadable


class _Fitting:
    """The stages after the images; each notes in the record what it was made of."""

    def __init__(
        self,
        directory: FitDirectory,
        options: FitOptions,
        configs: dict[tuple[Part, str], TrainConfig],
        record: FitRecord,
        network: _FrozenNetwork,
        clock: Clock,
    ) -> None:
        self.directory, self.options, self.configs, self.record = directory, options, configs, record
        self.network, self.clock = network, clock
        # Read as others will read it, rather than as it was prepared.
        self.manifest = Manifest.read(directory.manifest)
        self.content = ""
        self.last = options.parts[-1]

    def run(self, source: Path) -> Fit:
        """All stages."""
        frozen = self._frozen()
        for part in self.options.parts:
            self._train(part)
        runs = [self._read(self.last, loss) for loss in self.options.losses]
        if self.last == "all":
            runs.append(self._read("head", self.options.loss))
        self.clock("evaluating", 0, 0)
        found = compare_runs((*runs, frozen), EvaluationOptions(), resamples=0, reuse=True)
        store(found)
        self._report(found, source)
        self._index(runs[0])
        model, fine, *head, untrained = (evaluation.results[0] for evaluation in found.evaluations)
        tune = (
            further_tuning(self.directory, self.options.loss)
            if head
            else self.options.tuning_words(source, self.directory.path)
        )
        return Fit(
            self.directory,
            self.options.losses,
            len(self.manifest),
            self.record.left_out,
            tuple(str(level) for level in repeated_levels(self.manifest)),
            compare(untrained, model)["H-AP"],
            compare(fine, model)["H-AP"],
            (model.summary["H-AP"], fine.summary["H-AP"], untrained.summary["H-AP"]),
            head[0].summary["H-AP"] if head else None,
            tune,
        )

    def _frozen(self) -> Run:
        """The network without training: its features of every image, of which those to search make a run."""
        features = self.network.features(self.manifest)
        self.content = digest(self.manifest, [content.hash for content in features.contents])
        searched = np.isin(self.manifest.table["split"], splits_to_search(self.manifest))
        vectors = np.asarray(features.vectors[searched], dtype=np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return Run(str(self.network.folder), FROZEN, vectors, self.manifest.take(np.flatnonzero(searched)))

    def _train(self, part: Part) -> None:
        """Train both losses, unless that was done with the same images and settings."""
        name = "training" if part == "head" else "tuning"
        key = settings_digest(
            self.record.training if part == "all" else self.content,
            *(self.configs[part, loss] for loss in self.options.losses),
        )
        if getattr(self.record, name) != key:
            self.directory.remove_runs(part)
            self._note(**{name: key})
        for loss in self.options.losses:
            run = self.directory.run(loss, part)
            if not (run.has_model and run.weights_file.is_file()):
                stage = f"{_VERBS[part]} {display_name(loss)}"
                train(self.configs[part, loss], progress=lambda *at, stage=stage: self.clock(stage, *at))

    def _read(self, part: Part, loss: str) -> Run:
        """A trained model with its vectors of the images to search."""
        name = display_name(loss) + (" head" if part == "head" and self.last == "all" else "")
        return read_run(
            self.directory.run(loss, part).path, name=name, progress=lambda *at: self.clock("embedding", *at)
        )

    def _report(self, found: Comparison, source: Path) -> None:
        key = "-".join([self.content, *(str(run.fingerprint) for run in found.runs)])
        if self.record.report == key and self.directory.page.is_file():
            return
        write_report(
            found.runs,
            self.directory.report,
            options=ReportOptions(
                commands=(shlex.join(self.options.words(source, self.directory.path)),), figures=False
            ),
            status=lambda _: self.clock("reporting", 0, 0),
        )
        self._note(report=key)

    def _index(self, model: Run) -> None:
        key = f"{self.content}-{model.fingerprint}"
        if self.record.index == key and self.directory.index.is_dir():
            return
        self.clock("indexing", 0, 0)
        run = self.directory.run(self.options.loss, self.last)
        encoder = run.read_model()
        vectors = head_vectors(run, encoder, self.manifest, tuple(self.manifest.splits))
        build_index(
            encoder,
            self.manifest,
            self.directory.index,
            overwrite=True,
            vectors=vectors,
            progress=lambda *at: self.clock("indexing", *at),
        ).close()
        self._note(index=key)

    def _note(self, **parts: str) -> None:
        self.record = self.record.model_copy(update=parts)
        self.directory.write(self.record)


def _guesses(images: int, configs: dict[tuple[Part, str], TrainConfig]) -> dict[str, float]:
    """The stages and how long each may take, for as long as nothing better is known."""
    size = next(iter(configs.values())).transform.size or 224
    area, cores = (size / 224) ** 2, torch.get_num_threads()
    seconds = {
        "computing features": images * (_DECODE_IMAGE + _COMPUTE_FEATURES * area) / cores,
    }
    for (part, loss), config in configs.items():
        training = config.training
        batch, epochs = training.batch_size, training.least_epochs if training.steps else training.epochs
        steps = max(training.steps or 0, epochs * -(-images // (2 * batch)))
        one = _HEAD_STEP_IMAGE if part == "head" else _TUNE_IMAGE * area
        seconds[f"{_VERBS[part]} {display_name(loss)}"] = steps * batch * one / cores
    return {
        **seconds,
        "embedding": images * _DECODE_IMAGE / cores,
        "evaluating": _EVALUATE,
        "reporting": _REPORT,
        "indexing": images * _INDEX_IMAGE,
    }
