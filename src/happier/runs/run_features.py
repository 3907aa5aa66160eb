"""What a run's head is trained and evaluated on: kept features of its frozen backbone, or an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from happier.encoder.features import Features, FeatureStore, apply_head
from happier.errors import InputError
from happier.vectors.image_pass import PassOptions

if TYPE_CHECKING:
    from happier.data import Manifest
    from happier.encoder import Encoder
    from happier.progress import Progress
    from happier.runs.run_directory import RunDirectory

__all__ = ["FeatureSource", "head_vectors", "split_rows"]


@dataclass(frozen=True)
class FeatureSource:
    """Where the features of a manifest's rows come from.

    Attributes:
        array: a ``.npy`` file of vectors, a row for each row of the manifest; None for a backbone's features.
        folder: where a backbone's features are kept; None for the folder that all runs share.
        views: augmented views of each image beside the image itself.
        options: how images are read.
    """

    array: str | None = None
    folder: str | None = None
    views: int = 0
    options: PassOptions = field(default_factory=PassOptions)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """As a run's configuration says; of the images alone, without augmented views."""
        data = config.get("data") or {}
        return cls(data.get("features"), data.get("feature_folder"))

    def features(
        self,
        encoder: Encoder,
        manifest: Manifest,
        splits: Sequence[str],
        *,
        progress: Progress | None = None,
    ) -> Features:
        """The features of the rows of these splits, in table order.

        Raises:
            ImageError: an image cannot be read.
            InputError: the array is not one, or its vectors are of another length than the head reads.
            ManifestError: the array has another number of rows.
        """
        rows = manifest.select(splits)
        if self.array is None:
            return FeatureStore.open_or_compute(
                encoder, rows, self.folder, views=self.views, options=self.options, progress=progress
            )
        found = Features.from_array(self.array, manifest)
        if found.vectors.shape[1] != encoder.backbone.num_features:
            raise InputError(
                f"{self.array} has vectors of {found.vectors.shape[1]} numbers, the head reads "
                f"{encoder.backbone.num_features}"
            )
        return Features(found.vectors[split_rows(manifest, splits)], rows, found.fingerprint)


def split_rows(manifest: Manifest, splits: Sequence[str]) -> npt.NDArray[np.int64]:
    """The rows of these splits, in table order."""
    return np.flatnonzero(manifest.table["split"].isin(tuple(splits)).to_numpy())


def head_vectors(
    directory: RunDirectory,
    encoder: Encoder,
    manifest: Manifest,
    splits: Sequence[str],
    *,
    progress: Progress | None = None,
) -> npt.NDArray[np.float32] | None:
    """Unit vectors ``[N, dim]`` of a run's head for the rows of these splits, from features that are kept.

    Returns:
        None where the run trained its backbone, so that there are no features to share.
    """
    config = directory.read_config() if directory.has_config else {}
    if (config.get("model") or {}).get("train") != "head":
        return None
    source = FeatureSource.of(config)
    return apply_head(encoder, source.features(encoder, manifest, splits, progress=progress).vectors)
