"""How wrong the wrong answers are: first mistakes, what the top k is made of, confusions by class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from happier.evaluation import Retrieval
from happier.report.data import ClassRow, Confusion, Severity
from happier.report.evaluated_run import EvaluatedRun
from happier.taxonomy import UNKNOWN

DEPTHS = (*range(1, 21), *range(25, 101, 5))


def severity(runs: Sequence[EvaluatedRun], retrievals: Sequence[Retrieval]) -> Severity:
    """First mistakes of all queries, and the make-up of the top k of those that were retrieved.

    Queries with nothing to find are left out of both.
    """
    longest = retrievals[0].levels.shape[1]
    ks = tuple(k for k in DEPTHS if k <= longest)
    first, never, shares = [], [], []
    for run, retrieval in zip(runs, retrievals, strict=True):
        distance = run.result.per_query["first_mistake"][run.has_positives]
        wrong = distance[np.isfinite(distance)].astype(np.int64)
        counts = np.bincount(run.depth - wrong, minlength=run.depth)
        first.append(tuple((counts / max(1, len(wrong))).tolist()))
        never.append(1 - len(wrong) / max(1, len(distance)))
        levels = retrieval.levels[run.has_positives[retrieval.queries]]
        shares.append(tuple(_share(levels, level, ks) for level in range(run.depth + 1)))
    return Severity(tuple(first), tuple(never), ks, tuple(shares))


def _share(levels: npt.NDArray[np.int8], level: int, ks: Sequence[int]) -> tuple[float, ...]:
    """Mean share of exactly this level in the top k; a shorter list counts with what it has."""
    hits = np.cumsum(levels == level, axis=1)
    items = np.maximum(np.cumsum(levels >= 0, axis=1), 1)
    mean = (hits / items).sum(axis=0) / max(1, len(levels))
    return tuple(float(mean[k - 1]) for k in ks)


def class_rows(runs: Sequence[EvaluatedRun], retrievals: Sequence[Retrieval]) -> tuple[ClassRow, ...]:
    """One row for each fine class that was searched for, in the order of their paths."""
    first = runs[0]
    codes = first.query_labels[:, -1]
    known = np.flatnonzero(codes != UNKNOWN)
    order = known[np.argsort(codes[known], kind="stable")]
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []
    fine = first.test_set.level_names[-1]
    k = max((k for k in first.result.schema.ks if k <= 10), default=first.result.schema.ks[0])
    columns = [[run.result.per_query[key] for run in runs] for key in ("H-AP", f"AP/{fine}", f"severity@{k}")]
    confusions = [_confusions(run, retrieval) for run, retrieval in zip(runs, retrievals, strict=True)]
    rows = []
    for group in groups:
        h_ap, ap, how_wrong = (tuple(_mean(values[group]) for values in column) for column in columns)
        code = int(codes[group[0]])
        rows.append(
            ClassRow(
                first.class_paths[int(first.test_set.queries[group[0]])],
                len(group),
                h_ap,
                ap,
                how_wrong,
                tuple(found.get(code) for found in confusions),
            )
        )
    return tuple(sorted(rows, key=lambda row: row.path))


def _mean(values: npt.NDArray[np.float64]) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _confusions(run: EvaluatedRun, retrieval: Retrieval) -> dict[int, Confusion]:
    """For each fine class, the class that most often gives its queries' first wrong answer."""
    wrong = (retrieval.levels >= 0) & (retrieval.levels < run.depth)
    has_one = np.asarray(wrong.any(axis=1))
    place = wrong.argmax(axis=1)
    rows = np.arange(len(wrong))
    items = run.test_set.gallery_rows[retrieval.indices[rows, place]]
    levels = retrieval.levels[rows, place]
    counts: dict[int, Counter[tuple[str, int]]] = {}
    totals: Counter[int] = Counter()
    for query, item, level, there in zip(retrieval.queries, items, levels, has_one, strict=True):
        code = int(run.query_labels[query, -1])
        if code == UNKNOWN:
            continue
        totals[code] += 1
        if there:
            counts.setdefault(code, Counter())[run.class_paths[int(item)], int(level)] += 1
    found = {}
    for code, counter in counts.items():
        # Of equally frequent classes the nearer one, then the first by name.
        (path, level), times = min(counter.items(), key=lambda pair: (-pair[1], -pair[0][1], pair[0][0]))
        found[code] = Confusion(path, run.depth - level, times / totals[code])
    return found
