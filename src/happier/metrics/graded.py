"""H-AP of any real relevances, no tree needed, exact in O(n log n)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from happier.errors import InputError
from happier.numba_cache import jit


def graded_h_ap(relevances: Any) -> npt.NDArray[np.float64]:
    """H-AP of rankings whose items carry any non-negative relevance.

        H-AP = sum_k hrank(k) / k / sum_k rel(k),    hrank(k) = rel(k) + sum_{j < k} min(rel(j), rel(k))

    where items are in ranked order. For relevances from attributes, text similarity or clicks; equal to
    the H-AP of a tree when the relevances come from one.

    Reference: Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022.

    Args:
        relevances: numpy or torch ``[Q, n]`` or ``[n]``, best rank first, finite, 0 or more; 0 pads the end
            of shorter lists.

    Returns:
        float64 ``[Q]``; NaN for a query without any relevance.

    >>> graded_h_ap([[2/3, 1, 0, 1/3, 1], [1/3, 1, 0, 2/3, 1]]).round(4).tolist()
    [0.7833, 0.6722]
    """
    array = relevances.detach().cpu().double().numpy() if isinstance(relevances, torch.Tensor) else relevances
    array = np.asarray(array)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.size == 0:
        raise InputError(f"relevances must be a non-empty array [queries, items], got shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise InputError(f"relevances must be real numbers, got dtype {array.dtype}")
    array = np.ascontiguousarray(array, dtype=np.float64)
    if (bad := ~(np.isfinite(array) & (array >= 0))).any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"relevances must be finite and 0 or more, got {array[row, column]} at [{row}, {column}]"
        )
    values = np.empty(len(array))
    _graded_h_ap(array, values)
    return values


@jit(nogil=True)
def _graded_h_ap(relevances: Any, values: Any) -> None:
    """Two Fenwick trees over the ranks of the relevances: how many are below, and their sum."""
    queries, items = relevances.shape
    for q in range(queries):
        row = relevances[q]
        order = np.argsort(row)
        place = np.empty(items, dtype=np.int64)  # 1-based rank of each relevance, equal values share one
        rank = 0
        for i in range(items):
            if i == 0 or row[order[i]] != row[order[i - 1]]:
                rank += 1
            place[order[i]] = rank
        number = np.zeros(rank + 1, dtype=np.int64)
        total = np.zeros(rank + 1)
        numerator, denominator = 0.0, 0.0
        for k in range(items):
            below_number, below_sum = 0, 0.0
            i = place[k]
            while i > 0:  # items seen with relevance up to rel(k)
                below_number += number[i]
                below_sum += total[i]
                i -= i & -i
            hrank = row[k] + below_sum + (k - below_number) * row[k]
            numerator += hrank / (k + 1)
            denominator += row[k]
            i = place[k]
            while i <= rank:
                number[i] += 1
                total[i] += row[k]
                i += i & -i
        values[q] = numerator / denominator if denominator > 0 else np.nan
