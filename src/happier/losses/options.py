"""Checks of options: the rule, what came, the nearest name."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any

from happier.errors import OptionError


def check_positive(name: str, value: float) -> float:
    """Return ``value``, a finite number above 0.

    Raises:
        OptionError: it is not.
    """
    if not (math.isfinite(value) and value > 0):
        raise OptionError(f"{name} must be a finite number above 0, got {value}")
    return float(value)


def nearest(name: str, known: Any) -> str:
    """A hint at the nearest known name, or nothing."""
    close = get_close_matches(str(name), [str(entry) for entry in known], n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
