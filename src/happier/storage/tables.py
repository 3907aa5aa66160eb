"""Tables on disk, CSV and Parquet: whatever is wrong with a file becomes one error that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from happier.errors import HappierError, ManifestError, first_line
from happier.storage.atomic import atomic_file
from happier.storage.regular_file import open_regular

__all__ = ["UNNAMED", "read_csv", "read_parquet", "write_parquet"]

LARGEST_BYTES = 8 << 30
"""Size of the largest table that is read."""
UNNAMED = "column "
"""What a column without a name is called, before its number."""

# pandas writes an index without a name as such a column.
_INDEX_COLUMN = re.compile(r"__index_level_\d+__")


def read_csv(path: Path, *, error: type[HappierError] = ManifestError, missing: str = "") -> pd.DataFrame:
    """Read a CSV in UTF-8 as text; its first row names the columns. An empty cell is ``""``.

    Args:
        path: the file.
        error: the class to raise.
        missing: the message where there is no such file.

    Raises:
        error: it cannot be read, is not a CSV, or names a column twice.
    """
    with _open(path, "CSV in UTF-8", error, missing) as file:
        # The names are read as a row: on its own pandas calls a second "kind" "kind.1", and takes the first
        # column for an index where rows are longer than the header.
        rows = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig", header=None)
    names = rows.iloc[0].fillna("").tolist()
    if twice := sorted({name for name in names if name and names.count(name) > 1}):
        raise error(f"{path}: a column name must occur once, got {twice} more than once")
    table = rows.iloc[1:].reset_index(drop=True).fillna("")
    table.columns = pd.Index([name or f"{UNNAMED}{number}" for number, name in enumerate(names, start=1)])
    return table


def read_parquet(
    path: Path, *, error: type[HappierError] = ManifestError, missing: str = ""
) -> tuple[pd.DataFrame, dict[bytes, bytes]]:
    """Read a Parquet file: its table and the metadata of its schema. Its checksums, if any, are verified.

    Args:
        path: the file.
        error: the class to raise.
        missing: the message where there is no such file.

    Raises:
        error: it cannot be read or is damaged.
    """
    with _open(path, "Parquet", error, missing) as file:
        arrow = pq.read_table(pa.PythonFile(file, mode="r"), page_checksum_verification=True)
        arrow.validate(full=True)  # text that is not UTF-8 would only show where it is used
        # What pandas noted about types and index may be damaged, and is not needed.
        table = arrow.to_pandas(ignore_metadata=True)
        metadata = dict(arrow.schema.metadata or {})
    return table.loc[:, [not _INDEX_COLUMN.fullmatch(str(name)) for name in table.columns]], metadata


def write_parquet(table: pd.DataFrame, path: Path, metadata: dict[bytes, bytes] | None = None) -> None:
    """Write a Parquet file with checksums; it appears whole or not at all.

    Raises:
        DataError: the place cannot be written to.
        ManifestError: a column holds values that Parquet cannot.
    """
    try:
        arrow = pa.Table.from_pandas(table, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as fault:
        raise ManifestError(f"cannot write {path}: {'; '.join(map(str, fault.args))}") from fault
    with atomic_file(path) as part:
        pq.write_table(
            arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), **(metadata or {})}),
            part,
            compression="zstd",
            write_page_checksum=True,
        )


@contextmanager
def _open(path: Path, kind: str, error: type[HappierError], missing: str) -> Iterator[BinaryIO]:
    """Open a table; what its reader raises becomes an error that names the file."""
    try:
        with open_regular(path, largest=LARGEST_BYTES) as file:
            yield file
    except FileNotFoundError as fault:
        raise error(missing or f"no file at {path}") from fault
    # The readers meet damaged bytes here, and raise almost anything on them.
    except Exception as fault:
        reason = (isinstance(fault, OSError) and fault.strerror) or first_line(fault)
        raise error(f"cannot read {path} as {kind}: {reason}") from fault
