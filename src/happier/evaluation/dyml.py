"""The protocol of the DyML benchmarks: a test set per scale, each with its own single label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from happier.errors import InputError
from happier.evaluation.evaluate import evaluate_problem
from happier.evaluation.options import EvaluationOptions, Ties
from happier.evaluation.problem import RetrievalProblem
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

    def problem(self) -> RetrievalProblem:
        """Checked and sorted, ready to be evaluated."""
        return RetrievalProblem.prepare(
            self.embeddings, self.labels, self.gallery, self.gallery_labels, self.ids, self.gallery_ids
        )

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
    options = EvaluationOptions(ks=(1,), ties=ties, level_names=("label",))
    results = {}
    for scale, one in sets.items():
        if (levels := as_labels(one.labels).shape[1]) != 1:
            raise InputError(f"the set {scale!r} must have a single label column, got {levels}: see by_level")
        results[scale] = evaluate_problem(one.problem(), options)
    return DyMLResult(dyml_summary(results), results)


def dyml_summary(results: Mapping[str, Result]) -> dict[str, float]:
    """DyML's metrics from the results of its scales: the plain mean over the scales, and each scale's own.

    Args:
        results: by scale; each has a single level, and 1 among its cut-offs.
    """
    found = {scale: _metrics_of(result) for scale, result in results.items()}
    summary = {name: float(np.mean([own[name] for own in found.values()])) for name in ("mAP", "ASI", "R@1")}
    for scale, own in found.items():
        summary |= {f"{name}/{scale}": value for name, value in own.items()}
    return summary


def _metrics_of(result: Result) -> dict[str, float]:
    (level,) = result.schema.level_names
    summary = result.summary
    return {"mAP": summary[f"AP/{level}"], "ASI": summary["ASI"], "R@1": summary[f"R@1/{level}"]}
