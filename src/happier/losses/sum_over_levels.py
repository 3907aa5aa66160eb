"""The same loss on every level of the tree, summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import nn

from happier.errors import OptionError
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class SumOverLevels(RetrievalLoss):
    """A weighted sum of one loss per level: the paper's Sigma variants of the fine-level losses.

        L = sum_l w_l L_l(v, labels down to level l)

    where ``L_l`` is an instance of its own, with its own proxies if it has some, for which level ``l`` is the
    finest.

    Relations: with a single level it is the loss itself. `HAPLoss` ranks all levels at once instead.

    Args:
        factory: called with the number of classes of each level; returns that level's loss.
        num_classes: classes of each level, coarse first: ``taxonomy.num_classes``.
        weights: one for each level, coarse first; by default the same for all, by ``reduction``.
        reduction: "mean", a weight of 1/L each, or "sum", a weight of 1 each, as in the paper's recipes.
            Under Adam both take the same steps (but for weight decay); under SGD a sum steps L times as far.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Ramzi et al., ECCV 2022, section 4.1.

    >>> import torch
    >>> from happier.losses import NormSoftmaxLoss
    >>> loss = SumOverLevels(lambda classes: NormSoftmaxLoss(classes, 4), num_classes=(2, 3))
    >>> [len(proxies) for proxies in loss.proxy_parameters()]
    [2, 3]
    >>> loss(torch.eye(4)[:3], torch.tensor([[0, 0], [0, 1], [1, 2]])).shape
    torch.Size([])
    """

    def __init__(
        self,
        factory: Callable[[int], RetrievalLoss],
        num_classes: Sequence[int],
        *,
        weights: Sequence[float] | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        depth = len(num_classes)
        if depth == 0:
            raise OptionError("num_classes must name at least one level")
        if reduction not in ("mean", "sum"):
            raise OptionError(f"reduction must be mean or sum, got {reduction!r}")
        equal = (1 / depth if reduction == "mean" else 1.0,) * depth
        self.weights = tuple(map(float, weights)) if weights is not None else equal
        if len(self.weights) != depth or not all(math.isfinite(w) and w >= 0 for w in self.weights):
            raise OptionError(
                f"weights must be one number of 0 or more for each of the {depth} levels, "
                f"got {list(self.weights)}"
            )
        self.losses = nn.ModuleList(factory(int(classes)) for classes in num_classes)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        if batch.labels.shape[1] != len(self.losses):
            raise OptionError(f"labels have {batch.labels.shape[1]} levels, this loss {len(self.losses)}")
        total = batch.zero()
        for level, (loss, weight) in enumerate(zip(self.losses, self.weights, strict=True), start=1):
            assert isinstance(loss, RetrievalLoss)
            total = total + weight * loss.compute(batch.down_to(level))
        return total

    def extra_repr(self) -> str:
        """Weights."""
        return f"weights={self.weights}"
