"""A taxonomy from a table that a person wrote: one row per class, its levels as columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from happier.data.taxonomies.class_paths import ClassPaths, listed
from happier.errors import TaxonomyError, did_you_mean
from happier.storage.tables import read_csv, read_parquet

__all__ = ["read_taxonomy_table"]


def read_taxonomy_table(
    path: Path, classes: Sequence[str], *, finest: str, levels: Sequence[str] | None = None
) -> ClassPaths:
    """Read class -> path from a CSV or Parquet table and check it.

    Args:
        path: the table; the column named like the finest level holds the classes, or else the last column.
        classes: all classes that need a place.
        finest: name of the finest level.
        levels: columns of the levels above the classes, coarse first; by default all others, in their order.

    Raises:
        TaxonomyError: classes without a row, rows of no class, a class in two places, an empty cell.
    """
    missing = f"no table at {path}"
    if path.suffix.lower() == ".csv":
        table = read_csv(path, error=TaxonomyError, missing=missing)
    else:
        table = read_parquet(path, error=TaxonomyError, missing=missing)[0]
        table = table.astype("str").where(table.notna(), "")
    key = finest if finest in table.columns else str(table.columns[-1])
    names = tuple(levels) if levels is not None else tuple(str(one) for one in table.columns if one != key)
    if absent := [name for name in names if name not in table.columns]:
        raise TaxonomyError(f"{path} has no column {absent[0]!r}; it has {', '.join(table.columns)}")
    if not names:
        raise TaxonomyError(f"{path} must have a column for each level above {key!r}; it has none")
    _check_rows(path, table[[key, *names]], key, classes)
    rows = table.drop_duplicates(key)
    return ClassPaths(names, {row[0]: tuple(row[1:]) for row in rows[[key, *names]].itertuples(index=False)})


def _check_rows(path: Path, table: pd.DataFrame, key: str, classes: Sequence[str]) -> None:
    have, known = set(table[key]), set(classes)
    if unknown := [name for name in dict.fromkeys(table[key]) if name not in known]:
        hint = did_you_mean(unknown[0], known - have or known)
        raise TaxonomyError(
            f"{path} has {len(unknown)} classes that the manifest does not have: {listed(unknown)}{hint}"
        )
    if lost := [name for name in classes if name not in have]:
        raise TaxonomyError(f"{path} has no row for {len(lost)} classes: {listed(lost)}")
    places = table.drop_duplicates()
    if twice := sorted(set(places[key][places[key].duplicated()])):
        raise TaxonomyError(f"{path} gives {len(twice)} classes several places: {listed(twice)}")
    empty = table[table.apply(lambda cells: cells.str.strip() == "").any(axis=1)]
    if len(empty):
        raise TaxonomyError(
            f"{path}: every level must be given, row {int(empty.index[0]) + 2} ({empty[key].iloc[0]}) has an "
            f"empty cell; {len(empty)} such rows"
        )
