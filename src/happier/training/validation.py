"""The encoder as it stands -> the metrics of the split that is watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import happier
from happier.errors import ManifestError
from happier.evaluation.protocol import searches, splits_to_search
from happier.losses import gather_across_ranks
from happier.training.batches import EvaluationBatches

if TYPE_CHECKING:
    from happier.data import Manifest
    from happier.encoder import Encoder
    from happier.training.config import TrainConfig

__all__ = ["Validation"]


class Validation:
    """Embeds the rows of one split, each rank its part, and evaluates them exactly.

    Args:
        manifest: the whole manifest.
        config: split, batch size, relevance.
        fabric: devices and ranks.

    Attributes:
        split: which split is watched: the one asked for, else val, test, or query against gallery.
    """

    def __init__(self, manifest: Manifest, config: TrainConfig, fabric: Any) -> None:
        wanted = config.evaluation.split
        self.split = wanted or next((s for s in ("val", "test", "query") if s in manifest.splits), "test")
        try:
            self._rows = manifest.select(splits_to_search(manifest, self.split))
        except ManifestError as error:
            raise ManifestError(f"{error}; or train without evaluation: evaluation.every=0") from None
        self._searches = searches(self._rows, self.split)
        self._batches = EvaluationBatches(self._rows, config)
        self._relevance = happier.HierarchyRelevance(count_query=config.evaluation.count_query)
        self._precision = config.training.precision
        self._fabric = fabric

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """The summary; over several test sets their plain mean, and each under its own name."""
        vectors = self._embed(encoder)
        # Every rank calls with the same vectors: the queries are shared out, and each rank gets the whole.
        return _together(
            {
                search.name: happier.evaluate(
                    **search.arguments(vectors, self._rows),
                    relevance=self._relevance,
                    level_names=search.level_names,
                ).summary
                for search in self._searches
            }
        )

    def _embed(self, encoder: Encoder) -> np.ndarray[Any, np.dtype[np.float32]]:
        rank, world, total = self._fabric.global_rank, self._fabric.world_size, len(self._rows)
        first, last = total * rank // world, total * (rank + 1) // world
        with encoder.inference(self._precision):
            own = [
                encoder(self._fabric.to_device(images)).float() for images in self._batches.rows(first, last)
            ]
        vectors = torch.cat(own) if own else torch.empty(0, encoder.dim, device=self._fabric.device)
        vectors = gather_across_ranks(vectors)
        return vectors.cpu().numpy()


def _together(summaries: dict[str, dict[str, float]]) -> dict[str, float]:
    if len(summaries) == 1:
        return next(iter(summaries.values()))
    together = {f"{name}:{key}": value for name, own in summaries.items() for key, value in own.items()}
    shared = set.intersection(*(set(own) for own in summaries.values()))
    for key in sorted(shared):
        together[key] = float(np.mean([own[key] for own in summaries.values()]))
    return together
