"""What a run must remember to go on to the same last bit.

Whatever is random is drawn from (seed, epoch, step), and the schedules are functions of the step. So the
state is the position, the weights, the optimisers and the loss scale; torch's generator is kept beside them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch

from happier.data import Manifest
from happier.errors import CheckpointError, OptionError
from happier.training.checkpoint import Checkpoints
from happier.training.config import TrainConfig

__all__ = ["Position", "RunState"]


@dataclass
class Position:
    """Where a run stands."""

    step: int = 0
    epoch: int = 0
    """Epochs that are done."""
    done: int = 0
    """Batches of the epoch after those that are done."""
    best: float = -math.inf
    best_epoch: int = 0
    best_metrics: dict[str, float] = field(default_factory=dict)
    stale: int = 0
    """Evaluations since the best."""
    log_size: int = 0
    """Bytes of metrics.jsonl that belong to what is done."""


class Stateful(Protocol):
    """A module or an optimiser."""

    def state_dict(self) -> dict[str, Any]:
        """Its state as plain data."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take the state."""
        ...


class RunState:
    """The parts of a run that change, as one dictionary.

    Args:
        config: of the run.
        manifest: the rows it trains on; a run does not go on with others.
        sampler: of the batches.
        scaler: the precision plugin, which holds the loss scale of fp16.
        parts: by name, what else has a state: encoder, criterion, optimisers.
    """

    def __init__(
        self,
        config: TrainConfig,
        manifest: Manifest,
        sampler: Any,
        scaler: Stateful,
        **parts: Stateful | None,
    ) -> None:
        self._config, self._sampler, self._scaler = config, sampler, scaler
        self._parts = {name: part for name, part in parts.items() if part is not None}
        self._data = _identity(manifest)
        self.position = Position()

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and plain data."""
        at = self.position
        return {
            "position": asdict(at),
            "config": asdict(self._config),
            "data": self._data,
            "sampler": {**self._sampler.state_dict(done=at.done), "epoch": at.epoch},
            "scaler": self._scaler.state_dict(),
            "rng": torch.get_rng_state(),
            **{name: part.state_dict() for name, part in self._parts.items()},
        }

    def resume(self, checkpoints: Checkpoints) -> bool:
        """Take the newest whole checkpoint, if there is one.

        Raises:
            CheckpointError: it is of other data, or damaged with none before it.
        """
        state = checkpoints.load()
        if state is None:
            return False
        if state["data"] != self._data:
            raise CheckpointError(
                f"the images or labels are not those that {checkpoints.last} was trained on; train into "
                "another directory with run=DIR, or bring back the manifest"
            )
        try:
            self._sampler.load_state_dict(state["sampler"])
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
        except (KeyError, RuntimeError, ValueError, OptionError) as error:
            raise CheckpointError(f"{checkpoints.last} does not fit this configuration: {error}") from error
        self._scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"])
        self.position = Position(**state["position"])
        return True


def _identity(manifest: Manifest) -> str:
    digest = hashlib.sha256(manifest.labels().tobytes())
    for path in manifest.table["path"]:
        digest.update(str(path).encode() + b"\0")
    return digest.hexdigest()
