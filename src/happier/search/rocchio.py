"""Several images as one query: more like these, less like those."""

from __future__ import annotations

import numpy as np

from happier.errors import InputError
from happier.search.engine import VectorArray

NEGATIVE_WEIGHT = 0.25
# Below this length what is left is rounding.
_SHORTEST = 1e-4


def rocchio(
    positive: VectorArray, negative: VectorArray | None = None, *, weight: float = NEGATIVE_WEIGHT
) -> VectorArray:
    """The direction of what is wanted, away from what is not.

        q = v / |v|,    v = mean(positive) - weight * mean(negative)

    One wanted vector and no unwanted one is that vector itself.

    Rocchio, Relevance feedback in information retrieval, in: The SMART retrieval system, 1971.

    Args:
        positive: unit vectors ``[P, D]``, at least one.
        negative: unit vectors ``[N, D]``; None or empty for none.
        weight: of the unwanted ones.

    Raises:
        InputError: nothing is wanted, or the images cancel each other out.

    >>> wanted = np.array([[1, 0, 0], [0, 1, 0]], dtype=np.float32)
    >>> rocchio(wanted).round(3).tolist()
    [0.7070000171661377, 0.7070000171661377, 0.0]
    """
    if not len(positive):
        raise InputError("a query needs at least one image that the results should be like")
    mean = np.asarray(positive, dtype=np.float64).mean(axis=0)
    if negative is not None and len(negative):
        mean = mean - weight * np.asarray(negative, dtype=np.float64).mean(axis=0)
    length = float(np.linalg.norm(mean))
    if length < _SHORTEST:
        raise InputError("these images cancel each other out: remove one of them")
    return np.asarray(mean / length, dtype=np.float32)
