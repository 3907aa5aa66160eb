"""Checks of options: the rule and what came."""

from __future__ import annotations

import math

import torch

from happier.errors import HappierError, OptionError


def check_positive(name: str, value: float) -> float:
    """Return ``value``, a finite number above 0.

    Raises:
        OptionError: it is not.
    """
    if not (math.isfinite(value) and value > 0):
        raise OptionError(f"{name} must be a finite number above 0, got {value}")
    return float(value)


def check_all(conditions: torch.Tensor, message: str, error: type[HappierError]) -> None:
    """Raise unless all conditions hold; on CUDA, and in compiled code, an assertion that does not wait."""
    holds = conditions.all()
    if conditions.device.type == "cuda" or torch.compiler.is_compiling():
        torch._assert_async(holds, message)
    elif not holds:
        raise error(message)
