"""Images -> vectors -> an index, in one go; and the same for images that come later."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from happier.data import Manifest
from happier.errors import SearchError
from happier.search import store
from happier.search.index import Index

if TYPE_CHECKING:
    from happier.encoder import Encoder, Progress


def build_index(
    encoder: Encoder,
    manifest: Manifest,
    directory: Path | str,
    *,
    engine: str = "flat",
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> Index:
    """Embed a manifest's images and write them as a new index that keeps a copy of the model.

    Args:
        encoder: the model.
        manifest: the images.
        directory: where the index goes; it appears whole or not at all.
        engine: ``flat``, ``hnsw``, ``ivfpq`` or ``milvus``.
        options: of the engine.
        overwrite: replace an index that is there.
        batch_size: images at a time.
        workers: processes that decode images.
        progress: told of images done and of their number.

    Raises:
        ImageError: an image cannot be read.
        SearchError: the place is taken or cannot be written to.
    """
    directory = Path(directory).absolute()
    store.check_target(directory, overwrite=overwrite)
    with _room_beside(directory) as room:
        embedded = encoder.embed_manifest(
            manifest, Path(room) / "embeddings", batch_size=batch_size, workers=workers, progress=progress
        )
        return Index.build(
            directory,
            manifest,
            embedded.vectors,
            fingerprint=embedded.fingerprint,
            encoder=encoder,
            engine=engine,
            options=options,
            overwrite=overwrite,
        )


def extend_index(
    encoder: Encoder,
    manifest: Manifest,
    directory: Path | str,
    *,
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
) -> tuple[Index, int]:
    """Embed those images of a manifest that the index does not hold yet, and add them.

    Returns:
        The index and the number of images added.

    Raises:
        ImageError: an image cannot be read; the index stays as it was.
        SearchError: another model, or other levels.
    """
    directory = Path(directory).absolute()
    index = Index.open(directory)
    index.check_model(encoder.fingerprint)
    known = set(index.ids)
    new = [row for row, one in enumerate(manifest.ids()) if str(one) not in known]
    if not new:
        return index, 0
    part = manifest.take(new)
    with _room_beside(directory) as room:
        embedded = encoder.embed_manifest(
            part, Path(room) / "embeddings", batch_size=batch_size, workers=workers, progress=progress
        )
        added = index.add(part, embedded.vectors, fingerprint=embedded.fingerprint)
    return index, added


def _room_beside(directory: Path) -> tempfile.TemporaryDirectory[str]:
    """A place for the vectors on the index's own disk: they may not fit into the system's temporary one."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(
            dir=directory.parent, prefix=f".{directory.name}.", suffix=".vectors"
        )
    except OSError as error:
        raise SearchError(f"cannot write {directory}: {error.strerror}") from error
