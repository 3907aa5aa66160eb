"""An evaluation as files: ``summary.json`` for programs, ``per_query.parquet`` for a closer look."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from happier.atomic import atomic_file

if TYPE_CHECKING:
    import pandas as pd

    from happier.data import Manifest
    from happier.evaluation.protocol import Evaluation


def per_query_table(found: Evaluation, manifest: Manifest) -> pd.DataFrame:
    """One row per query: test set (where there are several), id, class path, then every metric."""
    import pandas as pd

    ids, paths = manifest.ids(), manifest.class_paths()
    parts = []
    for search, result in zip(found.searches, found.results, strict=True):
        columns: dict[str, Any] = {"set": search.name} if len(found.searches) > 1 else {}
        columns |= {
            "id": [str(ids[row]) for row in search.queries],
            "class": [paths[row] for row in search.queries],
        }
        parts.append(pd.DataFrame({**columns, **result.per_query}))
    return pd.concat(parts, ignore_index=True)


def write_per_query(found: Evaluation, manifest: Manifest, path: Path) -> None:
    """Write `per_query_table` as Parquet; the file appears whole or not at all."""
    with atomic_file(path) as part:
        per_query_table(found, manifest).to_parquet(part, index=False)


def write_json(value: Any, path: Path) -> None:
    """Write JSON in which an undefined number is null; the file appears whole or not at all."""
    with atomic_file(path) as part:
        part.write_text(to_json(value), encoding="utf-8")


def to_json(value: Any) -> str:
    """JSON text in which an undefined number is null."""
    return json.dumps(_defined(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _defined(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _defined(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_defined(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
