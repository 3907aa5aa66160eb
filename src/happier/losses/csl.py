"""CSL, Cross-Scale Learning: proxies that carry their path, and a margin for each level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
import torch.nn.functional as F

from happier.errors import InputError, OptionError
from happier.losses.option_checks import check_positive
from happier.losses.proxies import Proxies
from happier.losses.retrieval_loss import Batch, RetrievalLoss
from happier.taxonomy import Taxonomy, shared_levels

# Fine to coarse, by the number of levels, as the HAPPIER authors set them.
_MARGINS = {1: (0.25,), 2: (0.25, 0.45), 3: (0.25, 0.35, 0.45), 7: (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75)}


@final
class CSLLoss(RetrievalLoss):
    """Cross-Scale Learning: farther classes must be farther, by a margin for each level.

        L = sum_l mean_v softplus( LSE_{p differing from v at level l}(c s(v, p)) - c s(v, p_v) + c m_l )

    where ``p_v`` is the proxy of the finest class of ``v``, ``s`` the cosine, ``LSE`` the logarithm of the
    sum of exponentials and ``c`` the scale. Items whose finest class is unknown add nothing. Reference sets
    and mined pairs play no part.

    Relations: `NormSoftmaxLoss` separates finest classes only; ``SumOverLevels`` of it has proxies for every
    level, CSL only for the finest.

    Args:
        taxonomy: the classes of the training set; labels of the loss are rows of ``taxonomy.codes``.
        dim: size of the embeddings D.
        margins: one for each level, coarse to fine, as everywhere here; by default .45/.25 for two levels,
            .45/.35/.25 for three, .75 to .15 for seven, evenly from .45 to .25 for other depths.
        scale: c.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Sun et al., Dynamic Metric Learning: Towards a Scalable Metric Space to Accommodate Multiple Semantic
        Scales, CVPR 2021.

    >>> import torch
    >>> from happier import Taxonomy
    >>> tree = Taxonomy.from_labels([[0, 0], [0, 1], [1, 2]])
    >>> loss = CSLLoss(tree, dim=4)
    >>> loss(torch.eye(4)[:3], torch.from_numpy(tree.codes)).shape
    torch.Size([])
    """

    paths: torch.Tensor

    def __init__(
        self,
        taxonomy: Taxonomy,
        dim: int,
        *,
        margins: Sequence[float] | None = None,
        scale: float = 32.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        known = taxonomy.codes[taxonomy.codes[:, -1] >= 0]
        if not len(known):
            raise InputError("CSL has a proxy for each finest class, and no row has a known finest label")
        paths = known[np.unique(known[:, -1], return_index=True)[1]]  # [C, L], row c is the path of class c
        self.margins = default_margins(taxonomy.depth) if margins is None else tuple(map(float, margins))
        if len(self.margins) != taxonomy.depth:
            raise OptionError(
                f"margins must be one for each of the {taxonomy.depth} levels, coarse to fine, "
                f"got {self.margins}"
            )
        self.scale = check_positive("scale", scale)
        self.proxies = Proxies(len(paths), dim, generator=generator)
        self.register_buffer(
            "paths", torch.from_numpy(paths).to(self.proxies.weight.device), persistent=False
        )

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        if batch.labels.shape[1] != self.paths.shape[1]:
            raise InputError(
                f"labels have {batch.labels.shape[1]} levels, the taxonomy of this loss {self.paths.shape[1]}"
            )
        classes = batch.labels[:, -1]
        known = self.proxies.known(classes)
        logits = self.scale * self.proxies(batch.embeddings)  # [B, C]
        shared = shared_levels(batch.labels, self.paths)
        own = logits.gather(1, classes.clamp(min=0)[:, None]).squeeze(1)
        total = batch.zero()
        for level, margin in enumerate(self.margins, start=1):
            # A large negative number, not -inf: where no class differs, the softplus is a plain 0.
            others = logits.masked_fill(shared >= level, -1e9).logsumexp(1)
            hinge = F.softplus(others - own + self.scale * margin)
            total = total + (hinge * known).sum() / known.sum().clamp(min=1)
        return total

    def extra_repr(self) -> str:
        """Margins and scale."""
        return f"margins={self.margins}, scale={self.scale}"


def default_margins(depth: int) -> tuple[float, ...]:
    """Margins coarse to fine: the authors' for 1, 2, 3 and 7 levels, else evenly from .45 to .25.

    >>> default_margins(3)
    (0.45, 0.35, 0.25)
    """
    if depth in _MARGINS:
        return _MARGINS[depth][::-1]
    return tuple(float(margin) for margin in np.linspace(0.45, 0.25, depth))
