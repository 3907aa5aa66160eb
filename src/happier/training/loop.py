"""The training loop: read it from top to bottom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from happier.data import Manifest
from happier.errors import TrainingError
from happier.progress import Progress, no_progress
from happier.training.config import TrainConfig
from happier.training.gradient import batch_gradient
from happier.training.optimization import Optimizers
from happier.training.recorder import Recorder
from happier.training.run import run_for_training
from happier.training.setup import (
    build_batches,
    build_criterion,
    build_encoder,
    build_fabric,
    build_sampler,
    with_data_size,
    with_manifest,
    with_start,
)
from happier.training.signals import deferred_signals
from happier.training.state import RunState
from happier.training.validation import Validation

__all__ = ["TrainResult", "train"]


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a run.

    Attributes:
        run_dir: its directory.
        steps: steps that were done in all.
        metrics: the evaluation of the weights that are kept, the best or the last; empty without any.
        best_epoch: the epochs that were done before it; 0 for the untrained model.
        is_main: whether this is the first rank, the one that prints.
    """

    run_dir: Path
    steps: int
    metrics: dict[str, float]
    best_epoch: int
    is_main: bool = True


def train(config: TrainConfig, *, progress: Progress = no_progress) -> TrainResult:
    """Train, or continue, the run that a configuration describes.

    Args:
        config: all of it, see `happier.training.compose`.
        progress: called after each step.

    Raises:
        BusyError: another command is training in the same directory.
        ConfigError: a value does not fit the data, or the directory holds another run.
        TrainingError: the loss is not finite, a signal ended the run, or the disk cannot be written.
        CheckpointError: a checkpoint cannot be written or read.
    """
    fabric = build_fabric(config)
    config = with_start(with_manifest(config, fabric))
    manifest = Manifest.read(str(config.data.manifest))
    rows = manifest.select("train")
    config = with_data_size(config, rows, fabric)

    torch.manual_seed(config.seed)
    encoder = build_encoder(config, manifest, fabric)
    criterion = build_criterion(config, rows.taxonomy(), fabric)
    sampler = build_sampler(config, rows, fabric)
    with run_for_training(config) as run:
        validation = Validation(manifest, config, fabric) if config.evaluation.every else None
        batches = build_batches(config, manifest, encoder, fabric, validation)
        optimizers = Optimizers(encoder, criterion, config, steps_per_epoch=len(sampler))
        model = optimizers.set_up(fabric)
        state = RunState(config, batches, encoder, criterion, sampler, optimizers, fabric, validation)
        with Recorder(run, state, validation) as recorder, deferred_signals() as signals:
            at, trains_all = state.position, config.model.train == "all"
            if at.step == 0 and config.evaluation.start:
                recorder.evaluate_once()
            while not recorder.is_done:
                sampler.set_epoch(at.epoch)
                encoder.train()
                encoder.train_backbone(trains_all and at.epoch >= config.training.warmup_epochs)
                for inputs, targets in batches.epoch(at.epoch, list(sampler), first_step=at.step):
                    loss = batch_gradient(
                        fabric,
                        model,
                        criterion,
                        fabric.to_device(inputs),
                        fabric.to_device(targets),
                        micro_batch=config.training.micro_batch,
                        seed=config.seed,
                        step=at.step,
                    )
                    _check_finite(loss, at.step + 1)
                    optimizers.step(at.step)
                    recorder.step_done(loss, optimizers.rate)
                    progress(at.step, optimizers.schedule.steps)
                    if signals:
                        recorder.stop(signals[0])
                recorder.epoch_done()
            recorder.finish()
        fabric.barrier()
    return TrainResult(run.path, at.step, at.best_metrics, at.best_epoch, fabric.is_global_zero)


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {step}; the last checkpoint is untouched: lower optimizer.lr, set "
            "training.clip_norm=1, or training.precision=fp32, in another run"
        )
