"""Ranked levels + relevance -> one value per query."""

from happier.metrics.graded import graded_h_ap
from happier.metrics.ranked import (
    asi,
    average_precision,
    average_precision_at_r,
    first_mistake,
    h_ap,
    hierarchical_precision,
    hierarchical_precision_at_k,
    hierarchical_rank,
    hierarchical_recall,
    hierarchical_recall_at_k,
    ndcg,
    precision_at_k,
    recall_at_k,
    severity_at_k,
    share_at_k,
)

__all__ = [
    "asi",
    "average_precision",
    "average_precision_at_r",
    "first_mistake",
    "graded_h_ap",
    "h_ap",
    "hierarchical_precision",
    "hierarchical_precision_at_k",
    "hierarchical_rank",
    "hierarchical_recall",
    "hierarchical_recall_at_k",
    "ndcg",
    "precision_at_k",
    "recall_at_k",
    "severity_at_k",
    "share_at_k",
]
