"""Scores and levels -> a ranking loss that back-propagates through its closed-form gradient."""

from __future__ import annotations

from typing import Any, Literal

import torch

from happier.errors import HappierError, OptionError
from happier.losses._chunked import ranking_chunked
from happier.losses._kernel import ranking_kernel
from happier.losses.objective import Objective
from happier.losses.options import nearest
from happier.losses.surrogate import Surrogate

Form = Literal["kernel", "torch"]
FORMS = {"kernel": ranking_kernel, "torch": ranking_chunked}


def ranking_loss(
    scores: torch.Tensor,
    levels: torch.Tensor,
    objective: Objective,
    surrogate: Surrogate,
    *,
    form: Form | None = None,
) -> torch.Tensor:
    """One minus the mean objective of the queries for which it is defined; a differentiable 0 without any.

    Args:
        scores: float32 or float64 ``[Q, N]``, query by item.
        levels: int8 ``[Q, N]``, the level 0..L that query and item share, -1 where the item is not retrieved.
        objective: what the ranks are for.
        surrogate: how ranks are made smooth.
        form: ``"kernel"`` (compiled, CPU only) or ``"torch"`` (any device); by default the device decides.

    Raises:
        OptionError: an unknown form, or the kernel for scores on an accelerator.
    """
    chosen = form or ("kernel" if scores.device.type == "cpu" else "torch")
    if chosen not in FORMS:
        raise OptionError(f"unknown form {chosen!r}{nearest(chosen, FORMS)}; one of {', '.join(FORMS)}")
    if chosen == "kernel" and scores.device.type != "cpu":
        raise OptionError(f"form 'kernel' runs on the CPU, the scores are on {scores.device}: leave form out")
    apply: Any = _RankingLoss.apply
    if torch.compiler.is_compiling():
        # Neither form can be traced; the code around it can.
        apply = torch.compiler.disable(apply)  # type: ignore[no-untyped-call]
    loss: torch.Tensor = apply(scores, levels, objective, surrogate, chosen)
    return loss


class _RankingLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        levels: torch.Tensor,
        objective: Objective,
        surrogate: Surrogate,
        form: Form,
    ) -> torch.Tensor:
        values, gradient = FORMS[form](
            scores, levels, objective, surrogate, need_gradient=ctx.needs_input_grad[0]
        )
        if gradient is not None:
            # The scores only tie a second derivative, if one is asked for, to its error.
            ctx.save_for_backward(gradient, scores)
        valid = objective.valid
        loss = (valid.sum() - values[valid].sum()) / valid.sum().clamp(min=1)
        return loss.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient, scores = ctx.saved_tensors
        return _Scale.apply(outputs[0], gradient, scores), None, None, None, None


class _Scale(torch.autograd.Function):
    """The backward pass as an operation, so that differentiating it again can say why it cannot."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ARG004
        output: torch.Tensor,
        gradient: torch.Tensor,
        scores: torch.Tensor,  # noqa: ARG004
    ) -> torch.Tensor:
        return gradient * output

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> tuple[None, None, None]:  # noqa: ARG004
        raise HappierError(
            "the ranking losses have a closed-form first derivative only and cannot be differentiated twice; "
            "drop create_graph=True, or the gradient penalty, for this loss"
        )
