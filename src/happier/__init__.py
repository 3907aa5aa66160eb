"""Hierarchical image retrieval: exact evaluation, losses, training, reports and search."""

from importlib import import_module
from importlib.metadata import version as _version
from typing import Any

from happier.errors import HappierError
from happier.evaluation import compare, evaluate, evaluate_ranking
from happier.metrics import graded_h_ap
from happier.relevance import HierarchyRelevance, LevelRelevance, WeightedAPRelevance
from happier.taxonomy import Taxonomy

__version__ = _version("happier")

# Loaded when first asked for, so that the metrics need none of the optional dependencies.
_LAZY = {
    "Encoder": ("happier.encoder", "Encoder"),
    "data": ("happier.data", None),
    "losses": ("happier.losses", None),
    "search": ("happier.search", None),
    "torchmetrics": ("happier.torchmetrics", None),
}

__all__ = [
    "Encoder",
    "HappierError",
    "HierarchyRelevance",
    "LevelRelevance",
    "Taxonomy",
    "WeightedAPRelevance",
    "compare",
    "evaluate",
    "evaluate_ranking",
    "graded_h_ap",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'happier' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
