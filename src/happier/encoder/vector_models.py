"""The two kinds of vectors that an encoder makes of images: embeddings, and its backbone's features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from happier.arrays import Float32Array
from happier.encoder.encoder import check_precision
from happier.encoder.inference_backends import check_backend, feature_function
from happier.vectors.generation import ModelKey
from happier.vectors.writer import VectorModel

if TYPE_CHECKING:
    from happier.encoder.encoder import Encoder
    from happier.vectors.fixed_views import ViewTransform

__all__ = ["embedding_function", "embedding_model", "feature_model"]


def embedding_model(encoder: Encoder, *, precision: str = "fp32", backend: str = "auto") -> VectorModel:
    """Images -> unit vectors."""
    key = _key(encoder, precision, encoder.fingerprint, encoder.dim)
    check_backend(backend, precision)
    return VectorModel(
        key, encoder.preprocess, lambda images: embedding_function(encoder, precision, backend, images)
    )


def feature_model(
    encoder: Encoder, *, view: ViewTransform | None = None, precision: str = "fp32", backend: str = "auto"
) -> VectorModel:
    """Images -> features of the backbone; of an augmented view of each where one is given."""
    key = _key(encoder, precision, encoder.backbone_fingerprint, encoder.feature_dim)
    if view is not None:
        key = key.model_copy(update={"preprocessing": f"{key.preprocessing}, view {view.number}"})
    check_backend(backend, precision)

    @contextmanager
    def running(images: int) -> Iterator[Callable[[Tensor], Float32Array]]:
        with feature_function(encoder, precision=precision, backend=backend, images=images) as features:
            yield lambda batch: _as_array(features(batch))

    return VectorModel(key, view or encoder.preprocess, running)


@contextmanager
def embedding_function(
    encoder: Encoder, precision: str, backend: str, images: int
) -> Iterator[Callable[[Tensor], Float32Array]]:
    """Yield a function: images ``[B, 3, H, W]`` -> unit vectors ``[B, dim]``; see `feature_function`."""
    with feature_function(encoder, precision=precision, backend=backend, images=images) as features:
        yield lambda batch: _as_array(encoder.head_forward(features(batch).to(encoder.device)))


def _as_array(vectors: Tensor) -> Float32Array:
    array: Float32Array = vectors.float().cpu().numpy()
    return array


def _key(encoder: Encoder, precision: str, fingerprint: str, dim: int) -> ModelKey:
    check_precision(precision)
    return ModelKey(
        fingerprint=fingerprint,
        backbone=encoder.backbone_name,
        dim=dim,
        preprocessing=encoder.preprocess.description,
        precision=precision,
    )
