"""The one table that every data set becomes: a path, a split and a label for each level, coarse to fine.

Everything downstream reads manifests only. A manifest is checked when it is made, and all of its faults are
reported at once. Files are not touched here: `happier.data.check` opens them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from happier.atomic import atomic_file
from happier.data.faults import table_faults
from happier.errors import ManifestError
from happier.taxonomy import UNKNOWN, Taxonomy, path_codes

SPLITS = ("train", "val", "test", "query", "gallery", "distractor")
RESERVED = ("path", "split", "id", "set")
_METADATA_KEY = b"happier"


class Manifest:
    """A checked table of images: ``path``, ``split``, one column per level, optional ``id`` and ``set``.

    An empty cell is an unknown label; everything below it must be empty too. Paths are relative to ``root``,
    or absolute. ``set`` names the test set a row belongs to, where a data set has several.

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
            raise ManifestError(f"{title} has {len(faults)} kind(s) of fault (row 1 is the first):\n{lines}")
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
                are not ``path``, ``split``, ``id`` or ``set``, in their order.

        Raises:
            ManifestError: no such file, not a table, or a table with faults.
        """
        path = Path(path)
        stored: dict[str, Any] = {}
        try:
            if path.suffix.lower() == ".csv":
                table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
            else:
                arrow = pq.read_table(path)
                stored = json.loads((arrow.schema.metadata or {}).get(_METADATA_KEY, b"{}"))
                table = arrow.to_pandas()
        except FileNotFoundError:
            raise ManifestError(
                f"no manifest at {path}; make one with `happier data import` or `happier data fetch`"
            ) from None
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ManifestError(f"cannot read {path} as a manifest (Parquet or .csv): {error}") from error
        if levels is None:
            levels = stored.get("levels") or [name for name in table.columns if name not in RESERVED]
        if root is None:
            root = path.absolute().parent / stored.get("root", "")
        try:
            return cls(
                table, levels=levels, root=root, name=stored.get("name"), credits=stored.get("credits")
            )
        except ManifestError as error:
            raise ManifestError(f"{path}: {error}") from None

    def write(self, path: Path | str) -> Path:
        """Write as Parquet, or as CSV where the name ends in ``.csv``; the file appears whole or not at all.

        A CSV cannot say which columns are levels or where its root is: it gets our columns only, levels
        in order, and paths relative to its own folder. Name and credits are left out.

        Raises:
            DataError: the place cannot be written to.
        """
        path = Path(path)
        folder = path.absolute().parent
        table = self.table
        with atomic_file(path) as part:
            if path.suffix.lower() == ".csv":
                if self.root != folder:
                    table = table.assign(path=[os.path.relpath(file, folder) for file in self.files()])
                ours = [*(name for name in RESERVED if name in table), *self.levels]
                table.to_csv(part, index=False, columns=ours)
            else:
                root = self.root.relative_to(folder) if self.root.is_relative_to(folder) else self.root
                stored = {
                    "levels": list(self.levels),
                    "root": root.as_posix(),
                    "name": self.name,
                    "credits": self.credits,
                }
                arrow = pa.Table.from_pandas(table, preserve_index=False)
                metadata = {**(arrow.schema.metadata or {}), _METADATA_KEY: json.dumps(stored).encode()}
                pq.write_table(arrow.replace_schema_metadata(metadata), part, compression="zstd")
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

    def labels(self) -> npt.NDArray[np.int64]:
        """Class numbers ``[N, L]``: equal numbers mean equal paths down to that level; -1 unknown.

        A selection keeps the numbers of the manifest it was taken from.
        """
        return self._codes

    def taxonomy(self) -> Taxonomy:
        """The tree over these rows; its ``codes`` number the classes of these rows only, densely."""
        return Taxonomy.from_labels(self._codes, self.levels)

    def class_paths(self) -> list[str]:
        r"""Class of each row, ``coarse/.../fine`` as far as it is known; a ``/`` in a name becomes ``\/``."""
        columns = [self.table[level].str.replace("/", r"\/", regex=False) for level in self.levels]
        return ["/".join(name for name in row if name) for row in zip(*columns, strict=True)]

    def ids(self) -> npt.NDArray[np.object_]:
        """What identifies the image of each row: the ``id`` column, else the path."""
        return np.asarray(self.table["id" if "id" in self.table else "path"], dtype=object)

    def files(self) -> list[Path]:
        """Absolute path of each row's image."""
        return [self.root / path for path in self.table["path"]]


def _normalised(table: pd.DataFrame, levels: tuple[str, ...]) -> pd.DataFrame:
    """The table with our columns as text and empty cells as ``""``."""
    ours = [name for name in (*RESERVED, *levels) if name in table.columns]
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()].tolist()
        raise ManifestError(f"a column name must stand once, got {twice} more than once")
    text = {name: _as_text(table[name]) for name in ours}
    return table.assign(**text).reset_index(drop=True)


def _as_text(column: pd.Series) -> pd.Series:
    if pd.api.types.is_float_dtype(column):
        # Whole numbers with gaps arrive as floats: 3.0 is the class "3".
        whole = column.dropna()
        if (whole == whole.round()).all():
            column = column.astype("Int64")
    column = column.astype("str")
    return column.where(column.notna(), "").where(lambda text: text.str.strip() != "", "")


def _codes(table: pd.DataFrame, levels: tuple[str, ...]) -> npt.NDArray[np.int64]:
    columns = []
    for level in levels:
        column = table[level]
        # Numbered in the order of the names, so that codes do not depend on the order of rows.
        numbers, _ = pd.factorize(column.where(column != ""), sort=True, use_na_sentinel=True)
        columns.append(numbers.astype(np.int64))
    labels = np.stack(columns, axis=1)
    assert labels.min(initial=0) >= UNKNOWN
    return path_codes(labels)
