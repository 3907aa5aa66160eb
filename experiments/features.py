"""Features of a frozen network for the studies, computed once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from happier.arrays import Float32Array
from happier.data import Manifest
from happier.storage.atomic import atomic_file
from happier.storage.lock import locked


@cache
def feature_array(path: Path, manifest: Path, *, side: int, model: str) -> Path:
    """A file with the features of a manifest's images, a row for each of its rows; computed if missing."""
    with locked(path.parent):
        if not path.exists():
            vectors = backbone_features(manifest, Manifest.read(manifest), side=side, model=model)
            with atomic_file(path) as part, part.open("wb") as file:
                np.save(file, vectors)
    return path


def backbone_features(
    path: Path, rows: Manifest, *, side: int, model: str = "efficientnet_lite0"
) -> Float32Array:
    """Features of a frozen network of some rows of a manifest; those computed before are read.

    Args:
        path: of the manifest.
        rows: of it.
        side: of the images, in pixels.
        model: the network.
    """
    from happier.encoder.features import FeatureStore
    from happier.training.compose import compose, quoted
    from happier.training.setup import build_encoder, build_fabric

    config = compose(
        [
            "recipe=folder_head",
            f"model={model}",
            "model.train=head",
            "transform=small",
            f"transform.size={side}",
            "transform.normalize=backbone",
            f"data.manifest={quoted(path)}",
        ]
    )
    return FeatureStore.open_or_compute(build_encoder(config, rows, build_fabric(config)), rows).vectors
