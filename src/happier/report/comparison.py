"""One run evaluated, or several side by side: the rows of their tables, and all of it as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from happier.evaluation.exact import PAPER_RELEVANCE, Ties
from happier.evaluation.protocol import Evaluation, evaluate_manifest
from happier.evaluation.published import PUBLISHED, PublishedTable
from happier.relevance import Relevance
from happier.report.collect import check_same_rows, with_different_names
from happier.report.data import Metric
from happier.report.stored import write_json, write_per_query
from happier.report.table import metric_rows
from happier.runs import Run


@dataclass(frozen=True)
class Comparison:
    """The figures of one run, or of several on the same queries, the first compared with the second.

    Attributes:
        runs: under names that tell them apart.
        evaluations: one for each run.
        rows: for each test set, the rows of its table.
        relevance: that they were evaluated with.
        published: the paper's figures, where they were asked for and there are any.
    """

    runs: tuple[Run, ...]
    evaluations: tuple[Evaluation, ...]
    rows: tuple[tuple[Metric, ...], ...]
    relevance: Relevance
    published: PublishedTable | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """How the models are called."""
        return tuple(run.name for run in self.runs)

    def own_published_row(self) -> dict[str, tuple[float, ...]]:
        """Each model's figures in the columns of the published table."""
        assert self.published is not None
        return {
            run.name: self.published.own(found.summary(), found.searches[0].level_names)
            for run, found in zip(self.runs, self.evaluations, strict=True)
        }

    def titles(self) -> tuple[str, ...]:
        """What each table is of: data, test set, protocol, queries."""
        data = self.runs[0].manifest.name or "images"
        found = self.evaluations[0]
        return tuple(
            ", ".join(
                part
                for part in (
                    data,
                    search.name and f"test set {search.name}",
                    search.protocol,
                    f"{len(search.queries):,} queries",
                )
                if part
            )
            for search in found.searches
        )

    def notes(self) -> tuple[str, ...]:
        """What a reader should know beside the figures."""
        notes = []
        for run, found in zip(self.runs, self.evaluations, strict=True):
            for result in found.results:
                if without := int(result.summary["queries_without_positives"]):
                    notes.append(f"{run.name}: {without:,} queries have nothing to find and are left out.")
                if (tied := result.summary.get("tied_queries", 0.0)) > 0:
                    notes.append(f"{run.name}: {tied:.1%} of the queries have ties that matter.")
        return tuple(notes)

    def to_data(self) -> dict[str, Any]:
        """Everything, for programs."""
        searches = self.evaluations[0].searches
        return {
            "data": self.runs[0].manifest.name,
            "relevance": repr(self.relevance),
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
                    "name": search.name or None,
                    "protocol": search.protocol,
                    "levels": list(search.level_names),
                    "queries": len(search.queries),
                    "gallery": len(search.gallery_rows),
                    "metrics": [asdict(row) for row in rows],
                }
                for search, rows in zip(searches, self.rows, strict=True)
            ],
            "published": asdict(self.published) if self.published else None,
        }


def compare_runs(
    runs: Sequence[Run],
    *,
    split: str | None = None,
    relevance: Relevance = PAPER_RELEVANCE,
    ks: Sequence[int] = (1, 10, 100),
    ties: Ties = "worst",
    resamples: int = 1000,
    seed: int = 0,
    published: bool = False,
) -> Comparison:
    """Evaluate one run, or several on the same rows.

    Args:
        runs: the model, the one it is compared with, and those to show beside.
        split: see `happier.evaluation.protocol.splits_to_search`.
        relevance: of each level.
        ks: cut-offs of the metrics at k.
        ties: order of equal scores.
        resamples: of the bootstrap; 0 for no intervals.
        seed: of the resampling.
        published: put the paper's figures beside, where it has the data set.

    Raises:
        InputError: the runs are not of the same rows.
    """
    check_same_rows(runs)
    named = with_different_names(runs)
    found = tuple(
        evaluate_manifest(run.vectors, run.manifest, split=split, relevance=relevance, ks=ks, ties=ties)
        for run in named
    )
    rows = tuple(
        metric_rows(results, resamples=resamples, seed=seed)
        for results in zip(*(evaluation.results for evaluation in found), strict=True)
    )
    table = PUBLISHED.get(named[0].manifest.name or "") if published else None
    return Comparison(tuple(named), found, rows, relevance, table)


def store(comparison: Comparison) -> None:
    """Leave each run's figures in its directory: ``evaluation/summary.json`` and ``per_query.parquet``."""
    for run, found in zip(comparison.runs, comparison.evaluations, strict=True):
        if run.directory is None or not run.config:
            continue
        folder = run.directory / "evaluation"
        summary = {"relevance": repr(comparison.relevance), **found.summary()}
        write_json(summary, folder / "summary.json")
        write_per_query(found, run.manifest, folder / "per_query.parquet")
