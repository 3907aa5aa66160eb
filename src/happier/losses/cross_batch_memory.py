"""Earlier batches as part of the retrieval set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, final

import torch

from happier.errors import InputError, OptionError
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class CrossBatchMemory(RetrievalLoss):
    """Ranks each query against its batch and the embeddings of earlier batches, which have no gradient.

        L = loss(queries, batch + memory)

    where the memory holds the last ``size`` embeddings seen in training, oldest out first. The batch itself
    comes with its gradient, and no query is retrieved for itself. An image seen again in the meantime is in
    the memory as it was then.

    Relations: pytorch-metric-learning's class of the same name serves pair losses; this one any loss here,
    ranking losses in particular. `gather_across_ranks` enlarges the batch by those of other ranks instead.

    Args:
        loss: any loss of this package.
        size: number of embeddings to keep.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Wang et al., Cross-Batch Memory for Embedding Learning, CVPR 2020.

    >>> import torch
    >>> from happier.losses import HAPLoss
    >>> loss = CrossBatchMemory(HAPLoss(), size=3)
    >>> for _ in range(2):
    ...     value = loss(torch.eye(4)[:2], torch.tensor([[0, 0], [0, 1]]))
    >>> len(loss)
    3
    """

    def __init__(self, loss: RetrievalLoss, size: int) -> None:
        super().__init__()
        if not isinstance(size, int) or size < 1:
            raise OptionError(f"size must be a whole number of 1 or more, got {size!r}")
        self.loss = loss
        self.size = size
        self._embeddings: torch.Tensor | None = None
        self._labels: torch.Tensor | None = None

    def __len__(self) -> int:
        return 0 if self._embeddings is None else len(self._embeddings)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch; in training its embeddings are then remembered."""
        if batch.references is not batch.embeddings or batch.mined is not None:
            raise InputError(
                "CrossBatchMemory has its own reference set: call it with embeddings and labels only"
            )
        embeddings, labels = batch.embeddings, batch.labels
        if self._embeddings is not None and self._labels is not None:
            if self._embeddings.shape[1] != embeddings.shape[1] or self._labels.shape[1] != labels.shape[1]:
                raise InputError(
                    f"the memory holds {self._embeddings.shape[1]} dimensions and "
                    f"{self._labels.shape[1]} levels, the batch has {embeddings.shape[1]} and "
                    f"{labels.shape[1]}: call reset()"
                )
            old = self._embeddings.to(device=embeddings.device, dtype=embeddings.dtype)
            old_labels = self._labels.to(labels.device)
            batch = replace(
                batch,
                references=torch.cat([embeddings, old]),
                reference_labels=torch.cat([labels, old_labels]),
            )
        value = self.loss.compute(batch)
        if self.training:
            # Newest first, as in the reference set; clones, so that nothing keeps the batch alive.
            self._embeddings = batch.references.detach()[: self.size].clone()
            self._labels = batch.reference_labels[: self.size].clone()
        return value

    def reset(self) -> None:
        """Forget everything."""
        self._embeddings = self._labels = None

    def get_extra_state(self) -> dict[str, Any]:
        """The memory, for ``state_dict``."""
        return {"embeddings": self._embeddings, "labels": self._labels}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take the memory from ``state_dict``."""
        self._embeddings, self._labels = state["embeddings"], state["labels"]

    def extra_repr(self) -> str:
        """Size."""
        return f"size={self.size}"
