"""One thing that a check found in a manifest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

SHOWN = 10


@dataclass(frozen=True)
class Finding:
    """One kind of finding.

    Attributes:
        kind: short name, stable for programs.
        fault: whether it is a fault; otherwise it is a note.
        message: what was found and what to do about it.
        examples: the first ten.
        rows: rows of the manifest that it concerns, counted from 0.
    """

    kind: str
    fault: bool
    message: str
    examples: tuple[str, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(
        cls, kind: str, message: str, rows: Sequence[int], examples: Iterable[str], *, fault: bool = True
    ) -> Finding:
        """A finding with the first ten of its examples."""
        return cls(kind, fault, message, tuple(islice(examples, SHOWN)), tuple(rows))
