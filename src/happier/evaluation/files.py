"""An evaluation as files: JSON for programs, one row per query as Parquet for a closer look."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from happier.storage.atomic import atomic_file
from happier.storage.records import to_json, write_json

if TYPE_CHECKING:
    import pandas as pd

    from happier.data import Manifest
    from happier.evaluation.protocol import Evaluation

__all__ = ["per_query_table", "to_json", "write_json", "write_per_query", "write_text"]


def per_query_table(found: Evaluation, manifest: Manifest) -> pd.DataFrame:
    """One row per query: test set (where there are several), id, class path, then every metric."""
    import pandas as pd

    ids, paths = manifest.ids(), manifest.class_paths()
    parts = []
    for one, result in zip(found.sets, found.results, strict=True):
        columns: dict[str, Any] = {"set": one.name} if len(found.sets) > 1 else {}
        columns |= {
            "id": [str(ids[row]) for row in one.queries],
            "class": [paths[row] for row in one.queries],
        }
        parts.append(pd.DataFrame({**columns, **result.per_query}))
    return pd.concat(parts, ignore_index=True)


def write_per_query(found: Evaluation, manifest: Manifest, path: Path) -> None:
    """Write `per_query_table` as Parquet with checksums; the write is atomic."""
    from happier.storage.tables import write_parquet

    write_parquet(per_query_table(found, manifest), path)


def write_text(text: str, path: Path) -> None:
    """Write a text such as a table in LaTeX; the write is atomic."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")
