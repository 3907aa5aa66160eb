r"""Class paths: the names of a class from coarse to fine, ``animals/birds/owl``.

A ``/`` within a name is written ``\/``. Unknown levels, which can only be the finest ones, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["join", "leaf", "parents", "split", "trail"]

_ARROW = " \u203a "
_SEPARATOR = re.compile(r"(?<!\\)/")


def join(names: Iterable[str]) -> str:
    r"""The class path of these names, coarse first; empty names are left out.

    >>> print(join(["shoes/bags", "other", ""]))
    shoes\/bags/other
    """
    return "/".join(name.replace("/", r"\/") for name in names if name)


def split(path: str) -> tuple[str, ...]:
    r"""The names of a class path, coarse first; slashes at its ends do not count.

    >>> split(r"shoes\/bags/other")
    ('shoes/bags', 'other')
    """
    return tuple(name.replace(r"\/", "/") for name in _SEPARATOR.split(path) if name)


def leaf(path: str) -> str:
    """The finest name; empty where no level is known."""
    return split(path)[-1] if path else ""


def parents(path: str) -> str:
    """All names above the finest, for display: separated by arrows."""
    return _ARROW.join(split(path)[:-1])


def trail(path: str) -> str:
    """All names, for display: separated by arrows."""
    return _ARROW.join(split(path))
