"""Level counts -> the relevance of each level, per query.

A relevance is called with the number of gallery items at each level of each query, ``[Q, L+1]`` (column 0
counts the negatives), and returns the relevance of each level, ``[Q, L+1]``, column 0 being 0. H-AP does not
change when all relevances of a query are scaled, so only ratios matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar, final, runtime_checkable

import numpy as np
import torch

from happier.errors import InputError, OptionError

Array = TypeVar("Array", np.ndarray[Any, np.dtype[Any]], torch.Tensor)


@runtime_checkable
class Relevance(Protocol):
    """Turns level counts into relevances; implement it for a relevance of your own."""

    @property
    def count_query(self) -> bool:
        """Whether a query that was removed from its own gallery still counts at its level."""
        ...

    def __call__(self, level_counts: Array) -> Array:
        """Map gallery items per level ``[Q, L+1]`` to relevances ``[Q, L+1]`` in float64."""
        ...


@final
class HierarchyRelevance:
    """The paper's relevance: each level shares a fixed total weight among its items (Eq. 4).

        rel(l) = (l / L)^alpha / |Omega^(l)|,    rel(0) = 0

    where ``|Omega^(l)|`` counts the gallery items that share exactly ``l`` levels with the query. A larger
    ``alpha`` gives the fine levels more weight (HAPPIER_F).

    The relevance need not grow with the level: 9 fine items and 2 coarse ones give 1/9 < 0.5/2. H-AP is still
    at most 1; its maximum is then reached by ranking in order of relevance, not of level.

    Args:
        alpha: how fast the weight falls towards the coarse levels; 0 or more.
        count_query: count the query itself in its finest level although it is never retrieved. The authors'
            evaluation does; it lowers the weight of the fine level by ``(c - 1) / c`` in a class of ``c``.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022.

    >>> import numpy as np
    >>> HierarchyRelevance()(np.array([[5, 4, 2]])).tolist()
    [[0.0, 0.125, 0.5]]
    """

    def __init__(self, alpha: float = 1.0, count_query: bool = False) -> None:
        if not (math.isfinite(alpha) and alpha >= 0):
            raise OptionError(f"alpha must be a finite number of 0 or more, got {alpha}")
        self.alpha: Final = float(alpha)
        self.count_query: Final = bool(count_query)

    def __call__(self, level_counts: Array) -> Array:
        """Relevances ``[Q, L+1]`` of the levels."""
        depth = level_counts.shape[-1] - 1
        columns: list[Array] = [_zeros(level_counts)]
        for level in range(1, depth + 1):
            count = level_counts[..., level]
            columns.append((level / depth) ** self.alpha / _at_least_one(count) * (count > 0))
        return _stack(columns)

    def __repr__(self) -> str:
        return f"HierarchyRelevance(alpha={self.alpha:g}, count_query={self.count_query})"


@final
class WeightedAPRelevance:
    """The relevance that makes H-AP a weighted sum of the levels' AP (Property 1).

        rel(l) = sum_{p=1..l} w_p / |Omega^{+,p}|

    where ``Omega^{+,p}`` are the gallery items at level ``p`` or finer. Then ``H-AP = sum_l w_l AP^(l)``
    whenever every level has a positive.

    Args:
        weights: one per level, coarse to fine, 0 or more, sum 1.

    Reference:
        Ramzi et al., ECCV 2022, supplementary A.2.

    >>> import numpy as np
    >>> WeightedAPRelevance([0.5, 0.5])(np.array([[5, 4, 1]])).tolist()
    [[0.0, 0.1, 0.6]]
    """

    count_query: Final = False

    def __init__(self, weights: Sequence[float]) -> None:
        self.weights: Final = tuple(float(weight) for weight in weights)
        if not self.weights or not all(math.isfinite(w) and w >= 0 for w in self.weights):
            raise OptionError(f"weights must be finite numbers of 0 or more, got {list(self.weights)}")
        if not math.isclose(sum(self.weights), 1.0, abs_tol=1e-6):
            raise OptionError(
                f"weights must sum to 1, got {list(self.weights)} with sum {sum(self.weights):g}"
            )

    def __call__(self, level_counts: Array) -> Array:
        """Relevances ``[Q, L+1]`` of the levels."""
        depth = level_counts.shape[-1] - 1
        _check_depth(self.weights, depth, "WeightedAPRelevance.weights")
        columns: list[Array] = [_zeros(level_counts)]
        for level in range(1, depth + 1):
            at_or_below = level_counts[..., level:].sum(-1)
            step = self.weights[level - 1] / _at_least_one(at_or_below) * (at_or_below > 0)
            columns.append(columns[-1] + step)
        return _stack(columns)

    def __repr__(self) -> str:
        return f"WeightedAPRelevance({list(self.weights)})"


@final
class LevelRelevance:
    """A constant for each level, whatever the counts; the paper's worked example uses (1/3, 2/3, 1).

    Args:
        values: one per level 1..L, coarse to fine, 0 or more.

    >>> import numpy as np
    >>> LevelRelevance([0.5, 1.0])(np.array([[5, 4, 1]])).tolist()
    [[0.0, 0.5, 1.0]]
    """

    count_query: Final = False

    def __init__(self, values: Sequence[float]) -> None:
        self.values: Final = tuple(float(value) for value in values)
        if not self.values or not all(math.isfinite(v) and v >= 0 for v in self.values):
            raise OptionError(f"values must be finite numbers of 0 or more, got {list(self.values)}")

    def __call__(self, level_counts: Array) -> Array:
        """Relevances ``[Q, L+1]`` of the levels."""
        _check_depth(self.values, level_counts.shape[-1] - 1, "LevelRelevance.values")
        columns: list[Array] = [_zeros(level_counts)]
        for value in self.values:
            columns.append(columns[0] + value)
        return _stack(columns)

    def __repr__(self) -> str:
        return f"LevelRelevance({list(self.values)})"


def _check_depth(values: tuple[float, ...], depth: int, name: str) -> None:
    if len(values) != depth:
        raise OptionError(f"{name} must have one value for each of the {depth} levels, got {len(values)}")


def _zeros(counts: Array) -> Array:
    if isinstance(counts, torch.Tensor):
        return torch.zeros(counts.shape[:-1], dtype=torch.float64, device=counts.device)
    return np.zeros(counts.shape[:-1], dtype=np.float64)


def _at_least_one(counts: Array) -> Array:
    if isinstance(counts, torch.Tensor):
        return counts.clamp(min=1).to(torch.float64)
    return np.asarray(np.maximum(counts, 1), dtype=np.float64)


def _stack(columns: list[Array]) -> Array:
    stacked: Array
    if isinstance(columns[0], torch.Tensor):
        stacked = torch.stack(columns, dim=-1)
    else:
        stacked = np.stack(columns, axis=-1)
    return stacked


def jaccard(attributes: Array, others: Array | None = None) -> Array:
    """Relevance by attributes: of those that either of two items has, the share that both have.

        rel(q, j) = |A_q and A_j| / |A_q or A_j|,    0 where neither has any

    where ``A_q`` are the attributes of item ``q``. For `happier.losses.GradedHAPLoss`, and for `evaluate` as
    ``relevance=lambda queries: jaccard(attributes[queries], attributes)``.

    Args:
        attributes: ``[Q, A]``, numpy or torch; an item has an attribute where the value is not 0.
        others: ``[N, A]``; by default the same items.

    Returns:
        float64 ``[Q, N]``.

    Raises:
        InputError: not two matrices of the same attributes.

    >>> jaccard(np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0]])).round(2).tolist()
    [[1.0, 0.33, 0.0], [0.33, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    others = attributes if others is None else others
    if attributes.ndim != 2 or others.ndim != 2 or attributes.shape[1] != others.shape[1]:
        raise InputError(
            "attributes must be [items, attributes], with the same attributes on both sides, got "
            f"{tuple(attributes.shape)} and {tuple(others.shape)}"
        )
    if isinstance(attributes, np.ndarray):
        return jaccard(torch.from_numpy(attributes != 0), torch.from_numpy(others != 0)).numpy()
    one, other = (attributes != 0).float(), (others != 0).float()
    both = (one @ other.T).double()  # counts, exact in float32
    either = one.sum(1)[:, None] + other.sum(1) - both
    return both / either.clamp(min=1)


@final
class AttributeRelevance:
    """The share of attributes in common (`jaccard`), as a function of queries, for evaluations.

    Args:
        attributes: ``[N, A]`` of all rows, not 0 where an image has an attribute: `Manifest.attributes`.
        queries: rows of the queries; by default all.
        gallery: rows that are searched in; by default all.

    Raises:
        InputError: no image has any attribute.

    >>> relevance = AttributeRelevance(np.array([[1, 1], [0, 1], [1, 0]]))
    >>> relevance(np.array([1])).tolist()
    [[0.5, 1.0, 0.0]]
    >>> relevance.between(queries=np.array([2]), gallery=np.array([0, 1]))(np.array([0])).tolist()
    [[0.5, 0.0]]
    """

    def __init__(
        self,
        attributes: np.ndarray[Any, np.dtype[Any]],
        queries: np.ndarray[Any, np.dtype[Any]] | slice = slice(None),
        gallery: np.ndarray[Any, np.dtype[Any]] | slice = slice(None),
    ) -> None:
        if not attributes.any():
            raise InputError("no image has any attribute: there is nothing to find")
        self._all = attributes
        self._queries, self._gallery = attributes[queries], attributes[gallery]

    def between(
        self, queries: np.ndarray[Any, np.dtype[Any]], gallery: np.ndarray[Any, np.dtype[Any]]
    ) -> AttributeRelevance:
        """The relevance where these rows are searched for among those."""
        return AttributeRelevance(self._all, queries, gallery)

    def __call__(self, queries: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """Relevance ``[q, N]`` of the gallery to the queries with these numbers."""
        return jaccard(self._queries[queries], self._gallery)

    def __repr__(self) -> str:
        return "AttributeRelevance()"
