"""One run evaluated, or several side by side: the rows of their tables, and all of it as plain data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from happier.errors import InputError, OptionError
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.paper_tables import PUBLISHED, PublishedTable
from happier.evaluation.protocol import Evaluation
from happier.evaluation.table import Metric, metric_rows
from happier.relevance import AttributeRelevance, HierarchyRelevance
from happier.runs.run import Run
from happier.runs.stored_evaluation import evaluate_run, store_evaluation

MAX_RUNS = 4
"""The model, the one it is compared with, and two others: more could not be distinguished in a figure."""


@dataclass(frozen=True)
class Comparison:
    """The figures of one run, or of several on the same queries, the first compared with the second.

    Attributes:
        runs: with distinct names.
        evaluations: one for each run.
        rows: for each test set, the rows of its table.
        options: of the evaluation.
        split: the evaluated one.
        published: the paper's figures, where requested and available.
    """

    runs: tuple[Run, ...]
    evaluations: tuple[Evaluation, ...]
    rows: tuple[tuple[Metric, ...], ...]
    options: EvaluationOptions
    split: str | None = None
    published: PublishedTable | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models."""
        return tuple(run.name for run in self.runs)

    def own_published_row(self) -> dict[str, tuple[float, ...]]:
        """Each model's figures in the columns of the published table."""
        assert self.published is not None
        return {
            run.name: self.published.own(found.summary(), found.sets[0].level_names)
            for run, found in zip(self.runs, self.evaluations, strict=True)
        }

    def titles(self) -> tuple[str, ...]:
        """Caption of each table: data, test set, protocol, queries."""
        data = self.runs[0].manifest.name or "images"
        found = self.evaluations[0]
        return tuple(
            ", ".join(
                part
                for part in (
                    data,
                    one.name and f"test set {one.name}",
                    one.protocol,
                    f"{len(one.queries):,} queries",
                )
                if part
            )
            for one in found.sets
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the figures."""
        notes = []
        if isinstance(self.options.relevance, AttributeRelevance):
            notes.append("H-AP is by the share of attributes in common, the other figures by the levels.")
        for run, found in zip(self.runs, self.evaluations, strict=True):
            for result in found.results:
                if without := int(result.summary["queries_without_positives"]):
                    notes.append(f"{run.name}: {without:,} queries have nothing to find and are left out.")
                if (tied := result.summary.get("tied_queries", 0.0)) > 0:
                    notes.append(f"{run.name}: {tied:.1%} of the queries have ties that matter.")
        if not all(math.isnan(row.values[0].low) for rows in self.rows for row in rows):
            over = " and ".join(result.resampled for result in self.evaluations[0].results)
            adjusted = ", p is adjusted for all rows of a table (Holm)" if len(self.runs) > 1 else ""
            notes.append(f"95 % intervals are over {over}, of one training each{adjusted}.")
        return tuple(notes)

    def to_data(self) -> dict[str, Any]:
        """Everything as plain data."""
        sets = self.evaluations[0].sets
        return {
            "data": self.runs[0].manifest.name,
            "relevance": repr(self.options.relevance),
            "runs": [
                {
                    "source": run.source,
                    "name": run.name,
                    "fingerprint": run.fingerprint,
                    "summary": found.summary(),
                }
                for run, found in zip(self.runs, self.evaluations, strict=True)
            ],
            "sets": [
                {
                    "name": one.name or None,
                    "protocol": one.protocol,
                    "levels": list(one.level_names),
                    "queries": len(one.queries),
                    "gallery": len(one.gallery_rows),
                    "metrics": [asdict(row) for row in rows],
                }
                for one, rows in zip(sets, self.rows, strict=True)
            ],
            "published": asdict(self.published) if self.published else None,
        }


def compare_runs(
    runs: Sequence[Run],
    options: EvaluationOptions,
    *,
    split: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    published: bool = False,
    reuse: bool = False,
) -> Comparison:
    """Evaluate one run, or several on the same rows.

    Args:
        runs: the model, the one it is compared with, and those to show alongside.
        options: how to evaluate.
        split: see `happier.evaluation.protocol.splits_to_search`.
        resamples: of the finest classes, for the intervals; 0 for no intervals.
        seed: of the resampling.
        published: add the paper's figures, where it has the data set.
        reuse: read the figures that an earlier, identical evaluation stored.

    Raises:
        InputError: the runs are not of the same rows.
        OptionError: there are none, or too many.
    """
    check_number(len(runs))
    check_same_rows(runs)
    named = with_different_names(runs)
    found = tuple(evaluate_run(run, options, split=split, reuse=reuse) for run in named)
    rows = tuple(
        metric_rows(results, resamples=resamples, seed=seed)
        for results in zip(*(evaluation.results for evaluation in found), strict=True)
    )
    table = PUBLISHED.get(named[0].manifest.name or "") if published else None
    return Comparison(tuple(named), found, rows, options, split, table)


def store(comparison: Comparison) -> None:
    """Store each run's figures in its directory: ``evaluation/summary.json`` and ``per_query.parquet``."""
    for run, found in zip(comparison.runs, comparison.evaluations, strict=True):
        store_evaluation(run, found, comparison.options, split=comparison.split)


def relevance_of(
    run: Run, by: str | None = None, *, alpha: float = 1.0, count_query: bool = False
) -> HierarchyRelevance | AttributeRelevance:
    """The relevance that a run is evaluated by.

    Args:
        run: its manifest has the attributes.
        by: ``labels`` or ``attributes``; by default what the run was trained on.
        alpha: of the relevance by labels, see `HierarchyRelevance`.
        count_query: the same.

    Raises:
        ManifestError: there are no attributes.
        OptionError: options of labels for attributes.
    """
    if by == "labels" or (by is None and not run.by_attributes):
        return HierarchyRelevance(alpha=alpha, count_query=count_query)
    if count_query or alpha != 1:
        raise OptionError("--paper and --alpha are options of the relevance by labels: add --by labels")
    return AttributeRelevance(run.manifest.attributes()[0])


def check_number(runs: int) -> None:
    """Check the number of runs: one, one against another, or these two with one or two others.

    Raises:
        OptionError: there are none, or too many.
    """
    if not 1 <= runs <= MAX_RUNS:
        raise OptionError(
            f"1 to {MAX_RUNS} runs can be compared, got {runs}: the model, the one it is compared with, "
            f"and up to {MAX_RUNS - 2} more"
        )


def check_same_rows(runs: Sequence[Run]) -> None:
    """Check that the runs have the same images with the same labels, as a comparison by query requires.

    Raises:
        InputError: they have different rows.
    """
    first = runs[0]
    for other in runs[1:]:
        if first.manifest.levels != other.manifest.levels or len(first.manifest) != len(other.manifest):
            raise InputError(
                f"{first.source} and {other.source} were evaluated on different data: "
                f"{len(first.manifest)} rows of {list(first.manifest.levels)} and {len(other.manifest)} of "
                f"{list(other.manifest.levels)}; give all of them the same --manifest"
            )
        same = np.array_equal(first.manifest.ids(), other.manifest.ids())
        if not same or not np.array_equal(first.manifest.labels(), other.manifest.labels()):
            raise InputError(
                f"{first.source} and {other.source} have different images or labels, or a different order; "
                "give all of them the same --manifest"
            )


def with_different_names(runs: Sequence[Run]) -> Sequence[Run]:
    """Name runs of the same loss after their directories; a run with a name of its own keeps it."""
    names = [run.name for run in runs]
    for other in ([Path(run.source).name for run in runs], [run.source for run in runs]):
        times = Counter(names)
        names = [new if times[old] > 1 else old for old, new in zip(names, other, strict=True)]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
