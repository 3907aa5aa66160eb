"""Embeddings -> blocks of scores -> metrics; exact, streaming, sharded over ranks."""

from happier.evaluation.dyml import DyMLResult, RetrievalSet, dyml_protocol
from happier.evaluation.evaluate import evaluate, evaluate_ranking
from happier.evaluation.result import Difference, Interval, Result, compare
from happier.evaluation.retrieval import Curve, Retrieval, precision_recall_curve, retrieve

__all__ = [
    "Curve",
    "Difference",
    "DyMLResult",
    "Interval",
    "Result",
    "Retrieval",
    "RetrievalSet",
    "compare",
    "dyml_protocol",
    "evaluate",
    "evaluate_ranking",
    "precision_recall_curve",
    "retrieve",
]
