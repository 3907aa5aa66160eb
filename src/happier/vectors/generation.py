"""One generation of a directory of vectors: its head, its files, and how they are checked when opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from happier.arrays import Float32Array, IntArray
from happier.data import Manifest
from happier.errors import CheckpointError, ManifestError
from happier.storage.checksum import checksum, file_checksum
from happier.storage.records import Record, SealedRecord
from happier.vectors.image_content import ImageTable
from happier.vectors.npy import map_vectors

__all__ = [
    "FORMAT",
    "Generation",
    "GenerationHead",
    "ModelKey",
    "OldGenerationHead",
    "StoredFile",
    "open_generation",
]

FORMAT: Final = 2
FILE_PATTERN: Final = r"^(embeddings|features|images|items|rows)-([0-9]+)\.(npy|parquet)$"


class ModelKey(Record):
    """What a vector depends on beside the image: only vectors of equal keys may be compared.

    Attributes:
        fingerprint: sha256 of the weights.
        backbone: name of the network.
        dim: numbers per vector.
        preprocessing: what becomes of the pixels.
        precision: of the computation.
    """

    fingerprint: str
    backbone: str
    dim: Annotated[int, Field(ge=1)]
    preprocessing: str
    precision: str


class StoredFile(Record):
    """A file of a generation and its checksum."""

    name: Annotated[str, Field(pattern=FILE_PATTERN)]
    checksum: str


class GenerationHead(SealedRecord):
    """Which files are current, and which model made them."""

    format: Literal[2]
    generation: Annotated[int, Field(ge=1)]
    model: ModelKey
    vectors: StoredFile
    images: StoredFile
    items: StoredFile
    rows: StoredFile | None

    def files(self) -> list[StoredFile]:
        """All files of the generation."""
        return [file for file in (self.vectors, self.images, self.items, self.rows) if file is not None]


class OldGenerationHead(Record):
    """The head of format 1: ``embeddings.npy`` and ``items.parquet``, without checksums."""

    format: Literal[1]
    fingerprint: str
    dim: int
    items: int
    backbone: str
    precision: str


@dataclass(frozen=True)
class Generation:
    """The files of a head, opened.

    Attributes:
        head: what names them.
        vectors: float32 ``[N, D]``, mapped from disk.
        images: the files that the rows of ``vectors`` were computed from.
        manifest: what was asked for.
        rows: the row of ``vectors`` of each row of the manifest; None where they are the same.
    """

    head: GenerationHead
    vectors: Float32Array
    images: ImageTable
    manifest: Manifest
    rows: IntArray | None


def open_generation(directory: Path, head: GenerationHead) -> Generation:
    """Open the files of a generation and compare their checksums.

    Raises:
        CheckpointError: a file is damaged.
        FileNotFoundError: a file is missing.
    """
    for file in head.files():
        if file is not head.vectors and file_checksum(directory / file.name) != file.checksum:
            raise _damaged(directory / file.name)
    images = ImageTable.read(directory / head.images.name)
    try:
        manifest = Manifest.read(directory / head.items.name)
    except ManifestError as error:
        raise CheckpointError(f"{directory / head.items.name} is damaged: {error}") from error
    vectors = map_vectors(directory / head.vectors.name, (len(images), head.model.dim))
    if checksum(vectors) != head.vectors.checksum:
        raise _damaged(directory / head.vectors.name)
    rows = None if head.rows is None else np.load(directory / head.rows.name, allow_pickle=False)
    if len(manifest) != (len(images) if rows is None else len(rows)):
        raise _damaged(directory / head.items.name)
    return Generation(head, vectors, images, manifest, rows)


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: its checksum does not match; embed again")
