"""Features of a frozen backbone, computed once and kept: every model with the same backbone shares them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from happier.arrays import Float32Array
from happier.data import Manifest, build_transform, cache_folder
from happier.encoder.vector_models import feature_model
from happier.errors import DataError, InputError, ManifestError, OptionError
from happier.storage.checksum import checksum
from happier.vectors.fixed_views import ViewTransform
from happier.vectors.image_pass import PassOptions, VectorBatch
from happier.vectors.npy import map_array
from happier.vectors.store import StoredVectors, VectorStore

if TYPE_CHECKING:
    from happier.encoder.encoder import Encoder
    from happier.progress import Progress
    from happier.vectors.generation import ModelKey
    from happier.vectors.image_content import ImageContent

__all__ = ["FeatureStore", "Features", "apply_head"]

_ROWS: Final = 4096


@dataclass(frozen=True)
class Features:
    """What a backbone made of a manifest's images.

    Attributes:
        vectors: float32 ``[N, F]``, mapped from disk where they are stored in order.
        manifest: the rows, in the same order.
        fingerprint: of the backbone's weights; `Encoder.backbone_fingerprint`.
        views: the features ``[N, F]`` of augmented views of the same images.
        contents: what the images held; empty for vectors from elsewhere.
    """

    vectors: Float32Array
    manifest: Manifest
    fingerprint: str
    views: tuple[Float32Array, ...] = ()
    contents: tuple[ImageContent, ...] = ()

    @classmethod
    def from_array(cls, path: Path | str, manifest: Manifest) -> Features:
        """Vectors that come from elsewhere, one for each row of a manifest; no image is read.

        Args:
            path: a ``.npy`` file, ``[N, F]``, any kind of floats.
            manifest: its rows.

        Raises:
            InputError: not such an array, or values that are not finite.
            ManifestError: another number of rows.
        """
        vectors = map_array(Path(path))
        if len(vectors) != len(manifest):
            raise ManifestError(
                f"{path} has {len(vectors)} vectors, the manifest {len(manifest)} rows; they must be the same"
            )
        for start in range(0, len(vectors), 4096):
            finite = np.isfinite(vectors[start : start + 4096]).all(axis=1)
            if not finite.all():
                row = start + int(finite.argmin()) + 1
                raise InputError(f"{path} has values that are not finite, the first in row {row}")
        same = vectors if vectors.dtype == np.float32 else vectors.astype(np.float32)
        return cls(same, manifest, f"array {checksum(same)}")


class FeatureStore:
    """A directory of features of one backbone with one preprocessing, to which images are added.

    Args:
        directory: where it is, or will be; augmented views are in its subdirectories.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)

    @classmethod
    def shared(cls, encoder: Encoder) -> FeatureStore:
        """The store in the cache folder that every model with this backbone and preprocessing shares."""
        name = f"{encoder.backbone_fingerprint[:24]}-{encoder.preprocess.description}"
        folder = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)
        return cls(cache_folder() / "features" / folder[:120])

    @classmethod
    def open_or_compute(
        cls,
        encoder: Encoder,
        manifest: Manifest,
        directory: Path | str | None = None,
        *,
        views: int = 0,
        backend: str | None = None,
        options: PassOptions | None = None,
        progress: Progress | None = None,
    ) -> Features:
        """The features of a manifest's images; only images that the store lacks go through the backbone.

        Args:
            encoder: whose backbone computes them; its head does not matter.
            manifest: the rows.
            directory: the store; by default the one that models with this backbone share.
            views: augmented views of each image, beside the image itself.
            backend: see `happier.encoder.inference_backends`; by default the fastest with the same result.
            options: how images are read.
            progress: called with the images done and their number, over all views.

        Raises:
            ImageError: an image cannot be read.
            DataError: the directory is something else, or cannot be written to.
        """
        if views < 0:
            raise OptionError(f"views must be 0 or more, got {views}")
        store = cls.shared(encoder) if directory is None else cls(directory)
        images, *others = [
            store._vectors(encoder, manifest, number, backend or "auto", options or PassOptions(), progress)
            for number in range(views + 1)
        ]
        return Features(
            images.vectors,
            manifest,
            encoder.backbone_fingerprint,
            tuple(view.vectors for view in others),
            images.contents,
        )

    def embed(
        self, encoder: Encoder, manifest: Manifest, *, backend: str, options: PassOptions
    ) -> Iterator[VectorBatch]:
        """Unit vectors of a manifest's images: the head of an encoder on the features of its backbone.

        Images that the store lacks are added.
        """
        found = self._vectors(encoder, manifest, 0, backend, options, None)
        for start in range(0, len(found.vectors), _ROWS):
            rows = slice(start, start + _ROWS)
            yield VectorBatch(apply_head(encoder, found.vectors[rows]), list(found.contents[rows]))

    def exists(self) -> bool:
        """Whether there are features."""
        return VectorStore(self.directory, "features").exists()

    def _vectors(
        self,
        encoder: Encoder,
        manifest: Manifest,
        number: int,
        backend: str,
        options: PassOptions,
        progress: Progress | None,
    ) -> StoredVectors:
        place, view = self.directory, None
        if number:
            place = place / f"view-{number}"
            train = build_transform(
                encoder.transform, train=True, size=encoder.image_size, input_config=encoder.input_config
            )
            view = ViewTransform(train, number)
        model = feature_model(encoder, view=view, backend=backend)
        store = VectorStore(place, "features")
        if store.exists() and (held := store.read_key()) is not None and held != model.key:
            raise DataError(
                f"{place} holds features of {_name(held)}, not {_name(model.key)}; choose another directory"
            )
        return store.update(model, manifest, options=options, keep=True, progress=progress)


def _name(key: ModelKey) -> str:
    return f"{key.backbone} (weights {key.fingerprint[:8]}, preprocessing {key.preprocessing})"


def apply_head(encoder: Encoder, features: Float32Array, *, batch_size: int = _ROWS) -> Float32Array:
    """Unit vectors ``[N, dim]`` of features ``[N, F]``."""
    vectors = np.empty((len(features), encoder.dim), dtype=np.float32)
    with encoder.inference():
        for start in range(0, len(features), batch_size):
            part = torch.from_numpy(np.array(features[start : start + batch_size]))
            vectors[start : start + batch_size] = encoder.head_forward(part.to(encoder.device)).cpu().numpy()
    return vectors
