"""Vectors and labels of all images that an index, a run, a directory or an array knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from happier.data import Manifest
from happier.encoder.embeddings import has_embeddings
from happier.errors import InputError, ManifestError
from happier.progress import Progress
from happier.runs import Run, read_run
from happier.runs.run import rows_with_vectors
from happier.search.index import Index
from happier.search.store import IndexStore
from happier.vectors.store import VectorStore

__all__ = ["LabelledVectors", "read_labelled_vectors", "relabelled"]


@dataclass(frozen=True)
class LabelledVectors:
    """Unit vectors and the images they belong to.

    Attributes:
        vectors: float32 ``[N, D]``, unit length.
        manifest: the images, in the same order.
    """

    vectors: npt.NDArray[np.float32]
    manifest: Manifest


def read_labelled_vectors(
    source: Path | str,
    *,
    manifest: Path | str | None = None,
    split: str | None = None,
    progress: Progress | None = None,
) -> LabelledVectors:
    """The vectors of a source, labelled as the manifest says.

    Args:
        source: an index, a run, a saved model, a directory of embeddings or features, or a ``.npy`` file.
        manifest: the labels; by default the source's own. An array needs one.
        split: train, val, test or query; by default every image.
        progress: called with the images embedded and their number.

    Raises:
        ManifestError: no manifest, or none of its images are there.
        InputError: there is nothing, or vectors that are not finite, or zero.
    """
    path = Path(source)
    if not path.exists():
        raise InputError(f"nothing at {source}; give an index, a run, a directory of vectors or a .npy file")
    if IndexStore(path).exists():
        index = Index.open(path)
        found = LabelledVectors(np.asarray(index.vectors), index.items)
        index.close()
    elif (features := VectorStore(path, "features")).exists():
        stored = features.read()
        found = LabelledVectors(np.asarray(stored.vectors), stored.manifest)
    else:
        return _of_run(source, manifest, split, progress)
    if manifest is not None:
        found = relabelled(found, Manifest.read(manifest))
    if split is not None:
        rows = found.manifest.table["split"].to_numpy() == split
        if not rows.any():
            raise ManifestError(f"{source} has no images of split {split!r}")
        found = LabelledVectors(found.vectors[rows], found.manifest.take(np.flatnonzero(rows)))
    return LabelledVectors(_unit(found.vectors), found.manifest)


def _of_run(
    source: Path | str, manifest: Path | str | None, split: str | None, progress: Progress | None
) -> LabelledVectors:
    parts: list[Run] = []
    whole = Path(source).suffix == ".npy" or has_embeddings(source)
    refused: ManifestError | None = None
    # A model is asked for the rows of one split at a time; embeddings and arrays come with all of theirs.
    for name in (split,) if whole or split is not None else ("train", "val", "test", "query"):
        try:
            parts.append(read_run(source, manifest=manifest, split=name, progress=progress))
        except ManifestError as error:
            refused = error
    if not parts:
        assert refused is not None
        raise refused
    rows = parts[0].manifest
    if len(parts) == 1:
        return LabelledVectors(_unit(parts[0].vectors), rows)
    table = pd.concat([part.manifest.table for part in parts], ignore_index=True)
    together = Manifest(table, levels=rows.levels, root=rows.root, name=rows.name, credits=rows.credits)
    return LabelledVectors(_unit(np.concatenate([part.vectors for part in parts])), together)


def relabelled(found: LabelledVectors, wanted: Manifest) -> LabelledVectors:
    """The vectors of a manifest's images that were found, with its labels.

    Raises:
        ManifestError: none were.
    """
    rows, vectors = rows_with_vectors(wanted, found.manifest, found.vectors)
    return LabelledVectors(vectors, rows)


def _unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    array = np.asarray(vectors, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(array, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        row = int(np.argmin((np.isfinite(lengths) & (lengths > 0))[:, 0]))
        raise InputError(f"vectors must be finite and not zero; row {row + 1} is not")
    return np.asarray(array / lengths, dtype=np.float32)
