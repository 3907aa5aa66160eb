"""The training loop: read it from top to bottom."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from happier.data import Manifest
from happier.encoder import Progress
from happier.errors import TrainingError
from happier.training.batches import TrainingBatches
from happier.training.checkpoint import Checkpoints
from happier.training.config import TrainConfig
from happier.training.gradient import batch_gradient
from happier.training.log import RunLog
from happier.training.optimization import Schedule, build_optimizer, build_proxy_optimizer
from happier.training.run import open_run, writing_to
from happier.training.setup import (
    build_criterion,
    build_encoder,
    build_fabric,
    build_sampler,
    with_manifest,
)
from happier.training.signals import noted_signals
from happier.training.state import RunState
from happier.training.validation import Validation

__all__ = ["METRIC", "TrainResult", "train"]

METRIC: Final = "H-AP"
"""What the best model is best at."""


@dataclass(frozen=True)
class TrainResult:
    """What a run came to.

    Attributes:
        run_dir: its directory.
        steps: steps that were done in all.
        metrics: the best evaluation; empty where there was none.
        best_epoch: the epochs that were done before it; 0 for the untrained model.
        is_main: whether this is the first rank, the one that tells.
    """

    run_dir: Path
    steps: int
    metrics: dict[str, float]
    best_epoch: int
    is_main: bool = True


def train(config: TrainConfig, *, progress: Progress | None = None) -> TrainResult:
    """Train, or go on with, the run that a configuration describes.

    Args:
        config: all of it, see `happier.training.compose`.
        progress: told of the steps done and of their total, after each.

    Raises:
        ConfigError: a value does not fit the data, or the directory holds another run.
        TrainingError: the loss is not finite, or a signal ended the run.
        CheckpointError: a checkpoint cannot be written or read.
    """
    training, optimizing, watching = config.training, config.optimizer, config.evaluation
    fabric = build_fabric(config)
    config = with_manifest(config, fabric)
    manifest = Manifest.read(str(config.data.manifest))
    rows = manifest.select("train")
    taxonomy = rows.taxonomy()

    torch.manual_seed(config.seed)
    encoder = build_encoder(config, manifest, fabric)
    criterion = build_criterion(config, taxonomy, fabric)
    sampler = build_sampler(config, taxonomy.codes, fabric)
    run_dir = open_run(config) if fabric.is_global_zero else config.run_dir
    validation = Validation(manifest, config, fabric) if watching.every else None
    batches = TrainingBatches(rows, config, rank=fabric.global_rank, world_size=fabric.world_size)

    # The loss scale of fp16 is part of the step, which fused optimisers would hide from gradient clipping.
    optimizer = build_optimizer(encoder, optimizing, fused=training.precision != "fp16")
    proxy_optimizer = build_proxy_optimizer(criterion, optimizing.proxies)
    model, scaled_optimizer = fabric.setup(encoder, optimizer)
    schedule = Schedule(training.epochs * len(sampler), training.warmup_epochs * len(sampler))

    state = RunState(
        config,
        rows,
        sampler,
        fabric.strategy.precision,
        encoder=encoder,
        criterion=criterion,
        optimizer=optimizer,
        proxy_optimizer=proxy_optimizer,
    )
    checkpoints = Checkpoints(run_dir / "checkpoint")
    if fabric.is_global_zero:
        checkpoints.clean()
    fabric.barrier()
    state.resume(checkpoints)
    at = state.position

    log = RunLog(
        run_dir if fabric.is_global_zero else None,
        steps=schedule.steps,
        step=at.step,
        resume_at=at.log_size,
        tensorboard=training.tensorboard,
    )
    with writing_to(run_dir), log, noted_signals() as signals:

        def save(*, best: bool = False) -> None:
            if fabric.is_global_zero:
                at.log_size = log.size
                checkpoints.save(state.state_dict(), best=best)

        def evaluate() -> None:
            assert validation is not None
            started = time.perf_counter()
            metrics = validation(encoder)
            better = metrics[METRIC] > at.best
            at.stale = 0 if better else at.stale + 1
            if better:
                at.best, at.best_epoch, at.best_metrics = metrics[METRIC], at.epoch, metrics
                encoder.metrics = metrics
                if fabric.is_global_zero:
                    encoder.save_pretrained(run_dir)
            log.evaluation(
                step=at.step,
                epoch=at.epoch,
                split=validation.split,
                seconds=time.perf_counter() - started,
                best=better,
                metrics=metrics,
            )
            save(best=better)

        if watching.start and at.step == 0 and not at.best_metrics and validation is not None:
            evaluate()

        saved = time.monotonic()
        while at.epoch < training.epochs and at.stale < (watching.patience or math.inf):
            sampler.set_epoch(at.epoch)
            encoder.train()
            encoder.train_backbone(at.epoch >= training.warmup_epochs)
            for images, labels in batches.epoch(at.epoch, list(sampler), first_step=at.step):
                schedule.apply(optimizer, at.step, eta_min=optimizing.eta_min)
                loss = batch_gradient(
                    fabric,
                    model,
                    criterion,
                    fabric.to_device(images),
                    fabric.to_device(labels),
                    micro_batch=training.micro_batch,
                    seed=config.seed,
                    step=at.step,
                )
                if not math.isfinite(loss):
                    raise TrainingError(
                        f"the loss is {loss} at step {at.step + 1}; the last checkpoint is untouched: lower "
                        "optimizer.lr, set training.clip_norm=1, or training.precision=fp32, in another run"
                    )
                if training.clip_norm is not None:
                    fabric.clip_gradients(model, scaled_optimizer, max_norm=training.clip_norm)
                scaled_optimizer.step()
                scaled_optimizer.zero_grad()
                if proxy_optimizer is not None:
                    schedule.apply(proxy_optimizer, at.step, eta_min=optimizing.proxies.eta_min)
                    proxy_optimizer.step()
                    proxy_optimizer.zero_grad()
                at.step, at.done = at.step + 1, at.done + 1

                log.step(
                    step=at.step,
                    epoch=at.epoch + 1,
                    loss=loss,
                    lr=optimizer.param_groups[0]["lr"],
                    images=training.batch_size,
                    write=at.step % training.log_every == 0,
                )
                if progress is not None:
                    progress(at.step, schedule.steps)
                if signals:
                    save()
                    raise TrainingError(
                        f"stopped by {signals[0]} after step {at.step}, which is saved; run the same command "
                        "again to go on"
                    )
                due = training.checkpoint_steps and at.step % training.checkpoint_steps == 0
                if due or time.monotonic() - saved > 60 * training.checkpoint_minutes:
                    save()
                    saved = time.monotonic()

            at.epoch, at.done = at.epoch + 1, 0
            if validation is not None and (at.epoch % watching.every == 0 or at.epoch == training.epochs):
                evaluate()
                saved = time.monotonic()

        # Nothing was watched, or H-AP was never defined: the last model is the one to keep.
        if not at.best_metrics and fabric.is_global_zero:
            encoder.save_pretrained(run_dir)
            save()
    fabric.barrier()
    return TrainResult(run_dir, at.step, at.best_metrics, at.best_epoch, fabric.is_global_zero)
