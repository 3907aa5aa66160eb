"""The rows of an index: manifests with positions, checked vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from happier.data import Manifest
from happier.errors import InputError, ManifestError, SearchError
from happier.search.engine import Positions, VectorArray
from happier.taxonomy import UNKNOWN

POSITION = "position"


def check_vectors(vectors: Any, *, rows: int | None = None, dim: int | None = None) -> VectorArray:
    """Unit vectors as float32 ``[N, D]``.

    Raises:
        InputError: another shape, not finite, or not of unit length.
    """
    array = np.asarray(vectors)
    if array.ndim != 2 or not array.size or array.dtype.kind != "f":
        raise InputError(
            f"vectors must be floats [images, dimension], got shape {array.shape} of {array.dtype}"
        )
    if rows is not None and len(array) != rows:
        raise InputError(f"there must be one vector for each image: {rows} images, {len(array)} vectors")
    if dim is not None and array.shape[1] != dim:
        raise InputError(f"the index's vectors have {dim} dimensions, these have {array.shape[1]}")
    array = array.astype(np.float32, copy=False)
    for first in range(0, len(array), 65_536):
        lengths = np.linalg.norm(array[first : first + 65_536], axis=1)
        # NaN fails this comparison too.
        if not np.all(np.abs(lengths - 1) < 1e-2):
            row = first + int(np.argmax(~(np.abs(lengths - 1) < 1e-2)))
            raise InputError(
                f"vectors must have unit length; row {row} has length {lengths[row - first]:.4g}"
            )
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def known_depth(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many levels of each label row are known."""
    return np.asarray((labels != UNKNOWN).sum(axis=1), dtype=np.int64)


def first_of_each_id(manifest: Manifest, vectors: VectorArray) -> tuple[Manifest, VectorArray]:
    """Rows without a repeated id (an image may be both query and gallery)."""
    again = pd.Series(manifest.ids()).duplicated().to_numpy()
    if not again.any():
        return manifest, vectors
    keep = np.flatnonzero(~again)
    return manifest.take(keep), vectors[keep]


def write_items(path: Path, manifest: Manifest, positions: Positions) -> None:
    """Write a manifest with the row of each image in the vector file."""
    table = manifest.table.assign(**{POSITION: positions})
    levels, root = manifest.levels, manifest.root
    Manifest(table, levels=levels, root=root, name=manifest.name, credits=manifest.credits).write(path)


def read_items(path: Path, *, root: str, rows: int) -> tuple[Manifest, Positions]:
    """Read what `write_items` wrote.

    Args:
        path: the file.
        root: folder that relative paths are against.
        rows: of the vector file.

    Raises:
        SearchError: the file is missing or damaged.
    """
    try:
        manifest = Manifest.read(path, root=root)
    except (ManifestError, ValueError, TypeError, KeyError) as error:
        what = " ".join(str(error).split())[:200]
        raise SearchError(f"{path} is missing or damaged: {what}; build the index again") from error
    if POSITION not in manifest.table or manifest.table[POSITION].dtype.kind != "i":
        raise SearchError(f"{path} is damaged: it has no positions; build the index again")
    positions = manifest.table[POSITION].to_numpy(dtype=np.int64)
    known = (positions >= 0) & (positions < rows)
    if not len(positions) or not known.all() or len(np.unique(positions)) < len(positions):
        raise SearchError(f"{path} is damaged: positions must be different rows of the vector file")
    return manifest, positions


def merge_items(first: Manifest, second: Manifest) -> Manifest:
    """Both tables' rows; paths of the second stay valid where its root is another one."""
    table, other = first.table, second.table
    if second.root != first.root:
        other = other.assign(path=[str(file) for file in second.files()])
    if ("id" in table) != ("id" in other):
        table, other = table.assign(id=first.ids()), other.assign(id=second.ids())
    columns = [name for name in table.columns if name != POSITION]
    both = pd.concat([table[columns], other.reindex(columns=columns, fill_value="")], ignore_index=True)
    return Manifest(both, levels=first.levels, root=first.root, name=first.name, credits=first.credits)
