"""Checks of options: the rule and what came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch

from happier.errors import HappierError, OptionError


def check_positive(name: str, value: float) -> float:
    """Return ``value``, a finite number above 0.

    Raises:
        OptionError: it is not.
    """
    if not (is_finite(value) and value > 0):
        raise OptionError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def is_finite(value: Any) -> bool:
    """Whether it is a number, and finite; configurations bring words, too."""
    return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)


def check_type(name: str, value: Any, hint: Any) -> None:
    """Check that a value, which may come from a configuration, fits the type hint of its option.

    Raises:
        OptionError: it does not.

    >>> check_type("margins", [0.1, "x"], Sequence[float] | None)
    Traceback (most recent call last):
        ...
    happier.errors.OptionError: margins must be several numbers, got [0.1, 'x']
    """
    allowed = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    if not any(_fits(value, one) for one in allowed):
        rule = " or ".join(_in_words(one) for one in allowed if one is not NoneType)
        raise OptionError(f"{name} must be {rule}, got {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is Sequence:
        several = isinstance(value, Sequence) and not isinstance(value, str)
        return several and all(_fits(one, get_args(hint)[0]) for one in value)
    if hint is float:
        return is_finite(value)
    if hint is int:
        return type(value) is not bool and isinstance(value, Integral)
    return isinstance(value, hint)


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is Sequence:
        return "several whole numbers" if get_args(hint)[0] is int else "several numbers"
    words = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a word"}
    return words.get(hint, f"a {hint.__name__}")


def check_all(conditions: torch.Tensor, message: str, error: type[HappierError]) -> None:
    """Raise unless all conditions hold; on CUDA, and in compiled code, an assertion that does not wait."""
    holds = conditions.all()
    if conditions.device.type == "cuda" or torch.compiler.is_compiling():
        torch._assert_async(holds, message)
    elif not holds:
        raise error(message)
