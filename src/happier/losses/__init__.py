"""Losses for hierarchical retrieval: the H-AP loss, HAPPIER, and every baseline, behind one call.

    loss(embeddings, labels) -> scalar

with unit vectors ``[B, D]`` and label rows ``[B, L]``, coarse first. `build_loss` makes any of them by name.
"""

from happier.losses.average_precision import ROADMAPLoss, SmoothAPLoss
from happier.losses.csl import CSLLoss
from happier.losses.distributed import gather_across_ranks
from happier.losses.hap import HAPLoss, SigmoidHAPLoss
from happier.losses.happier_loss import HAPPIERLoss
from happier.losses.himulcon import HiMulConLoss
from happier.losses.levels import SumOverLevels
from happier.losses.loss import RetrievalLoss
from happier.losses.memory import CrossBatchMemory
from happier.losses.norm_softmax import ClusterLoss, NormSoftmaxLoss, ProxyNCAPPLoss
from happier.losses.registry import LOSSES, LossEntry, build_loss
from happier.losses.supervised_rank import SupNDCGLoss, SupRecallLoss
from happier.losses.surrogate import SigmoidSurrogate, StepSurrogate
from happier.losses.triplet import TripletLoss

__all__ = [
    "LOSSES",
    "CSLLoss",
    "ClusterLoss",
    "CrossBatchMemory",
    "HAPLoss",
    "HAPPIERLoss",
    "HiMulConLoss",
    "LossEntry",
    "NormSoftmaxLoss",
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
    "gather_across_ranks",
]
