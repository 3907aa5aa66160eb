"""What every loss shares: one call, checked once, and the batch it sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from happier.errors import InputError
from happier.losses.proxies import Proxies
from happier.taxonomy import shared_levels
from happier.unit_length import warn_of_batch


@dataclass(frozen=True)
class Batch:
    """Queries and the set they are ranked against, on one device, in float32 or float64.

    Attributes:
        embeddings: queries ``[B, D]``.
        labels: int64 ``[B, L]``, coarse first, -1 unknown.
        references: the set ``[R, D]`` that is ranked for each query; the queries themselves by default.
        reference_labels: int64 ``[R, L]``.
        own: int64 ``[B]``, the place of each query in the set (-1: not there), or None when none is in it.
        mined: index arrays of pairs (four) or triplets (three), the only ones to look at, or None for all.
    """

    embeddings: torch.Tensor
    labels: torch.Tensor
    references: torch.Tensor
    reference_labels: torch.Tensor
    own: torch.Tensor | None
    mined: tuple[torch.Tensor, ...] | None

    def scores(self) -> torch.Tensor:
        """Dot products ``[B, R]``: cosines when the embeddings are unit vectors."""
        return self.embeddings @ self.references.T

    def levels(self, *, include_query: bool = False) -> torch.Tensor:
        """int8 ``[B, R]``: the level that query and item share, -1 where the item is not retrieved."""
        levels = shared_levels(self.labels, self.reference_labels)
        if self.own is not None and not include_query:
            columns = torch.arange(levels.shape[1], device=levels.device)
            levels = levels.masked_fill(columns == self.own[:, None], -1)
        if self.mined is None:
            return levels
        seen = torch.zeros_like(levels, dtype=torch.bool)
        seen[self.mined[0], self.mined[1]] = True
        # Triplets are anchor, positive, negative; pairs come with an anchor for each.
        seen[self.mined[0] if len(self.mined) == 3 else self.mined[2], self.mined[-1]] = True
        return levels.masked_fill(~seen, -1)

    def fine_matches(self, *, include_query: bool = False) -> torch.Tensor:
        """int8 ``[B, R]``: 1 for the same finest class, 0 for another, -1 where the item is not retrieved."""
        levels = self.levels(include_query=include_query)
        return torch.where(levels < 0, levels, (levels == self.labels.shape[1]).to(torch.int8))

    def down_to(self, level: int) -> Batch:
        """The same batch with only the ``level`` coarsest levels."""
        return replace(self, labels=self.labels[:, :level], reference_labels=self.reference_labels[:, :level])

    def zero(self) -> torch.Tensor:
        """A zero that back-propagates to the embeddings."""
        return self.embeddings.sum() * 0.0


class RetrievalLoss(nn.Module, ABC):
    """A loss over embeddings and label rows; concrete losses say what to do with a checked `Batch`.

    Shapes:
        embeddings ``[B, D]``, unit vectors; labels int ``[B, L]``, coarse first, -1 unknown (``[B]``: one
        level). The result is a scalar.
    """

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        ref_embeddings: Any = None,
        ref_labels: torch.Tensor | None = None,
        ref_labels_of_pairs: torch.Tensor | None = None,
        *,
        indices_tuple: Sequence[torch.Tensor] | None = None,
        ref_emb: torch.Tensor | None = None,
        query_positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The loss of a batch, against itself or against a reference set.

        Both ``loss(embeddings, labels, ref_embeddings, ref_labels)`` and pytorch-metric-learning's
        ``loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)`` are understood.

        Args:
            embeddings: queries ``[B, D]``, unit vectors.
            labels: ``[B, L]``, coarse first, -1 unknown.
            ref_embeddings: the set ``[R, D]`` to rank for each query; None or the same tensor: the batch
                itself, where no query is retrieved for itself.
            ref_labels: ``[R, L]``.
            ref_labels_of_pairs: the fifth argument of pytorch-metric-learning's call by position.
            indices_tuple: pairs or triplets of a miner; only they are looked at.
            ref_emb: pytorch-metric-learning's name for ``ref_embeddings``.
            query_positions: ``[B]``, the place of each query in the reference set (-1: not there), so that it
                is not retrieved for itself.

        Raises:
            InputError: shapes or types that do not fit.
        """
        if ref_labels_of_pairs is not None or isinstance(ref_embeddings, tuple | list):
            indices_tuple, ref_embeddings, ref_labels = ref_embeddings, ref_labels, ref_labels_of_pairs
        if ref_emb is not None:
            if ref_embeddings is not None:
                raise InputError("ref_emb and ref_embeddings are two names of one argument: give one of them")
            ref_embeddings = ref_emb
        if not isinstance(embeddings, torch.Tensor):
            raise InputError(f"embeddings must be a float tensor, got {type(embeddings).__name__}")
        # Ranks and softmaxes need float32: half precision cannot tell neighbouring scores apart.
        with torch.autocast(embeddings.device.type, enabled=False):
            batch = _checked(embeddings, labels, ref_embeddings, ref_labels, query_positions, indices_tuple)
            warn_of_batch(self, batch.embeddings)
            return self.compute(batch)

    @abstractmethod
    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""

    def proxy_parameters(self) -> list[nn.Parameter]:
        """The proxies, for optimiser settings of their own; none unless the loss has some."""
        return [entry.weight for entry in self.modules() if isinstance(entry, Proxies)]


def _checked(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    references: torch.Tensor | None,
    reference_labels: torch.Tensor | None,
    own: torch.Tensor | None,
    indices: Sequence[torch.Tensor] | None,
) -> Batch:
    vectors, rows = _checked_rows(embeddings, labels, "embeddings", "labels")
    if references is None or references is embeddings:
        if reference_labels is not None and reference_labels is not labels and references is None:
            raise InputError(
                "ref_labels were given without ref_embeddings: give both, or neither for the batch itself"
            )
        if own is not None:
            raise InputError("query_positions are positions in a reference set: they need ref_embeddings")
        own = torch.arange(len(vectors), device=vectors.device)
        others, other_rows = vectors, rows
    else:
        if reference_labels is None:
            raise InputError("ref_embeddings were given without ref_labels: give both")
        others, other_rows = _checked_rows(references, reference_labels, "ref_embeddings", "ref_labels")
        if others.shape[1] != vectors.shape[1] or other_rows.shape[1] != rows.shape[1]:
            raise InputError(
                f"queries have {vectors.shape[1]} dimensions and {rows.shape[1]} levels, "
                f"references {others.shape[1]} and {other_rows.shape[1]}: they must agree"
            )
        others = others.to(device=vectors.device, dtype=vectors.dtype)
        other_rows = other_rows.to(vectors.device)
        if own is not None:
            own = torch.as_tensor(own, device=vectors.device)
            if own.shape != (len(vectors),):
                raise InputError(
                    f"query_positions must be one position for each of the {len(vectors)} queries, "
                    f"got shape {tuple(own.shape)}"
                )
    if indices is not None and len(indices) not in (3, 4):
        raise InputError(
            f"indices_tuple must hold a triplet or two pairs of index arrays, got {len(indices)}"
        )
    mined = None if indices is None else tuple(part.to(vectors.device) for part in indices)
    return Batch(vectors, rows, others, other_rows, own, mined)


def _checked_rows(
    embeddings: torch.Tensor, labels: torch.Tensor, name: str, labels_name: str
) -> tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(embeddings, torch.Tensor) or embeddings.ndim != 2 or not embeddings.is_floating_point():
        what = tuple(embeddings.shape) if isinstance(embeddings, torch.Tensor) else type(embeddings).__name__
        raise InputError(f"{name} must be a float tensor [items, dimensions], got {what}")
    labels = torch.as_tensor(labels)
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.is_complex():
        raise InputError(f"{labels_name} must be integers, got {labels.dtype}")
    if labels.ndim == 1:
        labels = labels[:, None]
    if labels.ndim != 2 or labels.shape[0] != embeddings.shape[0] or labels.shape[1] == 0:
        raise InputError(
            f"{labels_name} must be [items, levels] with {embeddings.shape[0]} rows as {name}, "
            f"got {tuple(labels.shape)}"
        )
    if embeddings.dtype not in (torch.float32, torch.float64):
        embeddings = embeddings.float()
    return embeddings, labels.to(device=embeddings.device, dtype=torch.int64)
