"""The current encoder -> the metrics of the evaluated split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from happier import distributed
from happier.arrays import Float32Array
from happier.encoder.features import apply_head
from happier.errors import ManifestError
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.protocol import evaluate_sets, evaluation_sets, splits_to_search
from happier.losses import gather_across_ranks
from happier.relevance import AttributeRelevance, HierarchyRelevance
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
        split: which split is evaluated: the configured one, else val, test, or query against gallery.
        rows: its rows.
    """

    def __init__(self, manifest: Manifest, config: TrainConfig, fabric: Any) -> None:
        wanted = config.evaluation.split
        self.split = wanted or next((s for s in ("val", "test", "query") if s in manifest.splits), "test")
        try:
            self.rows = manifest.select(splits_to_search(manifest, self.split))
        except ManifestError as error:
            raise ManifestError(f"{error}; or train without evaluation: evaluation.every=0") from None
        self._sets = evaluation_sets(self.rows, self.split)
        self._features: Float32Array | None = None
        if config.model.train == "all":
            self._batches = EvaluationBatches(self.rows, config)
        self._options = EvaluationOptions(
            relevance=AttributeRelevance(self.rows.attributes()[0])
            if config.by_attributes
            else HierarchyRelevance(count_query=config.evaluation.count_query)
        )
        self._precision = config.training.precision
        self._fabric = fabric

    def use(self, features: Float32Array) -> None:
        """Evaluate the head on the features ``[N, F]`` of the rows; no image is read."""
        assert len(features) == len(self.rows)
        self._features = features

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """The summary, under the same keys as that of ``happier evaluate``."""
        vectors = self._embed(encoder)
        # Every rank passes the same vectors: the queries are split among them, and each gets the full result.
        problems = tuple(one.problem(vectors, self.rows) for one in self._sets)
        return evaluate_sets(self._sets, problems, self._options).summary()

    def _embed(self, encoder: Encoder) -> Float32Array:
        if self._features is not None:
            return apply_head(encoder, self._features)
        first, last = distributed.shard(len(self.rows))
        with encoder.inference(self._precision):
            own = [
                encoder(self._fabric.to_device(images)).float() for images in self._batches.rows(first, last)
            ]
        vectors = torch.cat(own) if own else torch.empty(0, encoder.dim, device=self._fabric.device)
        vectors = gather_across_ranks(vectors)
        return vectors.cpu().numpy()
