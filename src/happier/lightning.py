"""Hierarchical metrics in a Lightning ``Trainer``, without touching the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from happier.errors import InputError
from happier.evaluation.options import PAPER_RELEVANCE
from happier.extras import needs_extra
from happier.relevance import Relevance
from happier.torchmetrics import HierarchicalRetrieval

with needs_extra("train"):
    from lightning.pytorch import Callback, LightningModule, Trainer

__all__ = ["HierarchicalRetrievalCallback"]


class HierarchicalRetrievalCallback(Callback):
    """Evaluates leave-one-out retrieval over each validation epoch and logs the metrics.

    The module's ``validation_step`` returns a dictionary with ``embeddings`` ``[B, D]`` and ``labels``
    ``[B, L]``, and ``ids`` ``[B]`` where a distributed sampler may repeat items. What is logged can be
    monitored by Lightning's own callbacks: ``ModelCheckpoint(monitor="H-AP", mode="max")``.

    Args:
        level_names: names of the levels, coarse to fine.
        metrics: which names of `happier.evaluate`'s summary to log.
        relevance: of each level.
        ks: cut-offs of the metrics at k.
        prefix: before each name, such as ``val/``.

    >>> HierarchicalRetrievalCallback(level_names=["kind", "item"]).metrics
    ('H-AP', 'AP/item', 'R@1/item')
    """

    def __init__(
        self,
        *,
        level_names: Sequence[str],
        metrics: Sequence[str] | None = None,
        relevance: Relevance = PAPER_RELEVANCE,
        ks: Sequence[int] = (1, 10),
        prefix: str = "",
    ) -> None:
        if not level_names:
            raise InputError("level_names must name at least one level, got none")
        finest = level_names[-1]
        usual = ("H-AP", f"AP/{finest}", *(f"R@{k}/{finest}" for k in ks[:1]))
        self.metrics = usual if metrics is None else tuple(metrics)
        self.prefix = prefix
        self._metric = HierarchicalRetrieval(
            relevance=relevance, ks=ks, level_names=level_names, metrics=self.metrics
        )

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start anew."""
        del trainer
        self._metric.reset()
        self._metric.to(pl_module.device)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take what the step returned.

        Raises:
            InputError: it did not return embeddings and labels.
        """
        del trainer, pl_module, batch, batch_idx, dataloader_idx
        if not isinstance(outputs, dict) or not {"embeddings", "labels"} <= outputs.keys():
            raise InputError(
                "validation_step must return {'embeddings': [B, D], 'labels': [B, L]}, got "
                f"{type(outputs).__name__}"
            )
        self._metric.update(outputs["embeddings"], outputs["labels"], outputs.get("ids"))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the metrics of the epoch."""
        del trainer
        found = self._metric.compute()
        pl_module.log_dict({f"{self.prefix}{name}": value for name, value in found.items()})
        self._metric.reset()
