"""Embeddings -> blocks of scores -> metrics; exact, streaming, sharded over ranks."""

from happier.evaluation.dyml import DyMLResult, RetrievalSet, dyml_protocol
from happier.evaluation.evaluate import evaluate, evaluate_ranking
from happier.evaluation.result import Differences, Result, compare
from happier.evaluation.retrieval import Curve, Retrieval, precision_recall_curve, retrieve
from happier.evaluation.revisited import RevisitedResult, revisited_protocol
from happier.evaluation.statistics import Difference, Interval, holm, seed_difference

__all__ = [
    "Curve",
    "Difference",
    "Differences",
    "DyMLResult",
    "Interval",
    "Result",
    "Retrieval",
    "RetrievalSet",
    "RevisitedResult",
    "compare",
    "dyml_protocol",
    "evaluate",
    "evaluate_ranking",
    "holm",
    "precision_recall_curve",
    "retrieve",
    "revisited_protocol",
    "seed_difference",
]
