"""A configuration -> the parts of a run: devices, data, encoder, loss, sampler."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
import numpy.typing as npt
import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy
from torch import nn

from happier.data import HierarchicalBatchSampler, Manifest, MPerClassBatchSampler
from happier.encoder import Encoder
from happier.errors import ConfigError
from happier.losses import CrossBatchMemory, build_loss
from happier.taxonomy import Taxonomy
from happier.training.config import TrainConfig

__all__ = ["build_criterion", "build_encoder", "build_fabric", "build_sampler", "with_manifest"]

_PRECISION: Final[dict[str, Any]] = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def build_fabric(config: TrainConfig) -> Any:
    """Devices, precision and ranks: one process on its own, or those that ``torchrun`` started."""
    _start_numba()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    # A backbone that is frozen during warm-up takes no part in the backward pass.
    strategy = DDPStrategy(find_unused_parameters=config.training.warmup_epochs > 0) if world > 1 else "auto"
    fabric = Fabric(
        devices=local,
        num_nodes=world // local,
        strategy=strategy,
        precision=_PRECISION[config.training.precision],
    )
    fabric.launch()
    return fabric


def _start_numba() -> None:
    """Start the compiled losses' threads now, so that every step runs with the same number of threads.

    When they first start they set the number of OpenMP threads for the whole process: torch would compute the
    first step of every process, and only that, with another number, and round otherwise.
    """
    threads = torch.get_num_threads()
    numba.get_num_threads()
    torch.set_num_threads(threads)


def with_manifest(config: TrainConfig, fabric: Any) -> TrainConfig:
    """The same configuration with the manifest's absolute path; a data set is fetched when first used."""
    if config.data.manifest is not None:
        path = Path(config.data.manifest)
    else:
        assert config.data.name is not None
        from happier.data import fetch

        path = fabric.broadcast(fetch(config.data.name) if fabric.is_global_zero else None)
    return replace(config, data=replace(config.data, manifest=str(path.absolute())))


def build_encoder(config: TrainConfig, manifest: Manifest, fabric: Any) -> Encoder:
    """The encoder, checked against what the loop will ask of it.

    Raises:
        ConfigError: micro batches with a batch norm that is trained.
    """
    encoder = Encoder(
        config.model.backbone,
        dim=config.model.dim,
        pretrained=config.model.pretrained,
        transform=config.transform.preset,
        image_size=config.transform.size,
        freeze_batch_norm=config.model.freeze_batch_norm,
        gradient_checkpointing=config.model.gradient_checkpointing,
        level_names=manifest.levels,
    )
    share = config.training.batch_size // fabric.world_size
    if encoder.trains_batch_norm():
        if config.training.micro_batch is not None and config.training.micro_batch < share:
            raise ConfigError(
                "training.micro_batch needs a backbone whose batch norm is frozen, or which has none: "
                "trained batch norm would see micro batches instead of the batch; set "
                "model.freeze_batch_norm=true"
            )
        if fabric.world_size > 1 and fabric.device.type == "cuda":
            from timm.layers.norm_act import convert_sync_batchnorm

            encoder.backbone = convert_sync_batchnorm(encoder.backbone)  # type: ignore[no-untyped-call]
    return encoder


def build_criterion(config: TrainConfig, taxonomy: Taxonomy, fabric: Any) -> nn.Module:
    """The loss, with the memory of earlier batches where one is asked for."""
    options = {key: value for key, value in config.loss.items() if key != "name"}
    loss = build_loss(str(config.loss["name"]), taxonomy=taxonomy, dim=config.model.dim, **options)
    criterion = CrossBatchMemory(loss, config.training.memory) if config.training.memory else loss
    return criterion.to(fabric.device).train()


def build_sampler(
    config: TrainConfig, labels: npt.NDArray[np.int64], fabric: Any
) -> MPerClassBatchSampler | HierarchicalBatchSampler:
    """The batches of this rank."""
    if config.sampler.name == "hierarchical":
        return HierarchicalBatchSampler(
            labels,
            batch_size=config.training.batch_size,
            per_class=config.sampler.per_class,
            batches_per_pair=config.sampler.batches_per_pair,
            seed=config.seed,
            rank=fabric.global_rank,
            world_size=fabric.world_size,
        )
    return MPerClassBatchSampler(
        labels,
        batch_size=config.training.batch_size,
        per_class=config.sampler.per_class,
        seed=config.seed,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
    )
