"""What can be wrong with a manifest's table, found for all rows at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from happier.errors import did_you_mean

SHOWN = 10


@dataclass(frozen=True)
class Fault:
    """One kind of fault: the rule, how many rows break it, and the first of them."""

    rule: str
    count: int
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.count:
            return self.rule
        more = f", and {self.count - len(self.examples)} more" if self.count > len(self.examples) else ""
        return f"{self.rule}: {self.count} row(s), {'; '.join(self.examples)}{more}"


def table_faults(
    table: pd.DataFrame, levels: Sequence[str], *, splits: Sequence[str], reserved: Sequence[str]
) -> list[Fault]:
    """All faults of a table whose own columns are text with ``""`` for empty cells."""
    faults = _column_faults(table, levels, reserved)
    if faults:
        return faults  # rows cannot be checked without their columns
    if table.empty:
        return [Fault("the table must have at least one row, got none", 0)]

    path, split = table["path"], table["split"]
    faults += _of_rows(path == "", "path must not be empty", lambda _: "")
    faults += _of_rows(
        ~split.isin(list(splits)),
        f"split must be one of {', '.join(splits)}",
        lambda row: f"{split[row]!r}{did_you_mean(split[row], splits)}",
    )
    faults += _of_rows(
        path.str.contains("\0", regex=False),
        "path must not hold a NUL character",
        lambda row: repr(path[row]),
    )
    keys = table[[name for name in ("path", "split", "set") if name in table.columns]]
    faults += _of_rows(
        keys.duplicated() & (path != ""),
        "a path must be unique within its split",
        lambda row: f"{path[row]!r} again in {split[row]}",
    )
    if "id" in table.columns:
        own = table["id"]
        faults += _of_rows(
            own == "", "id must not be empty where there is an id column", lambda row: path[row]
        )
        keys = table[[name for name in ("id", "split", "set") if name in table.columns]]
        faults += _of_rows(
            keys.duplicated() & (own != ""),
            "an id must be unique within its split",
            lambda row: f"{own[row]!r} again in {split[row]}",
        )
    for level in levels:
        names = table[level]
        faults += _of_rows(
            names == "-1", f"{level} is unknown where its cell is empty, not -1", lambda row: path[row]
        )
    for above, below in itertools.pairwise(levels):
        faults += _of_rows(
            (table[above] == "") & (table[below] != ""),
            f"{below} must be empty where {above} is (a label below an unknown one)",
            lambda row: f"{path[row]!r}",
        )
    return faults


def _column_faults(table: pd.DataFrame, levels: Sequence[str], reserved: Sequence[str]) -> list[Fault]:
    have = f"the columns are {', '.join(map(str, table.columns)) or 'none'}"
    faults = [
        Fault(f"the column {name!r} is missing; {have}", 0)
        for name in ("path", "split")
        if name not in table.columns
    ]
    if not levels:
        faults.append(Fault(f"there must be at least one label column; {have}", 0))
    for level in levels:
        if level in reserved:
            faults.append(
                Fault(f"a level cannot be named {level!r}: that column has a meaning of its own", 0)
            )
        elif level not in table.columns:
            faults.append(Fault(f"the label column {level!r} is missing; {have}", 0))
    if len(set(levels)) != len(levels):
        faults.append(Fault(f"level names must differ, got {', '.join(levels)}", 0))
    return faults


def _of_rows(broken: pd.Series, rule: str, example: Callable[[int], str]) -> list[Fault]:
    rows = np.flatnonzero(broken.to_numpy(dtype=bool, na_value=False))
    if not len(rows):
        return []
    shown = (f"row {row + 1} {example(int(row))}".rstrip() for row in rows[:SHOWN])
    return [Fault(rule, len(rows), tuple(shown))]
