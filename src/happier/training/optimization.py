"""Which weights move how fast: parameter groups, the proxies' own optimiser, cosine schedules, warm-up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from happier.encoder import Encoder
    from happier.training.config import OptimizerConfig, ProxyOptimizerConfig

__all__ = ["Schedule", "build_optimizer", "build_proxy_optimizer"]


def build_optimizer(
    encoder: Encoder, config: OptimizerConfig, *, fused: bool = True
) -> torch.optim.Optimizer:
    """Backbone and head in one optimiser, the head at `head_factor` times the rate."""
    backbone = [weight for weight in encoder.backbone.parameters() if weight.requires_grad]
    groups = [
        {"params": backbone, "lr": config.lr},
        {"params": list(encoder.head.parameters()), "lr": config.lr * config.head_factor},
    ]
    return _build(config, groups, fused=fused)


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
        warmup: steps at the start during which the rate waits.
    """

    steps: int
    warmup: int = 0

    def share(self, step: int) -> float:
        """Where the cosine stands at a step: 1 at the start, 0 at the end."""
        done = max(step - self.warmup, 0) / max(self.steps - self.warmup, 1)
        return (1 + math.cos(math.pi * min(done, 1.0))) / 2

    def apply(self, optimizer: torch.optim.Optimizer, step: int, *, eta_min: float) -> None:
        """Set the rates of a step."""
        for group in optimizer.param_groups:
            first = group.setdefault("first_lr", group["lr"])
            group["lr"] = eta_min + (first - eta_min) * self.share(step)
