r"""Class paths as a reader wants them: ``animals/birds/owl``, where a ``/`` in a name is written ``\/``."""

from __future__ import annotations

import re

ARROW = " \u203a "


def parts(path: str) -> list[str]:
    r"""Names along a class path, coarse to fine.

    >>> parts(r"shoes\/bags/other")
    ['shoes/bags', 'other']
    """
    return [name.replace(r"\/", "/") for name in re.split(r"(?<!\\)/", path)]


def leaf(path: str) -> str:
    """The finest name."""
    return parts(path)[-1]


def parents(path: str) -> str:
    """All names above the finest."""
    return ARROW.join(parts(path)[:-1])


def trail(path: str) -> str:
    """All names, coarse to fine."""
    return ARROW.join(parts(path))
