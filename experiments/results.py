"""The figures of all runs: a Parquet table for each data set and split, a row for each run.

    config.<override>     the configuration, a column for each override; null where a run does not set it
    summary.<metric>      means over the queries
    dyml.<metric>         the same test classes under DyML's protocol; null for held-out training classes
    h_ap                  H-AP of every class, float32: the mean of its queries
    ...                   number of queries, CPU seconds

Studies share runs, so a table belongs to a protocol and a data set rather than to one study. ``classes/`` has
the number of each query's finest class, a file for each table: what intervals resample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from happier.arrays import IntArray
from happier.storage.atomic import atomic_file
from happier.storage.lock import locked

RESULTS = Path(__file__).parent / "results"
_PER_QUERY = "h_ap"
Row = dict[str, Any]


class StoredRun(Protocol):
    """What identifies a run: its table, its configuration and its seed."""

    @property
    def folder(self) -> str:
        """Name of the table."""

    @property
    def overrides(self) -> tuple[str, ...]:
        """The configuration, ``key=value`` each."""

    @property
    def seed(self) -> int:
        """Of the run."""

    @property
    def loss(self) -> str:
        """Name of the loss."""


@dataclass(frozen=True)
class RunResult:
    """The result of one run.

    Attributes:
        summary: metrics of the run.
        dyml: metrics under DyML's protocol; empty for held-out training classes.
        h_ap: mean H-AP of the queries of each class ``[C]``; empty where classes were held out.
        details: the other columns of its row.
    """

    summary: dict[str, float]
    dyml: dict[str, float]
    h_ap: npt.NDArray[np.float64]
    details: dict[str, Any]


def find_result(job: StoredRun) -> RunResult | None:
    """The result of a run, None where it has none yet."""
    row = _rows(_table_file(job)).get(configuration(job))
    if row is None:
        return None
    return RunResult(
        _part(row, "summary."),
        _part(row, "dyml."),
        np.asarray(row[_PER_QUERY], dtype=np.float64),
        {name: value for name, value in row.items() if "." not in name and name != _PER_QUERY},
    )


def add_result(job: StoredRun, result: RunResult) -> None:
    """Add the row of a run to its table; runs that end at the same time take turns."""
    row: Row = {
        **{f"config.{name}": value for name, value in configuration(job)},
        **result.details,
        **{f"summary.{name}": value for name, value in result.summary.items()},
        **{f"dyml.{name}": value for name, value in result.dyml.items()},
        _PER_QUERY: result.h_ap.astype(np.float32).tolist(),
    }
    file = _table_file(job)
    with locked(RESULTS):
        rows = {**_rows(file), configuration(job): row}
        write_rows(list(rows.values()), file)


def query_classes(folder: str) -> IntArray | None:
    """The number of each query's finest class ``[Q]``, None where it was never stored.

    Args:
        folder: name of the table.
    """
    file = _class_file(folder)
    return np.asarray(pq.read_table(file)["class"], dtype=np.int64) if file.is_file() else None


def add_classes(folder: str, classes: IntArray) -> None:
    """Store the finest class of each query of a data set and split, where it is not stored yet."""
    file = _class_file(folder)
    if not file.is_file():
        with atomic_file(file) as part:
            pq.write_table(pa.table({"class": classes.astype(np.int32)}), part, compression="zstd")


def configurations(file: Path) -> set[frozenset[tuple[str, str]]]:
    """The configurations that a table has rows of."""
    return set(_rows(file))


def write_rows(rows: list[Row], file: Path) -> None:
    """Write a table, its rows in the order of their configurations."""
    names = dict.fromkeys(name for row in rows for name in row)
    ordered = sorted(rows, key=lambda row: [str(row.get(name) or "") for name in sorted(names)])
    # Configuration first, the long list last.
    columns = sorted(names, key=lambda name: (name == _PER_QUERY, not name.startswith("config.")))
    table = pa.table({name: [row.get(name) for row in ordered] for name in columns})
    if _PER_QUERY in names:
        place = table.column_names.index(_PER_QUERY)
        table = table.set_column(place, _PER_QUERY, table[_PER_QUERY].cast(pa.list_(pa.float32())))
    with atomic_file(file) as part:
        pq.write_table(table, part, compression="zstd")


def _rows(file: Path) -> dict[frozenset[tuple[str, str]], Row]:
    return _read_rows(file, file.stat().st_mtime_ns) if file.is_file() else {}


@lru_cache(maxsize=16)
def _read_rows(file: Path, changed: int) -> dict[frozenset[tuple[str, str]], Row]:
    del changed  # part of the key: a rewritten table is read again
    rows = {}
    for full in pq.read_table(file).to_pylist():
        row = {name: value for name, value in full.items() if value is not None}
        rows[frozenset(_part(row, "config.").items())] = row
    return rows


def _part(row: Row, prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def configuration(job: StoredRun) -> frozenset[tuple[str, str]]:
    """What a run's row is found by."""
    pairs = (text.partition("=") for text in (*job.overrides, f"seed={job.seed}"))
    return frozenset((name, value) for name, _, value in pairs)


def _table_file(job: StoredRun) -> Path:
    return RESULTS / f"{job.folder}.parquet"


def _class_file(folder: str) -> Path:
    return RESULTS / "classes" / f"{folder}.parquet"
