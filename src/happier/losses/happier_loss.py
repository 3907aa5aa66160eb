"""HAPPIER: the H-AP loss and its clustering term."""

from __future__ import annotations

from typing import Literal, final

import torch

from happier.errors import OptionError
from happier.losses.hap import HAPLoss, SigmoidHAPLoss
from happier.losses.loss import Batch, RetrievalLoss
from happier.losses.norm_softmax import ClusterLoss
from happier.losses.options import nearest
from happier.losses.ranking import Form
from happier.relevance import Relevance

_SURROGATES = ("step", "sigmoid")


@final
class HAPPIERLoss(RetrievalLoss):
    """The paper's loss: a smooth bound of 1 - H-AP within the batch, and clusters that hold across batches.

        L = (1 - weight) L_HAP + weight L_clust

    where ``L_HAP`` is `HAPLoss` and ``L_clust`` is `ClusterLoss` on the finest classes; ``weight`` is the
    paper's lambda. A reference set takes part in ``L_HAP`` only.

    Relations: ``weight=0`` is `HAPLoss`, ``weight=1`` is `NormSoftmaxLoss`; ``alpha`` 5 (products) or 3
    (species) is the paper's HAPPIER_F; ``surrogate="sigmoid"`` puts `SigmoidHAPLoss` in the place of
    `HAPLoss`.

    Args:
        num_classes: number of finest classes C; labels of the last column are 0..C-1.
        dim: size of the embeddings D.
        alpha: see `HAPLoss`.
        weight: lambda, 0 to 1.
        sigma: temperature of the clustering term.
        surrogate: ``"step"`` for the paper's bounds, ``"sigmoid"`` for the ablation's.
        preset: see `HAPLoss`, as all that follows; ``"sigmoid"`` has ``tau`` only.
        relevance: instead of ``alpha``.
        tau: temperature of the ranks.
        rho: slope beyond the margin.
        delta: margin.
        start: jump at 0.
        offset: value at the margin.
        gamma: slope of ``H_up`` below 0.
        nu: slope of ``H_up`` above 0.
        mu: value of ``H_up`` just above 0.
        hrank: whether the hierarchical rank has a surrogate.
        include_query: leave each query in its own retrieval set.
        form: ``"kernel"`` or ``"torch"``; by default the device decides.
        generator: where the first proxies come from; None uses torch's global one.

    Shapes:
        embeddings ``[B, D]`` unit vectors, labels ``[B, L]``; a scalar comes back.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022.

    >>> import torch
    >>> loss = HAPPIERLoss(num_classes=3, dim=4, alpha=1.0, weight=0.1)
    >>> embeddings = torch.eye(4).requires_grad_()
    >>> loss(embeddings, torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]])).backward()
    >>> embeddings.grad.shape
    torch.Size([4, 4])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        alpha: float = 1.0,
        weight: float = 0.1,
        *,
        sigma: float = 0.05,
        surrogate: Literal["step", "sigmoid"] = "step",
        preset: str = "paper",
        relevance: Relevance | None = None,
        tau: float | None = None,
        rho: float | None = None,
        delta: float | None = None,
        start: float | None = None,
        offset: float | None = None,
        gamma: float | None = None,
        nu: float | None = None,
        mu: float | None = None,
        hrank: bool | None = None,
        include_query: bool = False,
        form: Form | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= weight <= 1:
            raise OptionError(f"weight must be in 0..1, got {weight}")
        self.weight = float(weight)
        self.ranking: RetrievalLoss
        if surrogate == "step":
            self.ranking = HAPLoss(
                alpha,
                preset,
                relevance=relevance,
                tau=tau,
                rho=rho,
                delta=delta,
                start=start,
                offset=offset,
                gamma=gamma,
                nu=nu,
                mu=mu,
                hrank=hrank,
                include_query=include_query,
                form=form,
            )
        elif surrogate == "sigmoid":
            steps = {
                "rho": rho,
                "delta": delta,
                "start": start,
                "offset": offset,
                "gamma": gamma,
                "nu": nu,
                "mu": mu,
            }
            if given := [name for name, value in {**steps, "hrank": hrank}.items() if value is not None]:
                raise OptionError(f"surrogate='sigmoid' has tau only, got {', '.join(given)}")
            self.ranking = SigmoidHAPLoss(
                alpha,
                relevance=relevance,
                tau=0.01 if tau is None else tau,
                include_query=include_query,
                form=form,
            )
        else:
            raise OptionError(
                f"unknown surrogate {surrogate!r}{nearest(surrogate, _SURROGATES)}; "
                f"one of {', '.join(_SURROGATES)}"
            )
        self.cluster = ClusterLoss(num_classes, dim, sigma=sigma, generator=generator)

    def compute(self, batch: Batch) -> torch.Tensor:
        """The loss of a checked batch."""
        return (1 - self.weight) * self.ranking.compute(batch) + self.weight * self.cluster.compute(batch)

    def extra_repr(self) -> str:
        """Weight."""
        return f"weight={self.weight}"
