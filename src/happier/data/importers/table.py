"""Users' own table: a CSV with a column of paths and one column per level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from happier.data.manifest import Manifest, default_levels
from happier.errors import ManifestError
from happier.storage.tables import read_csv


def read_csv_table(
    source: Path, *, levels: Sequence[str] | None = None, root: Path | None = None
) -> Manifest:
    """Read a CSV; without a ``split`` column all images are for training.

    Args:
        source: the file; it needs a column ``path``.
        levels: label columns, coarse to fine; by default all but ``path``, ``split``, ``id`` and ``set``.
        root: folder that paths are relative to; by default the file's own.

    Raises:
        ManifestError: lists every fault of the table.
    """
    table = read_csv(source)
    if "split" not in table:
        table["split"] = "train"
    names = default_levels(table) if levels is None else levels
    try:
        return Manifest(table, levels=names, root=root or source.absolute().parent)
    except ManifestError as error:
        raise ManifestError(f"{source}: {error}") from None
