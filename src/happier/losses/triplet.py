"""Triplets at the finest level, with pytorch-metric-learning's loss and miners."""

from __future__ import annotations

from typing import Any, Literal, final

import torch

from happier.errors import OptionError, did_you_mean
from happier.extras import needs_extra
from happier.losses.option_checks import check_positive
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.taxonomy import UNKNOWN

Mining = Literal["semihard", "distance", "all"]
_MININGS = ("semihard", "distance", "all")


@final
class TripletLoss(RetrievalLoss):
    """Hinge on triplets of an anchor, an item of its finest class and one of another.

        L = mean_{hinge > 0} [ ||a - p|| - ||a - n|| + margin ]_+

    where ``mining`` chooses the triplets: ``"semihard"``, those with ``||a - p|| < ||a - n|| <= ||a - p|| +
    margin``; ``"distance"``, negatives drawn with a probability inverse to how common their distance is on
    the sphere; ``"all"``. An unknown finest class equals no other. Loss and miners are
    pytorch-metric-learning's.

    Relations: `ROADMAPLoss` and `SmoothAPLoss` rank the whole batch instead; ``SumOverLevels`` puts one on
    every level.

    Args:
        margin: of the hinge, and of the semi-hard band.
        mining: how triplets are chosen; those of ``indices_tuple`` are taken as they are.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Schroff et al., FaceNet, CVPR 2015 (semi-hard); Wu et al., Sampling Matters in Deep Embedding
        Learning, ICCV 2017 (distance weighted).

    >>> import torch
    >>> float(TripletLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])))
    0.0
    """

    def __init__(self, *, margin: float = 0.2, mining: Mining = "semihard") -> None:
        super().__init__()
        with needs_extra("train"):
            from pytorch_metric_learning import losses, miners
        if mining not in _MININGS:
            raise OptionError(
                f"unknown mining {mining!r}{did_you_mean(mining, _MININGS)}; one of {', '.join(_MININGS)}"
            )
        self.margin = check_positive("margin", margin)
        self.mining = mining
        self._loss: Any = losses.TripletMarginLoss(margin=margin)
        self._miner: Any = None
        if mining == "semihard":
            self._miner = miners.TripletMarginMiner(margin=margin, type_of_triplets="semihard")
        elif mining == "distance":
            self._miner = miners.DistanceWeightedMiner()

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        classes, reference_classes = _class_numbers(batch)
        anchors, positives, negatives = self._triplets(batch, classes, reference_classes)
        if not len(anchors):
            return batch.zero()
        loss: torch.Tensor = self._loss(
            batch.embeddings,
            classes,
            (anchors, positives, negatives),
            ref_emb=batch.references,
            ref_labels=reference_classes,
        )
        return loss

    def _triplets(
        self, batch: Batch, classes: torch.Tensor, reference_classes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        from pytorch_metric_learning.utils import loss_and_miner_utils

        with torch.no_grad():
            if self._miner is not None and batch.mined is None:
                mined = self._miner(batch.embeddings, classes, batch.references, reference_classes)
            else:
                mined = loss_and_miner_utils.convert_to_triplets(
                    batch.mined, classes, reference_classes, t_per_anchor="all"
                )
        anchors, positives, negatives = mined
        if batch.own is None:
            return anchors, positives, negatives
        keep = batch.own[anchors] != positives  # an item is not its own positive
        return anchors[keep], positives[keep], negatives[keep]

    def extra_repr(self) -> str:
        """Margin and mining."""
        return f"margin={self.margin}, mining={self.mining!r}"


def _class_numbers(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """One number for each finest class of the batch by its path; unknown ones get a number of their own."""
    same = batch.references is batch.embeddings
    rows = batch.labels if same else torch.cat([batch.labels, batch.reference_labels])
    numbers = torch.unique(rows, dim=0, return_inverse=True)[1]
    unknown = rows[:, -1] == UNKNOWN
    numbers = torch.where(unknown, len(rows) + torch.arange(len(rows), device=rows.device), numbers)
    # The same tensor twice would make the miner drop the diagonal: here `own` decides.
    return (
        (numbers, numbers.clone()) if same else (numbers[: len(batch.labels)], numbers[len(batch.labels) :])
    )
