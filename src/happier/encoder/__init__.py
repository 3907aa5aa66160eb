"""Images -> unit vectors: the model, its weights, and vectors on disk."""

from happier.extras import needs_extra

with needs_extra("train"):
    from happier.encoder.embeddings import Embeddings, embed_manifest, has_embeddings, keep_embeddings
    from happier.encoder.encoder import Encoder
    from happier.encoder.features import Features, FeatureStore
    from happier.encoder.head import Head
    from happier.progress import Progress
    from happier.vectors.image_pass import PassOptions

__all__ = [
    "Embeddings",
    "Encoder",
    "FeatureStore",
    "Features",
    "Head",
    "PassOptions",
    "Progress",
    "embed_manifest",
    "has_embeddings",
    "keep_embeddings",
]
