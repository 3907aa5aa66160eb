"""Relevances that come from elsewhere than a tree, as a function of the queries."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from happier.errors import InputError
from happier.evaluation.cpu import block_rows, scores_of
from happier.evaluation.device import rank_by_score
from happier.evaluation.inputs import Vectors
from happier.evaluation.matching import Matching
from happier.metrics.graded import graded_h_ap
from happier.metrics.schema import Schema

FloatArray = npt.NDArray[np.float64]


class GradedRelevance(Protocol):
    """Relevance of every gallery item ``[q, N]`` to the queries with these indices ``[q]``."""

    def __call__(self, queries: npt.NDArray[np.int64], /) -> Any:
        """Return non-negative relevances ``[q, N]``, numpy or torch."""
        ...


def graded_columns(
    relevance: GradedRelevance,
    queries: Vectors,
    gallery: Vectors,
    matching: Matching,
    schema: Schema,
    first: int,
    last: int,
    *,
    worst: bool,
    block_size: int | None,
) -> dict[str, FloatArray]:
    """H-AP, H-P@k and H-R@k of the queries first..last."""
    kind = np.float64 if queries.is_double or gallery.is_double else np.float32
    again, earlier = gallery.duplicates()
    # The sort of a block needs about ten times the memory of its scores.
    rows = block_rows(matching.items, 10 * np.dtype(kind).itemsize, last - first, block_size)
    buffer = np.empty((rows, matching.items), dtype=kind)
    names = ["H-AP", *(f"{kind}@{k}" for k in schema.ks for kind in ("H-P", "H-R"))]
    values = {name: np.full(last - first, np.nan) for name in names}
    for start in range(first, last, rows):
        stop = min(start + rows, last)
        scores = scores_of(queries, slice(start, stop), gallery, again, earlier, buffer)
        block = matching.block(slice(start, stop))
        given = _check(relevance(np.arange(start, stop)), (stop - start, matching.items))
        owner = np.repeat(np.arange(stop - start), np.diff(block.excluded_start))
        scores[owner, block.excluded] = -np.inf
        given[owner, block.excluded] = 0.0  # last and worth nothing: as if it were not there
        order = rank_by_score(torch.from_numpy(scores), torch.from_numpy(given), worst=worst).numpy()
        ranked = np.take_along_axis(given, order, axis=1)
        place = slice(start - first, stop - first)
        values["H-AP"][place] = graded_h_ap(ranked)
        total = ranked.sum(1)
        items = matching.items - np.diff(block.excluded_start)
        with np.errstate(invalid="ignore", divide="ignore"):
            for k in schema.ks:
                head = ranked[:, :k]
                values[f"H-R@{k}"][place] = np.where(total > 0, head.sum(1) / total, np.nan)
                own = head[:, -1]
                precision = np.minimum(head, own[:, None]).sum(1) / (k * own)
                values[f"H-P@{k}"][place] = np.where((own > 0) & (items >= k), precision, np.nan)
    return values


def _check(relevances: Any, shape: tuple[int, int]) -> FloatArray:
    array = (
        relevances.detach().cpu().numpy() if isinstance(relevances, torch.Tensor) else np.asarray(relevances)
    )
    if array.shape != shape:
        raise InputError(f"relevance must return an array of shape {shape}, got {array.shape}")
    array = array.astype(np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise InputError("relevance must return finite values of 0 or more")
    return array
