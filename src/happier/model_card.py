"""The README that stands beside a saved model: what it is, how good, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
| embedding | {dim} numbers, unit length; compare by inner product |
| levels, coarse to fine | {levels} |
| preprocessing | `{transform}`, {image_size} pixels, ImageNet mean and standard deviation |
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


def model_card(settings: Mapping[str, Any], metrics: Mapping[str, float], *, title: str) -> str:
    """The card as Markdown, from the fields of ``model.json``."""
    shown = "\n".join(f"| {name} | {value:.4g} |" for name, value in metrics.items())
    return _CARD.format(
        title=title,
        levels=", ".join(settings["level_names"]) or "not named",
        metrics=f"| metric | value |\n|---|---|\n{shown}" if shown else "None were recorded.",
        **{key: settings[key] for key in ("backbone", "dim", "transform", "image_size", "fingerprint")},
    )
