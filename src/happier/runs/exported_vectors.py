"""Vectors, labels and scores of a run as files that other programs open.

atlas        one Parquet file: a list of numbers in the column ``vector``, beside paths, labels and scores
projector    TensorBoard's: vectors.tsv, metadata.tsv, projector_config.pbtxt
fiftyone     FiftyOneImageClassificationDataset: labels.json, data.json (where each image is), vectors.npy
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from happier.errors import DataError, InputError, OptionError, did_you_mean
from happier.evaluation.protocol import Evaluation
from happier.runs.run import Run
from happier.storage.atomic import atomic_folder
from happier.storage.records import write_json
from happier.storage.regular_file import containing_file
from happier.storage.tables import write_parquet

__all__ = ["EXPORTS", "export_vectors"]

SCORES: Final = ("H-AP", "first_mistake")
"""Scores of a query that are written; undefined for images that are no queries."""


def export_vectors(run: Run, found: Evaluation, path: Path, to: str) -> Path:
    """Write a run's vectors with the labels of their images and the scores of the queries.

    Args:
        run: vectors and rows.
        found: its evaluation.
        path: the file, or the folder, to write.
        to: one of `EXPORTS`.

    Raises:
        OptionError: no such format.
        DataError: the place cannot be written to, or is a folder that holds something else.
        InputError: the format has no place for these images.
    """
    if to not in EXPORTS:
        raise OptionError(f"--to must be one of {', '.join(EXPORTS)}, got {to!r}{did_you_mean(to, EXPORTS)}")
    EXPORTS[to](run, _table(run, found), path)
    return path


def _table(run: Run, found: Evaluation) -> pd.DataFrame:
    """A row for each vector: where the image is, its split, its labels, its class, its scores."""
    manifest = run.manifest
    table = pd.DataFrame({"path": [str(file) for file in manifest.files()]})
    table["split"] = manifest.table["split"].to_numpy()
    for level in manifest.levels:
        table[level] = manifest.table[level].to_numpy()
    table["class"] = manifest.class_paths()
    for name in SCORES:
        values = np.full(len(table), np.nan)
        for one, result in zip(found.sets, found.results, strict=True):
            if name in result.per_query:
                values[one.queries] = result.per_query[name]
        table[name] = values
    return table


def _write_atlas(run: Run, table: pd.DataFrame, path: Path) -> None:
    vectors = np.asarray(run.vectors, dtype=np.float32)
    write_parquet(table.assign(vector=list(vectors)), path)


def _write_projector(run: Run, table: pd.DataFrame, path: Path) -> None:
    _check_folder(path, "projector_config.pbtxt")
    with atomic_folder(path, replace=True) as part:
        with (part / "vectors.tsv").open("w", encoding="utf-8") as file:
            np.savetxt(file, run.vectors, fmt="%.7g", delimiter="\t")
        # A tab or a line break would begin another column or row.
        plain = table.map(lambda value: " ".join(value.split()) if isinstance(value, str) else value)
        plain.to_csv(part / "metadata.tsv", sep="\t", index=False, quoting=3, escapechar="\\", na_rep="")
        config = 'embeddings {\n  tensor_name: "embeddings"\n  tensor_path: "vectors.tsv"\n'
        (part / "projector_config.pbtxt").write_text(
            config + '  metadata_path: "metadata.tsv"\n}\n', encoding="utf-8"
        )


def _write_fiftyone(run: Run, table: pd.DataFrame, path: Path) -> None:
    _check_folder(path, "labels.json")
    inside = next((one for one in table["path"] if str(containing_file(one)) != one), None)
    if inside is not None:
        raise InputError(f"{inside} is a part of a larger file; FiftyOne opens images that are files")
    classes = sorted(set(table["class"]))
    number = {name: place for place, name in enumerate(classes)}
    keys = [f"{row:07d}" for row in range(len(table))]
    # A target is a class number; all else is in its attributes.
    labels = {
        key: {"label": number[row["class"]], "attributes": _attributes(row)}
        for key, row in zip(keys, table.to_dict("records"), strict=True)
    }
    with atomic_folder(path, replace=True) as part:
        write_json({"classes": classes, "labels": labels}, part / "labels.json")
        write_json(dict(zip(keys, table["path"], strict=True)), part / "data.json")
        np.save(part / "vectors.npy", np.asarray(run.vectors, dtype=np.float32))


def _attributes(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Labels and scores; what is undefined is left out."""
    kept = {str(name): value for name, value in row.items() if name not in ("path", "class")}
    return {
        name: value for name, value in kept.items() if not (isinstance(value, float) and math.isnan(value))
    }


def _check_folder(path: Path, own: str) -> None:
    """Raises `DataError` where a folder holds something other than an earlier export."""
    if path.is_dir() and any(path.iterdir()) and not (path / own).is_file():
        raise DataError(f"{path} holds something other than such an export; choose another folder")


EXPORTS: Final[Mapping[str, Callable[[Run, pd.DataFrame, Path], None]]] = {
    "atlas": _write_atlas,
    "projector": _write_projector,
    "fiftyone": _write_fiftyone,
}
