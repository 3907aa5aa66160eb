"""What a fit is asked for, and the settings of its trainings that follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from happier.errors import OptionError, did_you_mean
from happier.fit.directory import FINE_ONLY, FitDirectory, Part
from happier.losses import LOSSES
from happier.training.compose import compose, quoted
from happier.training.config import TrainConfig

__all__ = ["FitOptions", "settings_digest", "training_config"]

_SET_HERE = (
    "recipe",
    "loss",
    "run",
    "seed",
    "data.manifest",
    "data.features",
    "data.feature_folder",
    "evaluation.every",
    "model.train",
    "model.start",
)


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How to fit.

    Attributes:
        levels: names of the levels, coarse to fine.
        loss: that the model is trained with.
        train: ``head``, ``all`` (the head, then the whole network), or None for all where there is a GPU.
        seed: of the trainings.
        overrides: further settings of the trainings, as of ``happier train``.
        tuning: further settings of the fine-tuning alone.
        features: folder that keeps the features of frozen backbones; by default in the fit's directory.
        command: that makes this fit; by default ``happier fit`` with these options.
        tuning_command: the same with fine-tuning.
    """

    levels: Sequence[str] | None = None
    loss: str = "happier"
    train: str | None = None
    seed: int = 0
    overrides: Sequence[str] = ()
    tuning: Sequence[str] = ()
    features: Path | None = None
    command: Sequence[str] = ()
    tuning_command: Sequence[str] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is trained, one after the other.

        Raises:
            OptionError: there is no such part.
        """
        if self.train not in (None, "head", "all"):
            raise OptionError(f"--train must be head or all, got {self.train!r}")
        tuned = self.train == "all" or (self.train is None and torch.cuda.is_available())
        return ("head", "all") if tuned else ("head",)

    @property
    def losses(self) -> tuple[str, str]:
        """The model's, and the one that uses the finest classes alone.

        Raises:
            OptionError: there is no such loss, or it knows nothing of the levels.
        """
        known = [name for name, loss in LOSSES.items() if not (loss.fine_only or loss.takes_attributes)]
        if self.loss not in known:
            hint = did_you_mean(self.loss, known)
            raise OptionError(
                f"--loss must be one that uses all levels, got {self.loss!r}{hint}; one of {', '.join(known)}"
            )
        return self.loss, FINE_ONLY

    def words(self, source: Path, out: Path) -> list[str]:
        """The command that makes this fit."""
        train = ["--train", self.train] if self.train else []
        return list(self.command) or [*self._words(source, out), *train]

    def tuning_words(self, source: Path, out: Path) -> list[str]:
        """The command that adds fine-tuning; what is there is used again."""
        return list(self.tuning_command) or [*self._words(source, out), "--train", "all"]

    def _words(self, source: Path, out: Path) -> list[str]:
        levels = ["--levels", ",".join(self.levels)] if self.levels else []
        loss = ["--loss", self.loss] if self.loss != FitOptions.loss else []
        seed = ["--seed", str(self.seed)] if self.seed else []
        return ["happier", "fit", str(source), "-o", str(out), *self.overrides, *levels, *loss, *seed]


def training_config(directory: FitDirectory, loss: str, part: Part, options: FitOptions) -> TrainConfig:
    """The settings of one training; both losses get the same images, batches and steps.

    Raises:
        ConfigError: an override is faulty.
        OptionError: an override is of something that a fit sets itself.
    """
    own = [text for text in (*options.overrides, *options.tuning) if text.split("=")[0] in _SET_HERE]
    if own:
        raise OptionError(f"{', '.join(own)}: `happier fit` sets {', '.join(_SET_HERE)} itself")
    overrides = [
        "recipe=folder",
        f"model.train={part}",
        f"seed={options.seed}",
        "training.tensorboard=false",
        *options.overrides,
        f"loss={loss}",
        f"run={quoted(directory.run(loss, part).path)}",
        f"data.manifest={quoted(directory.manifest)}",
        # The last weights count: choosing the best by its figures on the test classes would flatter them.
        "evaluation.every=0",
    ]
    if part == "all":
        start = directory.run(loss, "head").path
        overrides += [
            f"model.start={quoted(start)}",
            # The statistics of the frozen network are those that the head was trained with.
            "model.freeze_batch_norm=true",
            *options.tuning,
        ]
    config = compose(overrides)
    folder = (options.features or directory.features) / _backbone_digest(config)
    return replace(config, data=replace(config.data, feature_folder=str(folder)))


def _backbone_digest(config: TrainConfig) -> str:
    """Of what features depend on, beside the images: the backbone, its weights, the preprocessing."""
    model, transform = config.model, config.transform
    parts = [model.backbone, model.pretrained, config.seed if model.pretrained is None else None]
    parts += [transform.preset, transform.size, transform.normalize]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def settings_digest(content: str, *configs: TrainConfig) -> str:
    """Of the images' content and of settings, without the places of files."""
    settings = [asdict(config) for config in configs]
    for one in settings:
        for place in ("manifest", "feature_folder"):
            del one["data"][place]
        del one["run"], one["model"]["start"]
    return hashlib.sha256(f"{content} {settings!r}".encode()).hexdigest()
