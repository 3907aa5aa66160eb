"""The README of a saved model: what it is, how good, how to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from happier.encoder.pretrained import ModelSettings

__all__ = ["model_card"]

_CARD = """\
---
library_name: happier
pipeline_tag: image-feature-extraction
tags: [image-retrieval, metric-learning, hierarchy]
---

# {title}

An image encoder for hierarchical retrieval: the nearest images first share the finest class, then the next
coarser one.

| | |
|---|---|
| backbone | `{backbone}` (timm) |
| pooling | {pooling} |
| head | {head} |
| embedding | {dim} numbers, unit length; compare by inner product |
| levels, coarse to fine | {levels} |
| preprocessing | `{transform}`, {image_size} pixels, mean {mean}, standard deviation {std} |
| weights (sha256) | `{fingerprint}` |

## Use

```python
from happier import Encoder

encoder = Encoder.from_pretrained("path/to/this/folder")
vectors = encoder.embed(["a.jpg", "b.jpg"])  # float32 [2, {dim}]
similarity = vectors @ vectors.T
```

## Metrics

{metrics}
"""


def model_card(settings: ModelSettings, *, title: str) -> str:
    """The card as Markdown, from the fields of ``model.json``."""
    from happier.data.input_config import IMAGENET_MEAN, IMAGENET_STD

    shown = "\n".join(f"| {name} | {value:.4g} |" for name, value in settings.metrics.items())
    return _CARD.format(
        title=title,
        levels=", ".join(settings.level_names) or "not named",
        metrics=f"| metric | value |\n|---|---|\n{shown}" if shown else "None were recorded.",
        backbone=settings.backbone,
        pooling="the backbone's" if settings.pooling == "backbone" else settings.pooling,
        head="linear" if settings.head == "linear" else f"{settings.hidden} GELU units, then linear",
        dim=settings.dim,
        transform=settings.transform,
        image_size=settings.image_size,
        mean=_numbers(settings.input.mean if settings.input else IMAGENET_MEAN),
        std=_numbers(settings.input.std if settings.input else IMAGENET_STD),
        fingerprint=settings.fingerprint,
    )


def _numbers(values: tuple[float, ...]) -> str:
    return " / ".join(f"{value:.3g}" for value in values)
