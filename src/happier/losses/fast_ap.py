"""FastAP and SoftBin-AP: average precision from soft histograms of the scores."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F

from happier.errors import OptionError
from happier.losses.retrieval_loss import Batch, RetrievalLoss


@final
class FastAPLoss(RetrievalLoss):
    """One minus average precision at the finest level, where ranks come from a histogram of the scores.

        L = 1 - 1/|P| sum_b h+_b H+_b / H_b
        h_b = sum_j max(0, 1 - |s_j - c_b| bins / 2),    c_b = 1 - 2 b / bins,    b = 0..bins

    where ``h+`` counts the items ``P`` of the query's finest class, ``h`` all items, and ``H`` are sums over
    the bins of higher scores and ``b`` itself. The query is not retrieved for itself.

    Relations: the same function of unit vectors as the histogram of squared distances in the FastAP paper
    (10 bins) and as the quantised AP of Revaud et al., there with 20 centres, which is ``bins=19``: the names
    ``fast_ap`` and ``softbin_ap``. `SmoothAPLoss` compares pairs of scores instead.

    Args:
        bins: intervals between -1 and 1.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]`` of which the whole path counts; a scalar comes
        back.

    Reference:
        Cakir et al., Deep Metric Learning to Rank, CVPR 2019; Revaud et al., Learning with Average Precision:
        Training Image Retrieval with a Listwise Loss, ICCV 2019.

    >>> import torch
    >>> float(FastAPLoss()(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])))
    0.0
    """

    def __init__(self, *, bins: int = 10) -> None:
        super().__init__()
        if not isinstance(bins, int) or bins < 1:
            raise OptionError(f"bins must be a whole number of 1 or more, got {bins!r}")
        self.bins = bins

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        scores, matches = batch.scores(), batch.fine_matches()
        positive, retrieved = (matches == 1).to(scores.dtype), (matches >= 0).to(scores.dtype)
        centres = torch.linspace(1, -1, self.bins + 1, dtype=scores.dtype, device=scores.device)
        hits, items = [], []
        for centre in centres:
            share = F.relu(1 - (scores - centre).abs() * (self.bins / 2))  # [B, R]
            hits.append((share * positive).sum(1))
            items.append((share * retrieved).sum(1))
        found = torch.stack(hits, dim=1)  # [B, bins + 1]
        above, all_above = found.cumsum(1), torch.stack(items, dim=1).cumsum(1)
        positives = positive.sum(1)
        precision = above / torch.where(all_above > 0, all_above, torch.ones_like(all_above))
        losses = 1 - (found * precision).sum(1) / positives.clamp(min=1)
        valid = positives > 0
        return (losses * valid).sum() / valid.sum().clamp(min=1)

    def extra_repr(self) -> str:
        """Bins."""
        return f"bins={self.bins}"
