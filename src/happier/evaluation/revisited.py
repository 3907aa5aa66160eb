"""The protocol of revisited Oxford and Paris: easy, medium and hard, with junk that is ignored.

easy      positives are the easy images, hard and junk ones are ignored
medium    positives are the easy and the hard images, junk is ignored
hard      positives are the hard images, easy and junk ones are ignored
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from happier.arrays import FloatArray, IntArray
from happier.errors import InputError
from happier.evaluation.options import Ties

if TYPE_CHECKING:
    from happier.data import Manifest

__all__ = ["RevisitedResult", "evaluate_revisited", "revisited_protocol"]

GROUPS: Final = ("easy", "hard", "junk")
# Positives and what is ignored.
PROTOCOLS: Final = {
    "easy": (("easy",), ("hard", "junk")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("easy", "junk")),
}
KS: Final = (1, 5, 10)


@dataclass(frozen=True)
class RevisitedResult:
    """The figures of each protocol.

    Attributes:
        summary: "mAP/<protocol>", "mP@<k>/<protocol>", "queries_without_positives/<protocol>".
        per_query: "AP/<protocol>" and "P@<k>/<protocol>", float64 ``[Q]``; NaN for a query without positives.
    """

    summary: dict[str, float]
    per_query: dict[str, FloatArray]


def revisited_protocol(
    queries: Any,
    gallery: Any,
    ground_truth: Sequence[Mapping[str, npt.ArrayLike]],
    *,
    ks: Sequence[int] = KS,
    ties: Ties = "worst",
) -> RevisitedResult:
    """MAP and mP@k of the easy, medium and hard protocols, exactly.

        AP   = 1/|P| sum_{j=1..|P|} ( (j-1)/(r_j - 1) + j/r_j ) / 2        the first quotient is 1 for r_j = 1
        P@k  = |{j: r_j <= k'}| / k',    k' = min(k, r_|P|)

    where ``r_j`` is the rank of the j-th positive among the images that are not ignored. AP is the area of
    trapezoids below the curve of precision and recall, as in the benchmark's code: not that of
    `happier.evaluate`, which is a sum of rectangles.

    Args:
        queries: vectors ``[Q, D]``.
        gallery: vectors ``[N, D]``, compared by inner product.
        ground_truth: for each query, numbers of gallery images as ``easy``, ``hard`` and ``junk``.
        ks: cut-offs.
        ties: order of equal scores: positives last ("worst") or first ("best").

    Reference:
        Radenović et al., Revisiting Oxford and Paris: Large-Scale Image Retrieval Benchmarking, CVPR 2018.

    >>> truth = [{"easy": [0], "hard": [2], "junk": [1]}]
    >>> found = revisited_protocol([[1.0, 0.0]], [[0.5, 0.0], [0.9, 0.0], [0.1, 0.0], [0.2, 0.0]], truth)
    >>> found.summary["mAP/easy"], found.summary["mAP/hard"]
    (1.0, 0.25)
    """
    mine, theirs = np.asarray(queries, dtype=np.float64), np.asarray(gallery)
    if len(mine) != len(ground_truth) or mine.ndim != 2 or theirs.ndim != 2:
        raise InputError(
            f"queries and gallery must be [rows, dimensions] with the ground truth of each query, got "
            f"{mine.shape}, {theirs.shape} and {len(ground_truth)}"
        )
    names = ["AP", *(f"P@{k}" for k in ks)]
    found = {f"{name}/{protocol}": np.full(len(mine), np.nan) for protocol in PROTOCOLS for name in names}
    for row, (vector, truth) in enumerate(zip(mine, ground_truth, strict=True)):
        scores = theirs @ vector.astype(theirs.dtype)
        groups = {group: np.asarray(truth[group], dtype=np.int64).reshape(-1) for group in GROUPS}
        for protocol, (positive, ignored) in PROTOCOLS.items():
            ranks = _ranks(scores, _join(groups, positive), _join(groups, ignored), ties)
            if len(ranks):
                for name, value in zip(names, [_ap(ranks), *(_precision(ranks, k) for k in ks)], strict=True):
                    found[f"{name}/{protocol}"][row] = value
    summary: dict[str, float] = {}
    for protocol in PROTOCOLS:
        defined = ~np.isnan(found[f"AP/{protocol}"])
        for name in names:
            values = found[f"{name}/{protocol}"][defined]
            summary[f"m{name}/{protocol}"] = float(values.mean()) if len(values) else float("nan")
        summary[f"queries_without_positives/{protocol}"] = int((~defined).sum())
    return RevisitedResult(summary, found)


def evaluate_revisited(vectors: Any, manifest: Manifest, *, ties: Ties = "worst") -> RevisitedResult | None:
    """Evaluate embeddings of a manifest of ``happier data import roxford`` or ``rparis``.

    Args:
        vectors: embeddings ``[N, D]``, one for each row of the manifest; distractors are part of the gallery.
        manifest: its queries name their easy, hard and junk images.
        ties: order of equal scores.

    Returns:
        None where the manifest does not have that ground truth.

    Raises:
        InputError: a query names an image that the gallery lacks.
    """
    table = manifest.table
    if not all(group in table for group in GROUPS):
        return None
    splits = table["split"].to_numpy()
    queries, gallery = (
        np.flatnonzero(splits == "query"),
        np.flatnonzero(np.isin(splits, ["gallery", "distractor"])),
    )
    place = {name: number for number, name in enumerate(manifest.ids()[gallery])}
    truth = []
    for row in queries:
        names = {group: str(table[group].iloc[row] or "").split() for group in GROUPS}
        if missing := [name for group in names.values() for name in group if name not in place]:
            raise InputError(f"the query {manifest.ids()[row]} names {missing[0]}: not in the gallery")
        truth.append({group: [place[name] for name in found] for group, found in names.items()})
    return revisited_protocol(vectors[queries], vectors[gallery], truth, ties=ties)


def _join(groups: dict[str, IntArray], names: tuple[str, ...]) -> IntArray:
    return np.concatenate([groups[name] for name in names])


def _ranks(scores: npt.NDArray[Any], positives: IntArray, ignored: IntArray, ties: Ties) -> IntArray:
    """Ranks of the positives from 1, ascending, among what is not ignored."""
    is_positive = np.zeros(len(scores), dtype=bool)
    is_positive[positives] = True
    seen = np.ones(len(scores), dtype=bool)
    seen[ignored] = False
    hits = is_positive[seen]
    order = np.lexsort((hits if ties == "worst" else ~hits, -scores[seen]))
    ranks: IntArray = np.flatnonzero(hits[order]) + 1
    return ranks


def _ap(ranks: IntArray) -> float:
    """Area of the trapezoids below the curve of precision and recall."""
    found = np.arange(1, len(ranks) + 1)
    before = np.where(ranks == 1, 1.0, (found - 1) / np.maximum(ranks - 1, 1))
    return float(np.mean((before + found / ranks) / 2))


def _precision(ranks: IntArray, k: int) -> float:
    """Precision in the first k, or down to the last positive where that is nearer."""
    depth = min(k, int(ranks[-1]))
    return float((ranks <= depth).sum() / depth)
