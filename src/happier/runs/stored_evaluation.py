"""What `happier evaluate` stores in a run's directory, and when it replaces a new evaluation.

``summary.json`` names what the figures were made of (vectors, rows, options) and the checksum of
``per_query.parquet``: where all of it is the same, the figures are read instead of computed again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from happier.errors import CheckpointError
from happier.evaluation.files import write_json, write_per_query
from happier.evaluation.options import EvaluationOptions
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.protocol import Evaluation, evaluate_sets, evaluation_sets
from happier.evaluation.result import Result
from happier.metrics.schema import Schema
from happier.runs.run_directory import RunDirectory
from happier.storage.checksum import checksum, file_checksum
from happier.storage.records import Record, SealedRecord, check_record, record_values

if TYPE_CHECKING:
    from happier.data import Manifest
    from happier.runs.run import Run

__all__ = ["evaluate_run", "store_evaluation"]

log = logging.getLogger(__name__)
# Increment when the value of any metric changes: figures of another version are computed again.
FIGURES_VERSION = 2


class _StoredSet(Record):
    """The columns of ``per_query.parquet`` that belong to one test set, and what they do not say."""

    metrics: list[str]
    levels: list[str]
    ks: list[int]
    queries: int
    without_positives: int


class _Stored(SealedRecord):
    """What the figures were made of, and how to read them again."""

    made_of: dict[str, Any]
    per_query: str
    sets: list[_StoredSet]


def evaluate_run(
    run: Run, options: EvaluationOptions, *, split: str | None = None, reuse: bool = False
) -> Evaluation:
    """Evaluate a run as the splits of its manifest say.

    Args:
        run: vectors and rows.
        options: how; the levels' names are the manifest's.
        split: see `happier.evaluation.protocol.splits_to_search`.
        reuse: read the figures that `happier evaluate` stored, where they are of the same vectors, rows and
            options.
    """
    sets = evaluation_sets(run.manifest, split)
    problems = tuple(one.problem(run.vectors, run.manifest) for one in sets)
    results = None
    if reuse and run.directory is not None and run.config:
        directory = RunDirectory(run.directory)
        results = _read_results(directory, _key(run, options, split), problems)
    return evaluate_sets(sets, problems, options, results)


def store_evaluation(
    run: Run, found: Evaluation, options: EvaluationOptions, *, split: str | None = None
) -> None:
    """Store a run's figures in its directory; nothing is stored without a directory or a configuration.

    Raises:
        DataError: they cannot be written.
    """
    if run.directory is None or not run.config:
        return
    directory = RunDirectory(run.directory)
    with directory.evaluation_locked():
        write_per_query(found, run.manifest, directory.per_query_file)
        record = _Stored(
            made_of=_key(run, options, split),
            per_query=file_checksum(directory.per_query_file),
            sets=[
                _StoredSet(
                    metrics=list(result.per_query),
                    levels=list(result.schema.level_names),
                    ks=list(result.schema.ks),
                    queries=int(result.summary["queries"]),
                    without_positives=int(result.summary["queries_without_positives"]),
                )
                for result in found.results
            ],
        )
        figures = {"relevance": repr(options.relevance), **found.summary()}
        summary = {**figures, "stored": record_values(record)}
        write_json(summary, directory.summary_file)


def _key(run: Run, options: EvaluationOptions, split: str | None) -> dict[str, Any]:
    """What an evaluation's figures depend on, as plain data."""
    return {
        "figures": FIGURES_VERSION,
        "vectors": checksum(run.vectors),
        "rows": _rows_checksum(run.manifest),
        "split": split,
        "relevance": repr(options.relevance),
        "ks": sorted(set(options.ks)),
        "ties": options.ties,
    }


def _rows_checksum(manifest: Manifest) -> str:
    """Checksum of labels, ids, attributes and the columns that decide which rows are searched in which."""
    columns = [manifest.table[name] for name in ("split", "set", "attributes") if name in manifest.table]
    texts = [
        *manifest.levels,
        *map(str, manifest.ids()),
        *(str(cell) for column in columns for cell in column),
    ]
    names = np.frombuffer("\0".join(texts).encode("utf-8", "surrogatepass"), dtype=np.uint8)
    return checksum(manifest.labels()) + checksum(names)


def _read_results(
    directory: RunDirectory, key: dict[str, Any], problems: Sequence[RetrievalProblem]
) -> tuple[Result, ...] | None:
    """The stored results of the test sets; None where there are none of the same inputs."""
    try:
        summary = directory.read_summary()
        if summary is None or "stored" not in summary:
            return None
        record = check_record(summary["stored"], _Stored, directory.summary_file)
        if record.made_of != key or record.checksum is None:
            return None
        if record.per_query != file_checksum(directory.per_query_file):
            return None
        return _results_of(directory, record.sets, problems)
    except (CheckpointError, OSError, KeyError, TypeError, ValueError) as error:
        log.warning("the stored evaluation of %s is damaged and ignored: %s", directory.path, error)
        return None


def _results_of(
    directory: RunDirectory, sets: list[_StoredSet], problems: Sequence[RetrievalProblem]
) -> tuple[Result, ...]:
    import pandas as pd

    table = pd.read_parquet(directory.per_query_file)
    queries = [len(problem.queries) for problem in problems]
    if [one.queries for one in sets] != queries or len(table) != sum(queries):
        raise ValueError(f"it has {len(table)} queries")
    results, start = [], 0
    for one, problem in zip(sets, problems, strict=True):
        rows = table.iloc[start : start + one.queries]
        columns = {name: rows[name].to_numpy(dtype=np.float64) for name in one.metrics}
        schema = Schema(tuple(one.levels), tuple(one.ks))
        results.append(Result(columns.items, schema, one.without_positives, problem.matching.query_classes))
        start += one.queries
    return tuple(results)
