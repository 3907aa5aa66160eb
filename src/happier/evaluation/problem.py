"""Queries, gallery, and which item matches which query: checked, hashed and sorted once, used many times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from happier.arrays import IntArray
from happier.errors import InputError
from happier.evaluation.inputs import Vectors, as_ids
from happier.evaluation.matching import Matching
from happier.unit_length import warn_of_gallery


@dataclass(frozen=True)
class RetrievalProblem:
    """Queries and the gallery they are searched in; `prepare` makes one.

    Attributes:
        queries: vectors ``[Q, D]``.
        gallery: vectors ``[N, D]``; the queries themselves for leave-one-out.
        matching: the level that each query shares with each item, and the items that are the query itself.
    """

    queries: Vectors
    gallery: Vectors
    matching: Matching

    @classmethod
    def prepare(
        cls,
        embeddings: Any,
        labels: Any,
        gallery: Any | None = None,
        gallery_labels: Any | None = None,
        ids: Any | None = None,
        gallery_ids: Any | None = None,
    ) -> RetrievalProblem:
        """Check the inputs of `happier.evaluate`, where each is described, and sort the gallery.

        Raises:
            InputError: arrays of wrong shape, type or values, or that do not belong together.
            TaxonomyError: labels that do not form a tree.

        >>> problem = RetrievalProblem.prepare(np.eye(3), [[0], [0], [1]])
        >>> problem.depth, problem.without_positives
        (1, 1)
        """
        if (gallery is None) != (gallery_labels is None):
            raise InputError("gallery and gallery_labels must be given together")
        queries = Vectors(embeddings)
        items = queries if gallery is None else Vectors(gallery, name="gallery")
        _check_sizes(queries, items)
        warn_of_gallery(items.smallest_norm, items.largest_norm)
        mine, theirs = _check_ids(ids, gallery_ids, queries, items, leave_one_out=gallery is None)
        matching = Matching.of(labels, gallery_labels, mine, theirs)
        if matching.queries != len(queries) or matching.items != len(items):
            raise InputError(
                f"labels must have one row per embedding, got {matching.queries} rows for {len(queries)} "
                f"queries and {matching.items} for a gallery of {len(items)}"
            )
        return cls(queries, items, matching)

    @property
    def depth(self) -> int:
        """Number of levels L."""
        return self.matching.depth

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that scores are computed in."""
        return np.dtype(np.float64 if self.queries.is_double or self.gallery.is_double else np.float32)

    @cached_property
    def duplicates(self) -> tuple[IntArray, IntArray]:
        """Gallery items that repeat an earlier one, and the one they repeat; see `Vectors.duplicates`."""
        return self.gallery.duplicates()

    @cached_property
    def without_positives(self) -> int:
        """Number of queries that share no level with any item."""
        return int((self.matching.block(slice(None)).counts[:, 1:].sum(1) == 0).sum())

    def at_level(self, level: int) -> RetrievalProblem:
        """The same vectors with the classes of one level, 1..L, as the only label."""
        return replace(self, matching=self.matching.at_level(level))


def _check_sizes(queries: Vectors, items: Vectors) -> None:
    if queries.dimensions != items.dimensions:
        raise InputError(
            f"embeddings and gallery must have the same dimension, got {queries.dimensions} "
            f"and {items.dimensions}"
        )
    limit = float(np.finfo(np.float64 if queries.is_double or items.is_double else np.float32).max)
    if queries.largest_norm * items.largest_norm >= limit:
        raise InputError(
            f"embeddings are too large for their scores: norms up to {queries.largest_norm:.3g} and "
            f"{items.largest_norm:.3g}; scale them, for instance to unit length"
        )


def _check_ids(
    ids: Any, gallery_ids: Any, queries: Vectors, items: Vectors, *, leave_one_out: bool
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    if leave_one_out and gallery_ids is not None:
        raise InputError("gallery_ids were given without a gallery")
    if not leave_one_out and (ids is None) != (gallery_ids is None):
        raise InputError("ids and gallery_ids must be given together")
    mine = None if ids is None else as_ids(ids, len(queries), name="ids")
    theirs = None if gallery_ids is None else as_ids(gallery_ids, len(items), name="gallery_ids")
    if mine is not None and theirs is not None and (mine.dtype.kind == "U") != (theirs.dtype.kind == "U"):
        raise InputError(
            f"ids and gallery_ids must both be integers or both strings, got {mine.dtype} and {theirs.dtype}"
        )
    return mine, theirs
