"""Images -> vectors -> an index, in one go; and the same for images that come later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from happier.data import Manifest
from happier.search.engine import choose_engine
from happier.search.index import Index
from happier.search.store import IndexStore
from happier.storage.atomic import remove_leftovers, scratch_folder

if TYPE_CHECKING:
    from happier.encoder import Encoder
    from happier.progress import Progress


def build_index(  # noqa: PLR0913 - the index, its engine, and how images are embedded
    encoder: Encoder,
    manifest: Manifest,
    directory: Path | str,
    *,
    engine: str = "flat",
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    batch_size: int = 64,
    workers: int = 0,
    vectors: npt.NDArray[np.float32] | None = None,
    progress: Progress | None = None,
) -> Index:
    """Embed a manifest's images and write them as a new index that keeps a copy of the model.

    Args:
        encoder: the model.
        manifest: the images.
        directory: where the index goes.
        engine: ``flat``, ``hnsw``, ``ivfpq``, ``milvus`` or ``pgvector``.
        options: of the engine; ``recall`` is the share of the exact answer that a search must give.
        overwrite: replace an existing index, which stays in use until the new one is complete.
        batch_size: images at a time.
        workers: processes that decode images.
        vectors: of the images, where the encoder has made them already.
        progress: called with the images done and their number.

    Raises:
        ImageError: an image cannot be read.
        OptionError: an unknown engine or option.
        SearchError: the place is taken or cannot be written to.
    """
    store = IndexStore(directory)
    store.check_target(overwrite=overwrite)
    choose_engine(engine, dim=encoder.dim, rows=len(manifest), options=options or {})
    with scratch_folder(store.directory) as scratch:
        if vectors is None:
            vectors = encoder.embed_manifest(
                manifest, scratch / "embeddings", batch_size=batch_size, workers=workers, progress=progress
            ).vectors
        return Index.build(
            directory,
            manifest,
            vectors,
            fingerprint=encoder.fingerprint,
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
    index, store = Index.open(directory), IndexStore(directory)
    index.check_model(encoder.fingerprint)
    remove_leftovers(store.directory)
    known = set(index.ids)
    new = [row for row, one in enumerate(manifest.ids()) if str(one) not in known]
    if not new:
        store.clean_up()
        return index, 0
    part = manifest.take(new)
    with scratch_folder(store.directory) as scratch:
        embedded = encoder.embed_manifest(
            part, scratch / "embeddings", batch_size=batch_size, workers=workers, progress=progress
        )
        # Another command may have added some of them while these were embedded.
        added = index.add(part, embedded.vectors, fingerprint=embedded.fingerprint, skip_known=True)
    return index, added
