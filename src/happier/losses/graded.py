"""H-AP as a loss for any graded relevance: a number for each pair of query and item."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from happier.errors import InputError
from happier.losses.objective import Objective
from happier.losses.option_checks import check_all
from happier.losses.ranking import LossEngine, ranking_loss
from happier.losses.surrogate import Surrogate, choose_surrogate
from happier.unit_length import warn_of_batch


@final
class GradedHAPLoss(nn.Module):
    """One minus a smooth lower bound of H-AP for any relevance, the mean over the queries.

        L = 1 - sum_k hrank(k) / rank(k) / sum_k rel(k)
        rank(k)  = 1 + sum_{rel(j) < rel(k)} H_down(s_j - s_k) + sum_{rel(j) >= rel(k)} H(s_j - s_k)
        hrank(k) = rel(k) + sum_{rel(j) > rel(k)} rel(k) H_up(s_j - s_k)
                          + sum_{rel(j) <= rel(k)} rel(j) H(s_j - s_k)

    where ``k`` runs over the items of positive relevance, ``j != k`` over all items, ``s`` are the cosines
    with the query, ``H`` is the step (``H(0) = 0``, no gradient) and ``H_down``, ``H_up`` are those of
    `StepSurrogate`. The relevance may be the share of common attributes, the similarity of two texts, a
    number of clicks, or a sum over several trees; only its ratios within a query matter. The loss is at least
    ``1 - H-AP`` (`happier.graded_h_ap`) for every query. A query without relevant items adds nothing.

    Relations: `HAPLoss` where relevance is a strictly rising function of the level that two items share.

    Args:
        preset: ``"paper"`` or ``"authors"``, whose values the surrogate has.
        surrogate: a `StepSurrogate` with other values, or a `SigmoidSurrogate`, instead of ``preset``.
        engine: ``"kernel"``, ``"triton"`` or ``"torch"``; by default the device decides.

    Shapes:
        embeddings ``[B, D]`` unit vectors, relevance ``[B, B]`` or, with a reference set, ``[B, R]``; a
        scalar comes back.

    Reference:
        Ramzi et al., Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022, whose
        conclusion proposes relevances that do not come from a tree.

    >>> import torch
    >>> embeddings = torch.nn.functional.normalize(torch.eye(3) + 0.1, dim=1).requires_grad_()
    >>> relevance = torch.tensor([[0.0, 0.7, 0.2], [0.7, 0.0, 0.0], [0.2, 0.0, 0.0]])
    >>> loss = GradedHAPLoss()(embeddings, relevance)
    >>> loss.backward()
    >>> loss.shape
    torch.Size([])
    """

    def __init__(
        self,
        preset: str = "paper",
        *,
        surrogate: Surrogate | None = None,
        engine: LossEngine | None = None,
    ) -> None:
        super().__init__()
        self.surrogate = choose_surrogate(surrogate, preset)
        self.engine = engine

    def forward(
        self,
        embeddings: torch.Tensor,
        relevance: torch.Tensor,
        ref_embeddings: torch.Tensor | None = None,
        *,
        query_positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The loss of a batch, against itself or against a reference set.

        Args:
            embeddings: queries ``[B, D]``, unit vectors.
            relevance: ``[B, R]``, finite and 0 or more; of query to item.
            ref_embeddings: the set ``[R, D]`` to rank for each query; None: the batch itself, where no query
                is retrieved for itself, whatever the diagonal of the relevance.
            query_positions: ``[B]``, the place of each query in the reference set (-1: not there), so that it
                is not retrieved for itself.

        Raises:
            InputError: shapes that do not fit, or a relevance that is negative or not finite (on CUDA a
                device-side assertion, which does not wait).
        """
        references = embeddings if ref_embeddings is None else ref_embeddings
        _check_shapes(embeddings, relevance, references)
        warn_of_batch(self, embeddings)
        if ref_embeddings is None:
            query_positions = torch.arange(len(embeddings), device=embeddings.device)
        with torch.autocast(embeddings.device.type, enabled=False):
            kind = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
            scores = embeddings.to(kind) @ references.to(device=embeddings.device, dtype=kind).T
            relevance = relevance.to(scores.device)
            check_all(
                relevance.isfinite() & (relevance >= 0),
                "relevance must be finite numbers of 0 or more",
                InputError,
            )
            return graded_hap_loss(scores, relevance, query_positions, self.surrogate, engine=self.engine)

    def extra_repr(self) -> str:
        """Surrogate."""
        return f"{self.surrogate}"


def graded_hap_loss(
    scores: torch.Tensor,
    relevance: torch.Tensor,
    own: torch.Tensor | None,
    surrogate: Surrogate,
    *,
    engine: LossEngine | None,
) -> torch.Tensor:
    """One minus the mean smooth H-AP of scores and checked relevances, both ``[B, R]``.

    Args:
        scores: of query and item.
        relevance: on the same device.
        own: ``[B]``, the item that is the query itself (-1: none), or None.
        surrogate: of the step.
        engine: see `GradedHAPLoss`.
    """
    left_out = None
    if own is not None:
        columns = torch.arange(scores.shape[1], device=scores.device)
        left_out = columns == own.to(scores.device)[:, None]
    levels, objective = Objective.graded_ap(relevance, left_out)
    return ranking_loss(scores, levels, objective, surrogate, engine=engine)


def _check_shapes(embeddings: torch.Tensor, relevance: torch.Tensor, references: torch.Tensor) -> None:
    for name, tensor in (("embeddings", embeddings), ("ref_embeddings", references)):
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 2 or not tensor.is_floating_point():
            what = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise InputError(f"{name} must be a float tensor [items, dimensions], got {what}")
    if embeddings.shape[1] != references.shape[1]:
        raise InputError(
            f"embeddings have {embeddings.shape[1]} dimensions, ref_embeddings {references.shape[1]}: "
            "they must agree"
        )
    wanted = (len(embeddings), len(references))
    if not isinstance(relevance, torch.Tensor) or tuple(relevance.shape) != wanted:
        what = tuple(relevance.shape) if isinstance(relevance, torch.Tensor) else type(relevance).__name__
        raise InputError(f"relevance must be a tensor [queries, items] of shape {wanted}, got {what}")
