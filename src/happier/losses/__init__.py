"""Losses for hierarchical retrieval: the H-AP loss, HAPPIER, and every baseline, behind one call.

    loss(embeddings, labels) -> scalar

with unit vectors ``[B, D]`` and label rows ``[B, L]``, coarse first. `build_loss` makes any of them by name.
"""

from happier.losses.attribute_hap import AttributeHAPLoss
from happier.losses.blackbox_ap import BlackboxAPLoss
from happier.losses.cross_batch_memory import CrossBatchMemory
from happier.losses.csl import CSLLoss
from happier.losses.distributed import gather_across_ranks
from happier.losses.fast_ap import FastAPLoss
from happier.losses.graded import GradedHAPLoss
from happier.losses.hap import HAPLoss, SigmoidHAPLoss
from happier.losses.happier_loss import HAPPIERLoss
from happier.losses.himulcon import HiMulConLoss
from happier.losses.margin_softmax import ArcFaceLoss, CosFaceLoss
from happier.losses.multi_similarity import MultiSimilarityLoss
from happier.losses.norm_softmax import ClusterLoss, NormSoftmaxLoss, ProxyNCAPPLoss
from happier.losses.proxy_anchor import ProxyAnchorLoss
from happier.losses.registry import LOSSES, LossEntry, build_loss, display_name
from happier.losses.retrieval_loss import RetrievalLoss
from happier.losses.roadmap import ROADMAPLoss
from happier.losses.smooth_ap import SmoothAPLoss
from happier.losses.sum_over_levels import SumOverLevels
from happier.losses.supervised_rank import SupNDCGLoss, SupRecallLoss
from happier.losses.surrogate import SigmoidSurrogate, StepSurrogate
from happier.losses.triplet import TripletLoss

__all__ = [
    "LOSSES",
    "ArcFaceLoss",
    "AttributeHAPLoss",
    "BlackboxAPLoss",
    "CSLLoss",
    "ClusterLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "FastAPLoss",
    "GradedHAPLoss",
    "HAPLoss",
    "HAPPIERLoss",
    "HiMulConLoss",
    "LossEntry",
    "MultiSimilarityLoss",
    "NormSoftmaxLoss",
    "ProxyAnchorLoss",
    "ProxyNCAPPLoss",
    "ROADMAPLoss",
    "RetrievalLoss",
    "SigmoidHAPLoss",
    "SigmoidSurrogate",
    "SmoothAPLoss",
    "StepSurrogate",
    "SumOverLevels",
    "SupNDCGLoss",
    "SupRecallLoss",
    "TripletLoss",
    "build_loss",
    "display_name",
    "gather_across_ranks",
]
