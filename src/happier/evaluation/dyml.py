"""The protocol of the DyML benchmarks: a test set per scale, each with its own single label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from happier.errors import InputError
from happier.evaluation.exact import Ties, evaluate
from happier.evaluation.result import Result
from happier.taxonomy import as_labels, check_level_names, path_codes


@dataclass(frozen=True)
class RetrievalSet:
    """Queries and gallery as `happier.evaluate` takes them; no gallery means leave-one-out."""

    embeddings: Any
    labels: Any
    gallery: Any | None = None
    gallery_labels: Any | None = None
    ids: Any | None = None
    gallery_ids: Any | None = None

    def by_level(self, level_names: Sequence[str] | None = None) -> dict[str, RetrievalSet]:
        """One set per level, each with that level's classes as its single label (DyML-Product's test set)."""
        rows = as_labels(self.labels)
        names = check_level_names(level_names, rows.shape[1])
        if self.gallery_labels is None:
            codes = path_codes(rows)
            mine, theirs = codes, None
        else:
            codes = path_codes(np.concatenate([rows, as_labels(self.gallery_labels, name="gallery_labels")]))
            mine, theirs = codes[: len(rows)], codes[len(rows) :]
        return {
            name: RetrievalSet(
                self.embeddings,
                mine[:, [level]],
                self.gallery,
                None if theirs is None else theirs[:, [level]],
                self.ids,
                self.gallery_ids,
            )
            for level, name in enumerate(names)
        }


@dataclass(frozen=True)
class DyMLResult:
    """Metrics of each scale, and their plain mean.

    Attributes:
        summary: "mAP", "ASI", "R@1", and the same for each scale: "mAP/<scale>" and so on.
        results: the whole result of each scale.
    """

    summary: dict[str, float]
    results: dict[str, Result]


def dyml_protocol(sets: Mapping[str, RetrievalSet], *, ties: Ties = "worst") -> DyMLResult:
    """AP, ASI and R@1 on each set with its single label, then the plain mean over the sets.

    DyML-Vehicle and DyML-Animal have a set for each of the scales coarse, middle and fine, in which a query
    may also be in the gallery: give ids. DyML-Product has one set with all levels: `RetrievalSet.by_level`.

    Reference: Sun et al., Dynamic Metric Learning: Towards a Scalable Metric Space to Accommodate Multiple
    Semantic Scales, CVPR 2021.

    Args:
        sets: by scale; the labels of each are one column.
        ties: order of equal scores.

    Raises:
        InputError: no sets, or one with several label columns.
    """
    if not sets:
        raise InputError("dyml_protocol needs at least one set")
    results = {}
    for scale, one in sets.items():
        if (levels := as_labels(one.labels).shape[1]) != 1:
            raise InputError(f"the set {scale!r} must have a single label column, got {levels}: see by_level")
        results[scale] = evaluate(
            one.embeddings,
            as_labels(one.labels),
            one.gallery,
            None if one.gallery_labels is None else as_labels(one.gallery_labels),
            ids=one.ids,
            gallery_ids=one.gallery_ids,
            level_names=("label",),
            ks=(1,),
            ties=ties,
        )
    names = {"mAP": "AP/label", "ASI": "ASI", "R@1": "R@1/label"}
    summary = {
        short: float(np.mean([result.summary[name] for result in results.values()]))
        for short, name in names.items()
    }
    for scale, result in results.items():
        summary |= {f"{short}/{scale}": result.summary[name] for short, name in names.items()}
    return DyMLResult(summary, results)
