"""A configuration -> the parts of a run: devices, data, encoder, loss, sampler."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np
import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy
from torch import nn

from happier.data import AttributeBatchSampler, HierarchicalBatchSampler, Manifest, MPerClassBatchSampler
from happier.data.class_sampler import GroupBatchSampler
from happier.data.input_config import IMAGENET
from happier.encoder import Encoder, Head
from happier.encoder.backbone import VECTORS_PREFIX
from happier.encoder.features import Features
from happier.errors import ConfigError
from happier.losses import CrossBatchMemory, build_loss
from happier.losses.proxies import Proxies
from happier.runs.run_features import FeatureSource, split_rows
from happier.taxonomy import Taxonomy
from happier.training.batches import FeatureBatches, TrainingBatches, input_config
from happier.training.config import TrainConfig
from happier.training.validation import Validation
from happier.vectors.image_pass import PassOptions

__all__ = [
    "build_batches",
    "build_criterion",
    "build_encoder",
    "build_fabric",
    "build_sampler",
    "with_data_size",
    "with_manifest",
    "with_start",
]

_PRECISION: Final[dict[str, Any]] = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def build_fabric(config: TrainConfig) -> Any:
    """Devices, precision and ranks: one process on its own, or those that ``torchrun`` started."""
    _start_numba()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    # A backbone that is frozen during warm-up is not part of the backward pass.
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
    first step of every process, and only that, with another number, and round differently.
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


def with_start(config: TrainConfig) -> TrainConfig:
    """The same configuration with the network of the model that it starts from, or of its vectors.

    Raises:
        CheckpointError: there is no such model.
        InputError: the vectors cannot be read.
    """
    transform = config.transform
    if config.model.start is not None:
        start = Encoder.from_pretrained(config.model.start)
        head = start.head_shape
        known = start.input_config.mean == IMAGENET.mean and start.input_config.std == IMAGENET.std
        transform = replace(transform, normalize="imagenet" if known else "backbone")
        model = replace(
            config.model,
            backbone=start.backbone_name,
            dim=start.dim,
            head=head.kind,
            hidden=head.hidden,
            dropout=head.dropout,
            pooling=start.pooling_name,
            pretrained=None,
        )
    elif config.data.features is not None:
        features = Features.from_array(config.data.features, Manifest.read(str(config.data.manifest)))
        width = features.vectors.shape[1]
        model = replace(config.model, backbone=f"{VECTORS_PREFIX}{width}", pretrained=None)
    else:
        return config
    return replace(config, model=model, transform=transform)


def with_data_size(config: TrainConfig, rows: Manifest, fabric: Any) -> TrainConfig:
    """The same configuration with as many epochs as make the steps that are asked for, if any are.

    There are at least ``training.least_epochs`` of them. The batch is made as small as the classes, or the
    images with attributes, fill; there are ten evaluations at most.

    Args:
        config: of the run.
        rows: to train on.
        fabric: devices and ranks.

    Raises:
        ConfigError: there are too few classes to train on.
    """
    training, evaluation, steps = config.training, config.evaluation, config.training.steps
    if steps is None:
        return config
    portion = config.sampler.per_class * fabric.world_size
    if config.sampler.name == "attributes":
        images = int(rows.attributes()[0].any(axis=1).sum())
        fitting = max(images // portion, 1) * portion
    else:
        classes = len(np.unique(rows.labels(), axis=0))
        if classes < 2 * fabric.world_size:
            raise ConfigError(
                f"training needs images of at least {2 * fabric.world_size} classes, got {classes}"
            )
        fitting = classes // fabric.world_size * portion
    training = replace(training, batch_size=min(training.batch_size, fitting))
    config = replace(config, training=training)
    epochs = max(math.ceil(steps / len(build_sampler(config, rows, fabric))), training.least_epochs)
    every = evaluation.every and max(evaluation.every, -(-epochs // 10))
    return replace(
        config,
        training=replace(training, epochs=epochs),
        evaluation=replace(evaluation, every=every),
    )


def build_encoder(config: TrainConfig, manifest: Manifest, fabric: Any) -> Encoder:
    """The encoder, checked against the requirements of the loop.

    Raises:
        ConfigError: micro batches with a batch norm that is trained.
    """
    encoder = Encoder(
        config.model.backbone,
        dim=config.model.dim,
        pretrained=config.model.pretrained,
        transform=config.transform.preset,
        image_size=config.transform.size,
        input_config=input_config(config),
        freeze_batch_norm=config.model.freeze_batch_norm,
        gradient_checkpointing=config.model.gradient_checkpointing,
        level_names=manifest.levels,
        head=Head(config.model.head, config.model.hidden, config.model.dropout),
        pooling=config.model.pooling,
    )
    if config.model.start is not None:
        encoder.load_state_dict(Encoder.from_pretrained(config.model.start).state_dict())
    if config.model.train == "head":
        encoder.train_backbone(False)
        return encoder
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


def build_batches(
    config: TrainConfig, manifest: Manifest, encoder: Encoder, fabric: Any, validation: Validation | None
) -> TrainingBatches | FeatureBatches:
    """What is trained on: images, or kept features, which are then given to the validation, too.

    Raises:
        ImageError: an image cannot be read.
    """
    place = {"rank": fabric.global_rank, "world_size": fabric.world_size}
    if config.model.train == "all":
        return TrainingBatches(manifest.select("train"), config, **place)
    source = FeatureSource(
        config.data.features,
        config.data.feature_folder,
        config.data.views,
        PassOptions(config.evaluation.batch_size, config.data.workers),
    )
    evaluated = [] if validation is None else list(validation.rows.splits)
    found = source.features(encoder.to(fabric.device), manifest, sorted({"train", *evaluated}))
    if validation is not None:
        validation.use(found.vectors[split_rows(found.manifest, evaluated)])
    rows = split_rows(found.manifest, ["train"])
    trained = Features(
        found.vectors[rows],
        found.manifest.take(rows),
        found.fingerprint,
        tuple(view[rows] for view in found.views),
    )
    return FeatureBatches(trained, config, **place)


def build_criterion(config: TrainConfig, taxonomy: Taxonomy, fabric: Any) -> nn.Module:
    """The loss, with a memory of earlier batches if one is configured."""
    options = {key: value for key, value in config.loss.items() if key != "name"}
    loss = build_loss(str(config.loss["name"]), taxonomy=taxonomy, dim=config.model.dim, **options)
    if config.training.precision == "bf16":
        for module in loss.modules():
            if isinstance(module, Proxies):
                module.product = torch.bfloat16
    criterion = CrossBatchMemory(loss, config.training.memory) if config.training.memory else loss
    return criterion.to(fabric.device).train()


def build_sampler(config: TrainConfig, rows: Manifest, fabric: Any) -> GroupBatchSampler:
    """The batches of this rank, of the rows to train on."""
    shared: dict[str, Any] = {
        "batch_size": config.training.batch_size,
        "seed": config.seed,
        "rank": fabric.global_rank,
        "world_size": fabric.world_size,
    }
    per_class = config.sampler.per_class
    if config.sampler.name == "attributes":
        return AttributeBatchSampler(rows.attributes()[0], per_attribute=per_class, **shared)
    labels = rows.taxonomy().codes
    if config.sampler.name == "hierarchical":
        return HierarchicalBatchSampler(
            labels, per_class=per_class, batches_per_pair=config.sampler.batches_per_pair, **shared
        )
    return MPerClassBatchSampler(labels, per_class=per_class, **shared)
