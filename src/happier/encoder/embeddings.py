"""Unit vectors of a manifest's images, kept in a directory; see `happier.vectors.store`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from happier import distributed
from happier.arrays import Float32Array
from happier.data import Manifest
from happier.encoder.features import FeatureStore
from happier.encoder.vector_models import embedding_model
from happier.vectors.image_pass import PassOptions, VectorBatch
from happier.vectors.store import StoredVectors, VectorStore
from happier.vectors.writer import VectorModel

if TYPE_CHECKING:
    from happier.encoder.encoder import Encoder
    from happier.progress import Progress

__all__ = ["Embeddings", "embed_manifest", "has_embeddings", "keep_embeddings"]


@dataclass(frozen=True)
class Embeddings:
    """Vectors and the rows they belong to.

    Attributes:
        vectors: float32 ``[N, D]``, mapped from disk.
        manifest: the rows, in the same order.
        fingerprint: of the model that made them; `Encoder.fingerprint`.
    """

    vectors: Float32Array
    manifest: Manifest
    fingerprint: str

    @classmethod
    def read(cls, directory: Path | str) -> Embeddings:
        """Open a directory; checksums are compared, the vectors stay on disk.

        Raises:
            CheckpointError: it is not a directory of embeddings, or one of its files is damaged.
        """
        return _embeddings(VectorStore(directory).read())


def has_embeddings(directory: Path | str) -> bool:
    """Whether a directory holds embeddings."""
    return VectorStore(directory).exists()


def embed_manifest(
    encoder: Encoder,
    manifest: Manifest,
    out_dir: Path | str,
    *,
    batch_size: int = 64,
    precision: str = "fp32",
    workers: int = 0,
    backend: str = "auto",
    progress: Progress | None = None,
) -> Embeddings:
    """Embed every row of a manifest into a directory; an older directory of embeddings is replaced.

    Vectors that it holds of the same images by the same model are used again.

    Args:
        encoder: the model.
        manifest: the rows.
        out_dir: directory to write.
        batch_size: images at a time.
        precision: fp32, bf16 or fp16; the vectors are stored in float32 all the same.
        workers: processes that decode images.
        backend: what computes, see `happier.encoder.inference_backends`.
        progress: called with this rank's images done and their number.

    Raises:
        ImageError: an image cannot be read; the directory stays as it was.
        DataError: `out_dir` exists and is something else.
    """
    model = _model(encoder, manifest, precision, backend)
    options = PassOptions(batch_size=batch_size, workers=workers)
    return _embeddings(VectorStore(out_dir).update(model, manifest, options=options, progress=progress))


def keep_embeddings(
    encoder: Encoder,
    manifest: Manifest,
    directory: Path | str,
    *,
    options: PassOptions | None = None,
    backend: str = "auto",
    progress: Progress | None = None,
) -> Embeddings:
    """The embeddings of a manifest's rows from a cache, which is filled where it lacks them.

    A second process that wants the same waits for the first and uses its vectors.

    Args:
        encoder: the model.
        manifest: the rows.
        directory: the cache; vectors of other images of the same model stay in it.
        options: how images are read.
        backend: what computes, see `happier.encoder.inference_backends`.
        progress: called with this rank's images done and their number.

    Raises:
        ImageError: an image cannot be read; the cache stays as it was.
        DataError: the directory is something else, or cannot be written to.
    """
    model = _model(encoder, manifest, "fp32", backend)
    found = VectorStore(directory).update(
        model, manifest, options=options or PassOptions(), keep=True, progress=progress
    )
    return _embeddings(found)


def _model(encoder: Encoder, manifest: Manifest, precision: str, backend: str) -> VectorModel:
    """What embeds: the head alone, where features of the backbone are kept, else the whole encoder."""
    model = embedding_model(encoder, precision=precision, backend=backend)
    if precision != "fp32" or distributed.world_size() > 1:
        return model
    store = FeatureStore.shared(encoder)
    if not store.exists():
        return model

    def ready(paths: list[str], options: PassOptions) -> Iterator[VectorBatch]:
        row = {str(path): row for row, path in enumerate(manifest.files())}
        wanted = manifest.take([row[path] for path in paths])
        return store.embed(encoder, wanted, backend=backend, options=options)

    return replace(model, ready=ready)


def _embeddings(found: StoredVectors) -> Embeddings:
    return Embeddings(found.vectors, found.manifest, found.fingerprint)
