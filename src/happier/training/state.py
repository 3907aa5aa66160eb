"""What a run must remember to continue to the same last bit.

Whatever is random is drawn from (seed, epoch, step), and the schedules are functions of the step. So the
state is the position, the weights, the optimisers and the loss scale; torch's generator is kept beside them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from happier.data import Manifest
from happier.errors import CheckpointError, OptionError
from happier.training.batches import FeatureBatches, TrainingBatches
from happier.training.checkpoint import Checkpoints
from happier.training.optimization import load_optimizer, trained_part

if TYPE_CHECKING:
    from torch import nn

    from happier.data.class_sampler import GroupBatchSampler
    from happier.encoder import Encoder
    from happier.training.config import TrainConfig
    from happier.training.optimization import Optimizers
    from happier.training.validation import Validation

__all__ = ["Position", "RunState"]

Count = Annotated[int, Field(ge=0)]


@dataclass(config=ConfigDict(strict=True))
class Position:
    """Position of a run; types are checked on construction."""

    step: Count = 0
    epoch: Count = 0
    """Epochs that are done."""
    done: Count = 0
    """Batches done in the current epoch."""
    best: float = -math.inf
    """The best H-AP of all evaluations."""
    best_epoch: Count = 0
    """Of the weights that are kept, as are the metrics: the best, or the last where those count."""
    best_metrics: dict[str, int | float] = field(default_factory=dict)
    stale: Count = 0
    """Evaluations since the best."""
    log_size: Count = 0
    """Bytes of metrics.jsonl that belong to what is done."""


class RunState:
    """The parts of a run that change, as one dictionary.

    Args:
        config: of the run.
        batches: what it trains on; a run does not continue with other rows, or with another backbone's
            features.
        encoder: what is trained.
        criterion: the loss.
        sampler: of the batches.
        optimizers: of encoder and proxies.
        fabric: its precision holds the loss scale of fp16.
        validation: its rows must stay the same too; None where nothing is evaluated.
    """

    def __init__(
        self,
        config: TrainConfig,
        batches: TrainingBatches | FeatureBatches,
        encoder: Encoder,
        criterion: nn.Module,
        sampler: GroupBatchSampler,
        optimizers: Optimizers,
        fabric: Any,
        validation: Validation | None,
    ) -> None:
        self.config, self.encoder = config, encoder
        self.steps = optimizers.schedule.steps
        self._sampler, self._scaler = sampler, fabric.strategy.precision
        self._modules = {"encoder": trained_part(encoder, config), "criterion": criterion}
        self._optimizers = {"optimizer": optimizers.of_encoder}
        if optimizers.of_proxies is not None:
            self._optimizers["proxy_optimizer"] = optimizers.of_proxies
        relevant = ("attributes",) if config.by_attributes else ()
        self._data = {"data": _identity(batches.rows, "path", *relevant)}
        if isinstance(batches, FeatureBatches):
            self._data["features"] = batches.fingerprint
        if validation is not None:
            self._data["evaluated_data"] = _identity(validation.rows, "path", "split", "set", "id", *relevant)
        self.position = Position()

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and plain data."""
        at = self.position
        return {
            "position": asdict(at),
            "config": asdict(self.config),
            **self._data,
            "sampler": {**self._sampler.state_dict(done=at.done), "epoch": at.epoch},
            "scaler": self._scaler.state_dict(),
            "rng": torch.get_rng_state(),
            **{name: module.state_dict() for name, module in self._modules.items()},
            **{name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
        }

    def resume(self, checkpoints: Checkpoints) -> bool:
        """Take the newest whole checkpoint, if there is one.

        Raises:
            CheckpointError: it is of other data, does not fit, or is damaged with none before it.
        """
        state = checkpoints.load()
        if state is None:
            return False
        self._check(state, checkpoints.last)
        try:
            self._sampler.load_state_dict(state["sampler"])
            for name, module in self._modules.items():
                module.load_state_dict(state[name])
            for name, optimizer in self._optimizers.items():
                load_optimizer(optimizer, state[name])
            self._scaler.load_state_dict(state["scaler"])
            torch.set_rng_state(state["rng"])
            self.position = Position(**state["position"])
        except (
            AttributeError,
            KeyError,
            IndexError,
            OptionError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(
                f"{checkpoints.last} does not fit this configuration: {reason[:300]}"
            ) from error
        return True

    def _check(self, state: dict[str, Any], path: Path) -> None:
        """Fail where parts are missing, or where the rows differ."""
        expected = {"position", "data", "sampler", "scaler", "rng", *self._modules, *self._optimizers}
        if missing := sorted(expected - state.keys()):
            raise CheckpointError(f"the checkpoint {path} lacks {', '.join(missing)}")
        for name, identity in self._data.items():
            # Checkpoints of earlier versions say nothing about the rows that are evaluated.
            if state.get(name, identity) == identity:
                continue
            if name == "features":
                raise CheckpointError(
                    f"the features are not of the backbone, or the array, that {path} was trained on; train "
                    "into another directory with run=DIR, or restore the weights"
                )
            what = "trained on" if name == "data" else "evaluated on"
            raise CheckpointError(
                f"the images or labels are not those that {path} was {what}; train into another "
                "directory with run=DIR, or restore the manifest"
            )


def _identity(manifest: Manifest, *columns: str) -> str:
    """A digest of the labels and of these columns, where the manifest has them."""
    digest = hashlib.sha256(manifest.labels().tobytes())
    for column in columns:
        for value in manifest.table.get(column, ()):
            digest.update(str(value).encode() + b"\0")
    return digest.hexdigest()
