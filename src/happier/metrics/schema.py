"""Which metrics make up an evaluation, under which names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor

from happier.errors import OptionError
from happier.metrics import ranked

LARGEST_K = 1_000_000
"""The largest cut-off: the first k results of every query of a block are held in memory."""


@dataclass(frozen=True)
class Schema:
    """The metrics for these levels, coarse to fine, and these cut-offs."""

    level_names: tuple[str, ...]
    ks: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Number of levels L."""
        return len(self.level_names)

    @property
    def head(self) -> int:
        """How many ranks the metrics at k look at."""
        return max(self.ks, default=0)

    def levels(self) -> Iterator[tuple[int, str]]:
        """Level numbers 1..L with their names."""
        return enumerate(self.level_names, start=1)

    def levels_and_none(self) -> Iterator[tuple[int, str]]:
        """Level numbers 0..L with their names; level 0, nothing shared, is ``none``."""
        return enumerate(("none", *self.level_names))

    def compute(self, levels: Tensor, relevance: Tensor, counts: Tensor) -> dict[str, Tensor]:
        """All metrics of ranked levels ``[Q, n]`` by name (see `happier.metrics.ranked`)."""
        relevance = relevance.to(torch.float64)
        # A query without anything to find has no possible nearer answer: it says nothing about severity.
        nothing = counts[:, 1:].sum(1) == 0
        values = {
            "H-AP": ranked.h_ap(levels, relevance, counts),
            "ASI": ranked.asi(levels, counts),
            "NDCG": ranked.ndcg(levels, counts),
        }
        for level, name in self.levels():
            values[f"AP/{name}"] = ranked.average_precision(levels, counts, level)
        for level, name in self.levels():
            values[f"mAP@R/{name}"] = ranked.average_precision_at_r(levels, counts, level)
        values["first_mistake"] = ranked.first_mistake(levels, self.depth).masked_fill(nothing, nan)
        for k in self.ks:
            values[f"H-P@{k}"] = ranked.hierarchical_precision_at_k(levels, relevance, k)
            values[f"H-R@{k}"] = ranked.hierarchical_recall_at_k(levels, relevance, counts, k)
            values[f"NDCG@{k}"] = ranked.ndcg(levels, counts, k)
            severity = ranked.severity_at_k(levels, self.depth, k)
            values[f"severity@{k}"] = severity.masked_fill(nothing, nan)
            for level, name in self.levels():
                values[f"R@{k}/{name}"] = ranked.recall_at_k(levels, counts, level, k)
            for level, name in self.levels():
                values[f"P@{k}/{name}"] = ranked.precision_at_k(levels, counts, level, k)
            for level, name in self.levels_and_none():
                share = ranked.share_at_k(levels, level, k)
                values[f"share@{k}/{name}"] = share.masked_fill(nothing, nan)
        return values


def higher_is_better(name: str) -> bool | None:
    """Whether a larger value of a metric is the better one; None where neither is: shares and ties.

    >>> higher_is_better("H-AP"), higher_is_better("severity@10"), higher_is_better("share@1/none")
    (True, False, None)
    """
    if name.startswith("share@") or name == "tied_queries":
        return None
    return not is_distance(name)


def is_redundant(name: str) -> bool:
    """Whether a metric repeats another or says nothing: P@1 is R@1, and H-P@1 is 1 or undefined.

    >>> is_redundant("P@1/item"), is_redundant("P@10/item")
    (True, False)
    """
    return name.split("/")[0] in ("P@1", "H-P@1")


def is_distance(name: str) -> bool:
    """Whether a metric is a distance in the tree, 0..L; all others are shares, 0..1."""
    return name.startswith(("severity@", "first_mistake"))


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Return the cut-offs in rising order.

    Raises:
        OptionError: one is not a whole number of 1 or more, or larger than `LARGEST_K`.
    """
    if not all(map(_is_cut_off, ks)):
        raise OptionError(f"ks must be whole numbers from 1 to {LARGEST_K:,}, got {list(ks)}")
    return tuple(sorted({int(k) for k in ks}))


def _is_cut_off(k: Any) -> bool:
    try:
        return not isinstance(k, bool) and int(k) == k and 1 <= k <= LARGEST_K
    except (TypeError, ValueError, OverflowError):  # a word, None, NaN, infinity
        return False
