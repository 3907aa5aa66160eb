"""How the weights are updated: parameter groups, the proxies' own optimiser, cosine schedules, warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from happier.encoder import Encoder
    from happier.training.config import OptimizerConfig, ProxyOptimizerConfig, TrainConfig

__all__ = [
    "Optimizers",
    "Schedule",
    "build_optimizer",
    "build_proxy_optimizer",
    "load_optimizer",
    "trained_part",
]

# What torch's optimisers keep for each weight.
_KEPT = {"Adam": {"step", "exp_avg", "exp_avg_sq"}, "SGD": {"momentum_buffer"}}


class Optimizers:
    """The optimisers of the encoder and of the proxies, on one schedule.

    Args:
        encoder: what is trained.
        criterion: the loss, which may have weights of its own.
        config: rates, precision, clipping.
        steps_per_epoch: batches of an epoch.

    Attributes:
        schedule: of both.
        of_encoder: backbone and head.
        of_proxies: None where the loss learns nothing.
    """

    def __init__(
        self, encoder: Encoder, criterion: nn.Module, config: TrainConfig, *, steps_per_epoch: int
    ) -> None:
        training, self._rates = config.training, config.optimizer
        self._clip_norm, self._trained = training.clip_norm, trained_part(encoder, config)
        # The loss scale of fp16 is part of the step: a fused optimiser would hide it from gradient clipping.
        self.of_encoder = build_optimizer(encoder, self._rates, fused=training.precision != "fp16")
        self.of_proxies = build_proxy_optimizer(criterion, self._rates.proxies)
        self.schedule = Schedule(training.epochs * steps_per_epoch, training.warmup_epochs * steps_per_epoch)

    @property
    def rate(self) -> float:
        """Learning rate in the last step: of the backbone, or of the head where it is trained alone."""
        return float(self.of_encoder.param_groups[0]["lr"])

    def set_up(self, fabric: Any) -> Any:
        """Let fabric wrap what is trained and its optimiser for its devices; returns the model to call."""
        self._fabric = fabric
        self._model, self._scaled = fabric.setup(self._trained, self.of_encoder)
        return self._model

    def step(self, step: int) -> None:
        """Update the weights at the rates of this step, and clear the gradient."""
        self.schedule.apply(self.of_encoder, step, eta_min=self._rates.eta_min)
        if self._clip_norm is not None:
            self._fabric.clip_gradients(self._model, self._scaled, max_norm=self._clip_norm)
        self._scaled.step()
        self._scaled.zero_grad()
        if self.of_proxies is not None:
            self.schedule.apply(self.of_proxies, step, eta_min=self._rates.proxies.eta_min)
            self.of_proxies.step()
            self.of_proxies.zero_grad()


def trained_part(encoder: Encoder, config: TrainConfig) -> nn.Module:
    """What a step calls and moves: the encoder on images, or its head on features."""
    return encoder.head_only() if config.model.train == "head" else encoder


def build_optimizer(
    encoder: Encoder, config: OptimizerConfig, *, fused: bool = True
) -> torch.optim.Optimizer:
    """Backbone, where it moves, and head in one optimiser; the head at `head_factor` times the rate."""
    backbone = [
        weight
        for part in (encoder.backbone, encoder.pooling)
        for weight in part.parameters()
        if weight.requires_grad
    ]
    groups = [
        {"params": backbone, "lr": config.lr},
        {"params": list(encoder.head.parameters()), "lr": config.lr * config.head_factor},
    ]
    return _build(config, groups if backbone else groups[1:], fused=fused)


def build_proxy_optimizer(criterion: nn.Module, config: ProxyOptimizerConfig) -> torch.optim.Optimizer | None:
    """The optimiser of what a loss learns, None where it learns nothing."""
    weights = list(criterion.parameters())
    return _build(config, [{"params": weights, "lr": config.lr}], fused=True) if weights else None


def _build(
    config: OptimizerConfig | ProxyOptimizerConfig, groups: list[dict[str, Any]], *, fused: bool
) -> torch.optim.Optimizer:
    decay = config.weight_decay
    if config.name == "sgd":
        nesterov = config.momentum > 0
        return torch.optim.SGD(
            groups, momentum=config.momentum, nesterov=nesterov, weight_decay=decay, fused=fused
        )
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(groups, weight_decay=decay, fused=fused)


@dataclass(frozen=True)
class Schedule:
    """Cosine from each group's own rate down to `eta_min`, step by step; constant during warm-up.

        lr(t) = eta_min + (lr - eta_min) (1 + cos(pi (t - warm-up) / (steps - warm-up))) / 2

    A function of the step alone: a resumed run needs nothing but its step.

    Attributes:
        steps: steps of the whole run.
        warmup: steps at the start with a constant rate.
    """

    steps: int
    warmup: int = 0

    def share(self, step: int) -> float:
        """Value of the cosine at a step: 1 at the start, 0 at the end."""
        done = max(step - self.warmup, 0) / max(self.steps - self.warmup, 1)
        return (1 + math.cos(math.pi * min(done, 1.0))) / 2

    def apply(self, optimizer: torch.optim.Optimizer, step: int, *, eta_min: float) -> None:
        """Set the rates of a step."""
        for group in optimizer.param_groups:
            first = group.setdefault("first_lr", group["lr"])
            group["lr"] = eta_min + (first - eta_min) * self.share(step)


def load_optimizer(optimizer: torch.optim.Optimizer, saved: Any) -> None:
    """Take a saved state, after checking what torch would only notice in the next step.

    Raises:
        ValueError: it is not a state of this optimiser.
    """
    groups, states = saved["param_groups"], saved["state"]
    for group, own in zip(groups, optimizer.state_dict()["param_groups"], strict=True):
        if own.keys() - group.keys() or group["params"] != own["params"]:
            raise ValueError("its parameter groups differ")
        if not all(isinstance(group[key], int | float) for key in ("lr", "weight_decay")):
            raise ValueError("its learning rates are not numbers")
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    kept = _KEPT["SGD" if isinstance(optimizer, torch.optim.SGD) else "Adam"]
    for number, state in states.items():
        if not kept <= state.keys() and state:
            raise ValueError(f"weight {number} lacks {', '.join(sorted(kept - state.keys()))}")
        for key in kept & state.keys():
            shape = torch.Size() if key == "step" else weights[number].shape
            if state[key] is not None and state[key].shape != shape:
                raise ValueError(f"{key} of weight {number} has another shape")
    optimizer.load_state_dict(saved)
