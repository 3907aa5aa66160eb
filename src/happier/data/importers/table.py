"""Anyone's table: a CSV with a column of paths and one column per level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from happier.data.manifest import RESERVED, Manifest
from happier.errors import ManifestError


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
    try:
        table = pd.read_csv(source, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except FileNotFoundError:
        raise ManifestError(f"no file at {source}") from None
    except (OSError, ValueError) as error:
        raise ManifestError(f"cannot read {source} as CSV: {error}") from error
    if "split" not in table:
        table["split"] = "train"
    names = (
        tuple(levels) if levels is not None else tuple(str(name) for name in table if name not in RESERVED)
    )
    try:
        return Manifest(table, levels=names, root=root or source.absolute().parent)
    except ManifestError as error:
        raise ManifestError(f"{source}: {error}") from None
