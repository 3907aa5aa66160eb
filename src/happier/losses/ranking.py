"""Scores and levels -> a ranking loss that back-propagates through its closed-form gradient."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final, Literal

import torch

from happier.errors import HappierError, OptionError, did_you_mean
from happier.losses._chunked import ranking_chunked
from happier.losses._kernel import ranking_kernel
from happier.losses.objective import Objective
from happier.losses.surrogate import Surrogate

LossEngine = Literal["kernel", "torch", "triton"]
Values = tuple[torch.Tensor, torch.Tensor | None]


def ranking_loss(
    scores: torch.Tensor,
    levels: torch.Tensor,
    objective: Objective,
    surrogate: Surrogate,
    *,
    engine: LossEngine | None = None,
) -> torch.Tensor:
    """One minus the mean objective of the queries for which it is defined; a differentiable 0 without any.

    Args:
        scores: float32 or float64 ``[Q, N]``, query by item.
        levels: integers ``[Q, N]``, the level 0..L that query and item share, -1 where the item is not
            retrieved.
        objective: what the ranks are for.
        surrogate: how ranks are made smooth.
        engine: ``"kernel"`` (compiled, CPU only), ``"triton"`` (compiled, GPU only) or ``"torch"`` (any
            device); by default the device decides.

    Raises:
        OptionError: an unknown engine, or one that does not run on the device of the scores.
    """
    chosen = engine or _default_engine(scores)
    if chosen not in ENGINES:
        known = ("kernel", "torch", "triton")
        hint = did_you_mean(chosen, known)
        raise OptionError(f"unknown engine {chosen!r}{hint}; one of {', '.join(known)}")
    if chosen == "kernel" and scores.device.type != "cpu":
        raise OptionError(f"engine 'kernel' runs on the CPU, the scores are on {scores.device}: leave it out")
    if torch.compiler.is_compiling() and chosen == "torch":
        return _traced(scores, levels, objective, surrogate)
    apply: Any = _RankingLoss.apply
    if torch.compiler.is_compiling():
        # The compiled kernels cannot be traced; the code around them can.
        apply = torch.compiler.disable(apply)  # type: ignore[no-untyped-call]
    loss: torch.Tensor = apply(scores, levels, objective, surrogate, chosen)
    return loss


def _default_engine(scores: torch.Tensor) -> str:
    if scores.device.type == "cpu":
        return "kernel"
    # Triton computes in float32; what is being compiled must stay one graph.
    fits = scores.dtype == torch.float32 and not torch.compiler.is_compiling()
    return _TRITON_OR_TORCH if scores.device.type == "cuda" and fits else "torch"


def _triton(*arguments: Any, need_gradient: bool) -> Values:
    from happier.losses.triton_kernel import ranking_triton

    return ranking_triton(*arguments, need_gradient=need_gradient)


def _triton_or_torch(*arguments: Any, need_gradient: bool) -> Values:
    """Triton where it works; torch, after one warning, where it is not installed or cannot compile."""
    if not _TRITON_FAILED:
        try:
            return _triton(*arguments, need_gradient=need_gradient)
        except Exception as error:  # noqa: BLE001, whatever the compiler or the driver raises
            _TRITON_FAILED.append(error)
            reason = str(error).strip().splitlines() or [type(error).__name__]
            warnings.warn(
                f"the Triton kernels do not run here ({reason[0]}): the ranking losses use plain torch, "
                "which is slower",
                RuntimeWarning,
                stacklevel=2,
            )
    return ranking_chunked(*arguments, need_gradient=need_gradient)


_TRITON_FAILED: list[Exception] = []
_TRITON_OR_TORCH: Final = "triton or torch"
ENGINES: Final[dict[str, Callable[..., Values]]] = {
    "kernel": ranking_kernel,
    "torch": ranking_chunked,
    "triton": _triton,
    _TRITON_OR_TORCH: _triton_or_torch,
}


def _traced(
    scores: torch.Tensor, levels: torch.Tensor, objective: Objective, surrogate: Surrogate
) -> torch.Tensor:
    """The torch engine for ``torch.compile``: a value whose derivative by the scores is the closed form."""
    values, gradient = ranking_chunked(scores, levels, objective, surrogate, need_gradient=True)
    assert gradient is not None
    linear = (scores * gradient).sum()
    return _mean_loss(values, objective).to(scores.dtype) + (linear - linear.detach())


def _mean_loss(values: torch.Tensor, objective: Objective) -> torch.Tensor:
    valid = objective.valid
    return torch.where(valid, 1 - values, 0.0).sum() / valid.sum().clamp(min=1)


class _RankingLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        levels: torch.Tensor,
        objective: Objective,
        surrogate: Surrogate,
        engine: str,
    ) -> torch.Tensor:
        values, gradient = ENGINES[engine](
            scores, levels, objective, surrogate, need_gradient=ctx.needs_input_grad[0]
        )
        if gradient is not None:
            # The scores only tie a second derivative, if one is asked for, to its error.
            ctx.save_for_backward(gradient, scores)
        return _mean_loss(values, objective).to(scores.dtype)

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
