"""Keywords of earlier versions: still accepted, each call with a `DeprecationWarning`."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Concatenate, ParamSpec, TypeVar

from happier.losses.surrogate import StepSurrogate, surrogate_from_options

P = ParamSpec("P")
Self = TypeVar("Self")

STEP_OPTIONS = tuple(entry.name for entry in fields(StepSurrogate) if entry.init)
"""The numbers of a `StepSurrogate`, which were arguments of the losses themselves."""


def accepts_old_options(
    init: Callable[Concatenate[Self, P], None],
) -> Callable[Concatenate[Self, P], None]:
    """Let an ``__init__`` accept the keywords of earlier versions.

    ``form`` is now ``engine``; the numbers of the surrogate, ``tau`` to ``hrank``, and its name, ``"step"``
    or ``"sigmoid"``, are now one argument, ``surrogate``.
    """
    signature = inspect.signature(init)
    known = signature.parameters
    numbers = [name for name in STEP_OPTIONS if name not in known] if "surrogate" in known else []

    @functools.wraps(init)
    def wrapped(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> None:
        given: dict[str, Any] = dict(kwargs)
        if "form" in given:
            _warn("form", f"engine={given['form']!r}")
            given["engine"] = given.pop("form")
        flat = {name: given.pop(name) for name in numbers if name in given}
        named = isinstance(given.get("surrogate"), str)
        if flat or named:
            bound = signature.bind_partial(self, *args, **given).arguments
            preset = bound.get("preset", "paper")
            surrogate = surrogate_from_options(given.get("surrogate"), preset, **flat)
            _warn(
                ", ".join([*flat, *(["surrogate as a string"] if named else [])]), f"surrogate={surrogate!r}"
            )
            given["surrogate"] = surrogate
            if "preset" in given:
                del given["preset"]
            elif "preset" in bound:
                args = args[:-1]  # type: ignore[assignment]
        init(self, *args, **given)

    return wrapped


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old}: use {new} instead", DeprecationWarning, stacklevel=3)
