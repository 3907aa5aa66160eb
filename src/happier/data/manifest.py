"""The one table that every data set becomes: a path, a split and a label for each level, coarse to fine.

Everything downstream reads manifests only. A manifest is checked when it is made, and all of its faults are
reported at once. Files are not touched here: `happier.data.check` opens them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, ValidationError

from happier.arrays import IntArray
from happier.data.class_path import join
from happier.data.manifest_rules import table_faults
from happier.errors import DataError, ManifestError
from happier.storage.atomic import atomic_file
from happier.storage.records import Record
from happier.storage.tables import UNNAMED, read_csv, read_parquet, write_parquet
from happier.taxonomy import UNKNOWN, Taxonomy, path_codes

SPLITS = ("train", "val", "test", "query", "gallery", "distractor")
RESERVED = ("path", "split", "id", "set", "attributes")
ATTRIBUTE_SEPARATOR = ";"
_METADATA_KEY = b"happier"


class _Stored(Record):
    """Metadata of a Parquet manifest."""

    model_config = ConfigDict(extra="ignore")

    levels: tuple[str, ...] | None = None
    root: str = ""
    name: str | None = None
    credits: str | None = None


class Manifest:
    """A checked table of images: ``path``, ``split``, one column per level, and up to three more.

    An empty cell is an unknown label; everything below it must be empty too. Paths are relative to ``root``,
    or absolute. ``id`` says which rows are the same image, ``set`` names the test set a row belongs to,
    where a data set has several, and ``attributes`` lists what else is known of it.

    Args:
        table: one row per image; other columns are kept and ignored.
        levels: names of the label columns, coarse to fine.
        root: folder that relative paths are against.
        name: short name of the data set.
        credits: licences and credits of the images.

    Raises:
        ManifestError: lists every fault, the first ten rows of each kind, and how many there are.

    >>> import pandas as pd
    >>> rows = {"path": ["1.png", "2.png"], "split": "train", "kind": "bird", "item": ["owl", "emu"]}
    >>> manifest = Manifest(pd.DataFrame(rows), levels=["kind", "item"], root=Path("."))
    >>> manifest.class_paths()
    ['bird/owl', 'bird/emu']
    """

    def __init__(
        self,
        table: pd.DataFrame,
        *,
        levels: Sequence[str],
        root: Path | str,
        name: str | None = None,
        credits: str | None = None,  # noqa: A002 - the field's word
    ) -> None:
        self.levels = tuple(str(level) for level in levels)
        self.root = Path(root).absolute()
        self.name = name
        self.credits = credits
        self.table = _normalised(table, self.levels)
        faults = table_faults(self.table, self.levels, splits=SPLITS, reserved=RESERVED)
        if faults:
            title = f"manifest {name!r}" if name else "manifest"
            lines = "\n".join(f"  - {fault}" for fault in faults)
            raise ManifestError(f"{title} is invalid (row 1 is the first row):\n{lines}")
        self._codes = _codes(self.table, self.levels)

    @classmethod
    def read(
        cls, path: Path | str, root: Path | str | None = None, *, levels: Sequence[str] | None = None
    ) -> Manifest:
        """Read a manifest from Parquet or CSV and check it.

        Args:
            path: the file; ``.csv`` is read as CSV, anything else as Parquet.
            root: folder that relative paths are against; by default the one stored in the file, else the
                file's own folder.
            levels: label columns, coarse to fine; by default those stored in the file, else all columns that
                are not ``path``, ``split``, ``id``, ``set`` or ``attributes``, in their order.

        Raises:
            ManifestError: no such file, not a table, or a table with faults.
        """
        path = Path(path)
        missing = f"no manifest at {path}; make one with `happier data import` or `happier data fetch`"
        if path.suffix.lower() == ".csv":
            table, stored = read_csv(path, missing=missing), _Stored()
        else:
            table, metadata = read_parquet(path, missing=missing)
            stored = _stored(path, metadata)
        try:
            return cls(
                table,
                levels=levels or stored.levels or default_levels(table),
                root=root or path.absolute().parent / stored.root,
                name=stored.name,
                credits=stored.credits,
            )
        except ManifestError as error:
            raise ManifestError(f"{path}: {error}") from None

    def write(self, path: Path | str) -> Path:
        """Write as Parquet, or as CSV where the name ends in ``.csv``; the write is atomic.

        A CSV cannot store which columns are levels or where its root is: it gets our columns only, levels
        in order, and paths relative to its own folder. Name and credits are left out.

        Raises:
            DataError: the place cannot be written to, or is one of the images.
        """
        path = Path(path)
        folder = path.absolute().parent
        names = {str(path.absolute()), str(path.resolve())}
        if path.suffix.lower() not in (".parquet", ".csv") and not names.isdisjoint(map(str, self.files())):
            raise DataError(f"{path} is one of the images; choose another name for the manifest")
        table = self.table
        if path.suffix.lower() == ".csv":
            if self.root != folder:
                table = table.assign(path=[os.path.relpath(file, folder) for file in self.files()])
            ours = [*(name for name in RESERVED if name in table), *self.levels]
            with atomic_file(path) as part:
                table.to_csv(part, index=False, columns=ours)
        else:
            root = self.root.relative_to(folder) if self.root.is_relative_to(folder) else self.root
            stored = _Stored(levels=self.levels, root=root.as_posix(), name=self.name, credits=self.credits)
            write_parquet(table, path, {_METADATA_KEY: stored.model_dump_json().encode()})
        return path

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {rows}" for split, rows in self.splits.items())
        return f"Manifest({self.name!r}, levels={list(self.levels)}, {splits})"

    @property
    def splits(self) -> dict[str, int]:
        """Number of rows of each split that has any."""
        counts = self.table["split"].value_counts()
        return {split: int(counts[split]) for split in SPLITS if split in counts.index}

    @property
    def split_classes(self) -> dict[str, tuple[int, ...]]:
        """Number of classes of each level, coarse first, among the rows of each split."""
        return {split: self.select(split).taxonomy().num_classes for split in self.splits}

    def select(self, split: str | Sequence[str], *, test_set: str | None = None) -> Manifest:
        """Rows of one or several splits, in table order; label codes stay those of the whole manifest.

        Args:
            split: name or names.
            test_set: keep only the rows whose ``set`` column has this value.

        Raises:
            ManifestError: no rows are left.
        """
        wanted = (split,) if isinstance(split, str) else tuple(split)
        present = self.splits
        if missing := [name for name in wanted if name not in present]:
            have = ", ".join(f"{name} ({rows} rows)" for name, rows in present.items())
            raise ManifestError(f"the manifest has no rows of split {', '.join(missing)}; it has {have}")
        keep = self.table["split"].isin(wanted).to_numpy()
        if test_set is not None:
            sets = self.table["set"] if "set" in self.table else pd.Series("", index=self.table.index)
            keep = keep & (sets == test_set).to_numpy(dtype=bool, na_value=False)
            if not keep.any():
                have = ", ".join(sorted(set(sets.dropna()) - {""})) or "no sets"
                raise ManifestError(
                    f"no rows of {'/'.join(wanted)} are in the set {test_set!r}; it has {have}"
                )
        return self.take(np.flatnonzero(keep))

    def take(self, rows: npt.ArrayLike) -> Manifest:
        """These rows, in this order; label codes stay those of the whole manifest."""
        rows = np.asarray(rows)
        part = object.__new__(Manifest)
        part.levels, part.root, part.name, part.credits = self.levels, self.root, self.name, self.credits
        part.table = self.table.iloc[rows].reset_index(drop=True)
        part._codes = self._codes[rows]
        return part

    def labels(self) -> IntArray:
        """Class numbers ``[N, L]``: equal numbers mean equal paths down to that level; -1 unknown.

        A selection keeps the numbers of the manifest it was taken from.
        """
        return self._codes

    def taxonomy(self) -> Taxonomy:
        """The tree over these rows; its ``codes`` number the classes of these rows only, densely."""
        return Taxonomy.from_labels(self._codes, self.levels)

    def class_paths(self) -> list[str]:
        r"""Class of each row, ``coarse/.../fine`` as far as it is known; a ``/`` in a name becomes ``\/``."""
        return [join(names) for names in zip(*(self.table[level] for level in self.levels), strict=True)]

    def attributes(self) -> tuple[npt.NDArray[np.bool_], tuple[str, ...]]:
        """Which attributes each row has ``[N, A]``, and the names of all that these rows have, sorted.

        A cell of the column ``attributes`` lists those of its image: ``red; round; metal``. What it does not
        list, the image does not have; where it is empty nothing is known, and the row is False throughout.

        Raises:
            ManifestError: there is no such column.
        """
        if "attributes" not in self.table:
            raise ManifestError("the manifest has no column 'attributes', with cells such as 'red; round'")
        cells = [
            {name for part in cell.split(ATTRIBUTE_SEPARATOR) if (name := part.strip())}
            for cell in self.table["attributes"]
        ]
        numbers = {name: number for number, name in enumerate(sorted(set().union(*cells)))}
        found = np.zeros((len(cells), len(numbers)), dtype=bool)
        for row, names in enumerate(cells):
            found[row, [numbers[name] for name in names]] = True
        return found, tuple(numbers)

    def ids(self) -> npt.NDArray[np.object_]:
        """What identifies the image of each row: the ``id`` column, else the path."""
        return np.asarray(self.table["id" if "id" in self.table else "path"], dtype=object)

    def files(self) -> list[Path]:
        """Absolute path of each row's image."""
        return [self.root / path for path in self.table["path"]]


def default_levels(table: pd.DataFrame) -> tuple[str, ...]:
    """The levels of a table that does not name them: all columns without another meaning, in their order.

    Raises:
        ManifestError: one of them has no name.
    """
    levels = tuple(str(name) for name in table.columns if name not in RESERVED)
    if unnamed := [level for level in levels if level.startswith(UNNAMED)]:
        raise ManifestError(
            f"which columns are levels? {', '.join(unnamed)} has no name; give it one, or name the levels"
        )
    return levels


def _stored(path: Path, metadata: dict[bytes, bytes]) -> _Stored:
    try:
        return _Stored.model_validate_json(metadata.get(_METADATA_KEY, b"{}"))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "metadata"
        raise ManifestError(f"{path} is damaged: {where}: {fault['msg']}; import it again") from None


def _normalised(table: pd.DataFrame, levels: tuple[str, ...]) -> pd.DataFrame:
    """The table with our columns as text and empty cells as ``""``."""
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()].tolist()
        raise ManifestError(f"a column name must occur once, got {twice} more than once")
    table = table.reset_index(drop=True)
    ours = [name for name in (*RESERVED, *levels) if name in table.columns]
    return table.assign(**{name: _as_text(table[name]) for name in ours})


def _as_text(column: pd.Series) -> pd.Series:
    """A column as text, ``""`` where it is empty.

    Raises:
        ManifestError: a cell is neither text in UTF-8 nor a finite number.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.dtype.categories.dtype)
    if pd.api.types.is_float_dtype(column):
        known = column.dropna()
        _refuse(column, np.flatnonzero(np.isinf(column)).tolist(), "a finite number")
        # Whole numbers with gaps arrive as floats: 3.0 is the class "3". Above 2**53 a float is not exact.
        if ((known == known.round()) & (known.abs() <= 2.0**53)).all():
            column = column.astype("Int64")
    elif column.dtype == object:
        cells = [_decoded(value) for value in column]
        wrong = [row for row, value in enumerate(cells) if not _is_text_or_number(value)]
        _refuse(column, wrong, "text in UTF-8 or a number")
        column = pd.Series(cells, dtype=object)
    column = column.astype("str")
    return column.where(column.notna(), "").where(lambda text: text.str.strip() != "", "")


def _decoded(value: Any) -> Any:
    """Some programs write text as bytes."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _is_text_or_number(value: Any) -> bool:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, as in file names that are not UTF-8
            return False
        return True
    return bool(pd.api.types.is_scalar(value)) and not isinstance(value, bytes)


def _refuse(column: pd.Series, rows: Sequence[int], wanted: str) -> None:
    if rows:
        more = f", and in {len(rows) - 1} more" if len(rows) > 1 else ""
        value = column.iloc[rows[0]]
        shown = str(value) if isinstance(value, float) else ascii(value)
        raise ManifestError(
            f"a cell of the column {str(column.name)!r} must be {wanted}, got {shown[:80]} in row "
            f"{rows[0] + 1}{more}"
        )


def _codes(table: pd.DataFrame, levels: tuple[str, ...]) -> IntArray:
    columns = []
    for level in levels:
        column = table[level]
        # Numbered in the order of the names, so that codes do not depend on the order of rows.
        numbers, _ = pd.factorize(column.where(column != ""), sort=True, use_na_sentinel=True)
        columns.append(numbers.astype(np.int64))
    labels = np.stack(columns, axis=1)
    assert labels.min(initial=0) >= UNKNOWN
    return path_codes(labels)
