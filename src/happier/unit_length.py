"""One warning where embeddings are not unit vectors, although scores are inner products."""

from __future__ import annotations

import warnings

import torch
from torch import nn

# Half precision rounds a length by less than a thousandth.
TOLERANCE = 0.01
_WARNED: set[str] = set()


def warn_of_gallery(shortest: float, longest: float) -> None:
    """Warn, once in a process, that items of a gallery differ in length.

    Items of one length rank as by cosine, whatever that length is.

    Args:
        shortest: length of the shortest item.
        longest: length of the longest.
    """
    if longest - shortest > TOLERANCE * longest:
        _warn("evaluate", shortest, longest, "longer items rank higher for every query", depth=5)


def warn_of_batch(loss: nn.Module, embeddings: torch.Tensor) -> None:
    """Warn, once in a process for each kind of loss, that a batch is not of unit length.

    Only the first batch of each instance is looked at: to look at values is to wait for a GPU.

    Args:
        loss: what was called.
        embeddings: the batch ``[B, D]``.
    """
    # What is traced has no values, nor has a fake tensor, which is a subclass.
    if torch.compiler.is_compiling() or type(embeddings) is not torch.Tensor or len(embeddings) == 0:
        return
    if getattr(loss, "_lengths_seen", False):
        return
    loss._lengths_seen = True  # type: ignore[assignment]
    lengths = torch.linalg.vector_norm(embeddings.detach().float(), dim=1)
    shortest, longest = float(lengths.min()), float(lengths.max())
    if shortest < 1 - TOLERANCE or longest > 1 + TOLERANCE:
        _warn(type(loss).__name__, shortest, longest, "the loss is scaled for scores from -1 to 1", depth=6)


def _warn(place: str, shortest: float, longest: float, consequence: str, *, depth: int) -> None:
    if place in _WARNED:
        return
    _WARNED.add(place)
    warnings.warn(
        f"{place}: the embeddings are not unit vectors (lengths {shortest:.3g} to {longest:.3g}) and scores "
        f"are inner products: {consequence}. For cosine similarity use "
        "torch.nn.functional.normalize(vectors, dim=1)",
        stacklevel=depth,  # through prepare and evaluate, or torch's call and forward, to the user's line
    )
