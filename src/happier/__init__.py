"""Hierarchical image retrieval: exact evaluation, losses, training, reports and search."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from happier.errors import HappierError
from happier.version import __version__ as __version__
from happier.version import warn_of_namesake

if TYPE_CHECKING:
    from happier import data as data
    from happier import losses as losses
    from happier import search as search
    from happier import torchmetrics as torchmetrics
    from happier.encoder import Encoder
    from happier.evaluation.evaluate import evaluate, evaluate_ranking
    from happier.evaluation.result import compare
    from happier.metrics import graded_h_ap
    from happier.relevance import HierarchyRelevance, LevelRelevance, WeightedAPRelevance, jaccard
    from happier.taxonomy import Taxonomy

warn_of_namesake()

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
    "jaccard",
]

# Imported on first access: the metrics need no optional dependency, and `happier --help` no torch.
_HOME = {
    "Encoder": "happier.encoder",
    "HierarchyRelevance": "happier.relevance",
    "LevelRelevance": "happier.relevance",
    "Taxonomy": "happier.taxonomy",
    "WeightedAPRelevance": "happier.relevance",
    "compare": "happier.evaluation",
    "evaluate": "happier.evaluation",
    "evaluate_ranking": "happier.evaluation",
    "graded_h_ap": "happier.metrics",
    "jaccard": "happier.relevance",
}
_MODULES = ("data", "losses", "search", "torchmetrics")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"happier.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'happier' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
