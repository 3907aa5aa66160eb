"""Speed and memory of the ranking losses: the compiled kernel, chunked torch, and the straightforward form.

The straightforward form is what a direct reading of the formula gives, and what published implementations
build: tensors of batch x batch x batch and autograd through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from happier.bench.measure import cpu_seconds, peak_mebibytes
from happier.errors import OptionError
from happier.extras import needs_extra
from happier.losses import (
    HAPLoss,
    NormSoftmaxLoss,
    ROADMAPLoss,
    SmoothAPLoss,
    SupNDCGLoss,
    SupRecallLoss,
)
from happier.losses.hap import level_counts
from happier.losses.objective import AP, NDCG, Objective
from happier.losses.ranking import LossEngine
from happier.losses.retrieval_loss import RetrievalLoss
from happier.losses.surrogate import SigmoidSurrogate, StepSurrogate, Surrogate
from happier.progress import Status, no_status
from happier.relevance import HierarchyRelevance, LevelRelevance
from happier.taxonomy import shared_levels

CUBE: Final = "batch x batch x batch"
CHUNKED: Final = "chunked torch"
KERNEL: Final = "kernel"
TRITON: Final = "Triton"
PML: Final = "pytorch-metric-learning"

DIM: Final = 512
PER_CLASS: Final = 4


@dataclass(frozen=True)
class LossSpeed:
    """One loss in one form, forward and backward, on one core or on a GPU.

    Attributes:
        loss: name of the loss.
        form: how it is computed.
        batch: embeddings in the batch.
        levels: levels of the tree.
        seconds: CPU time, or time of the GPU, the best of several runs.
        mebibytes: peak memory beyond what was in use before; None where the system does not report it.
        speedup: time of the first form measured for this loss and batch over this one's; None for the first.
    """

    loss: str
    form: str
    batch: int
    levels: int
    seconds: float
    mebibytes: float | None
    speedup: float | None


@dataclass(frozen=True)
class StepShare:
    """What the H-AP loss adds to a training step of a backbone.

    Attributes:
        backbone: name of the model.
        size: side of the images in pixels.
        batch: images of the step; the model's time is measured on ``measured`` of them and scaled.
        measured: images measured.
        model_seconds: CPU time of forward and backward of the model for the whole batch.
        loss_seconds: CPU time of the loss for the whole batch.
        share: the loss's part of both.
    """

    backbone: str
    size: int
    batch: int
    measured: int
    model_seconds: float
    loss_seconds: float
    share: float


def toy_batch(batch: int, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random unit vectors, four to a finest class, in two coarsest classes, as in the recipe for products."""
    generator = torch.Generator().manual_seed(0)
    embeddings = F.normalize(torch.randn(batch, DIM, generator=generator), dim=1)
    classes = torch.arange(batch) // PER_CLASS
    # Halved at each coarser level, but never below two classes.
    columns = [classes]
    for level in range(levels - 1, 0, -1):
        width = max(2, 2 ** (level - 1) * 2)
        columns.append(columns[-1] % width if level > 1 else columns[-1] % 2)
    return embeddings, torch.stack(columns[::-1], dim=1)


def measure_losses(
    sizes: Sequence[int],
    depths: Sequence[int],
    *,
    device: str = "cpu",
    status: Status = no_status,
) -> Iterator[LossSpeed]:
    """All forms of all losses, in sequence in this process.

    Args:
        sizes: batch sizes; the straightforward form runs up to 256, chunked torch up to 1024.
        depths: numbers of levels for the smallest batch; larger batches have the first.
        device: ``"cpu"`` or ``"cuda"``.
        status: called with what is measured next.

    Raises:
        OptionError: another device, or one that is not there.
    """
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise OptionError(f"device must be cpu, or cuda where there is a GPU, got {device!r}")
    with _one_core():
        for batch in sizes:
            for levels in depths if batch == min(sizes) else depths[:1]:
                yield from _measure("H-AP", _hap_forms(batch, device), batch, levels, device, status)
        batch, levels = min(sizes), depths[0]
        for name, forms in _other_losses(batch, device).items():
            yield from _measure(name, forms, batch, levels, device, status)


def measure_step(
    batch: int = 256, *, images: int = 8, size: int = 224, status: Status = no_status
) -> StepShare:
    """Share of the H-AP loss in a step of a ResNet-50, both on one core."""
    with needs_extra("bench"):
        import timm
    with _one_core():
        status(f"ResNet-50 at {size} px, {images} images")
        model = timm.create_model("resnet50", pretrained=False, num_classes=0)
        pictures = torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(0))

        def step() -> None:
            model.zero_grad()
            model(pictures).sum().backward()

        model_seconds = cpu_seconds(step, least=2) / images * batch
        embeddings, labels = toy_batch(batch, 2)
        loss_seconds = cpu_seconds(_step_of(HAPLoss(), embeddings, labels))
    share = loss_seconds / (loss_seconds + model_seconds)
    return StepShare("resnet50", size, batch, images, model_seconds, loss_seconds, share)


def as_json(measurements: Sequence[LossSpeed], share: StepShare | None) -> dict[str, Any]:
    """Everything measured, as plain values."""
    return {
        "torch": torch.__version__,
        "measurements": [asdict(entry) for entry in measurements],
        "step": asdict(share) if share else None,
    }


def _hap_forms(batch: int, device: str = "cpu") -> dict[str, Callable[[], Any]]:
    forms: dict[str, Callable[[], Any]] = {}
    if batch <= 256:
        forms[CUBE] = lambda: _Cube(lambda n: Objective.ap(n, HierarchyRelevance()(n)), StepSurrogate())
    if batch <= 1024:
        forms[CHUNKED] = lambda: HAPLoss(engine="torch")
    if device == "cpu":
        forms[KERNEL] = lambda: HAPLoss(engine="kernel")
    else:
        forms[TRITON] = lambda: HAPLoss(engine="triton")
    return forms


def _other_losses(batch: int, device: str = "cpu") -> dict[str, dict[str, Callable[[], Any]]]:
    with needs_extra("bench"):
        from pytorch_metric_learning import losses as pml

    def ap(counts: torch.Tensor) -> Objective:
        return Objective.ap(counts, LevelRelevance([1.0])(counts))

    def ndcg(counts: torch.Tensor) -> Objective:
        return Objective.ndcg(counts, batch)

    def recall(counts: torch.Tensor) -> Objective:
        return Objective.recall(counts, (1, 2, 4, 8, 16), 1.0)

    classes = batch // PER_CLASS
    step, sigmoid = StepSurrogate(), SigmoidSurrogate()
    ranking: dict[str, tuple[_Cube, Callable[[LossEngine], RetrievalLoss]]] = {
        "Smooth-AP": (_Cube(ap, sigmoid, fine=True), lambda engine: SmoothAPLoss(engine=engine)),
        "ROADMAP": (_Cube(ap, step, fine=True), lambda engine: ROADMAPLoss(engine=engine)),
        "SupRecall": (_Cube(recall, step, fine=True), lambda engine: SupRecallLoss(engine=engine)),
        "SupNDCG": (
            _Cube(lambda counts: Objective.ndcg(counts, batch), step),
            lambda engine: SupNDCGLoss(engine=engine),
        ),
    }
    result: dict[str, dict[str, Callable[[], Any]]] = {
        name: {
            CUBE: partial(_same, cube),
            CHUNKED: partial(make, "torch"),
            **({KERNEL: partial(make, "kernel")} if device == "cpu" else {TRITON: partial(make, "triton")}),
        }
        for name, (cube, make) in ranking.items()
    }
    result["Smooth-AP"] = {PML: lambda: _Fine(pml.SmoothAPLoss()), **result["Smooth-AP"]}
    result["NormSoftmax"] = {
        PML: lambda: _Fine(pml.NormalizedSoftmaxLoss(classes, DIM)),
        "this package": lambda: NormSoftmaxLoss(classes, DIM),
    }
    return result


def _measure(
    name: str,
    forms: dict[str, Callable[[], Any]],
    batch: int,
    levels: int,
    device: str,
    status: Status,
) -> Iterator[LossSpeed]:
    embeddings, labels = (tensor.to(device) for tensor in toy_batch(batch, levels))
    first: float | None = None
    for form, make in forms.items():
        status(f"{name}, {form}, batch {batch}, {levels} levels")
        loss = make()
        if isinstance(loss, torch.nn.Module):
            loss.to(device)
        step = _step_of(loss, embeddings, labels)
        step()  # compiles, warms caches
        mebibytes: float | None
        if device == "cuda":
            seconds, mebibytes = _cuda_seconds_and_mebibytes(step)
        else:
            seconds, mebibytes = cpu_seconds(step), peak_mebibytes(step)
        speedup = first / seconds if first is not None else None
        first = seconds if first is None else first
        yield LossSpeed(name, form, batch, levels, seconds, mebibytes, speedup)


def _cuda_seconds_and_mebibytes(step: Callable[[], None], runs: int = 20) -> tuple[float, float]:
    """Best time of the GPU over several runs, and memory beyond what was in use before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    best = float("inf")
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / 1000)
    return best, (torch.cuda.max_memory_allocated() - before) / 2**20


def _step_of(loss: Any, embeddings: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    leaf = embeddings.clone().requires_grad_()

    def step() -> None:
        leaf.grad = None
        loss(leaf, labels).backward()

    return step


@contextmanager
def _one_core() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _same(loss: _Cube) -> _Cube:
    return loss


class _Fine:
    """A loss of pytorch-metric-learning on the finest labels."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss

    def __call__(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.loss(embeddings, labels[:, -1])
        return value


class _Cube:
    """A ranking loss in the straightforward form.

    Args:
        objective: makes the objective from the items of each level.
        surrogate: how ranks are made smooth.
        fine: look at the finest class only.
    """

    def __init__(
        self, objective: Callable[[torch.Tensor], Objective], surrogate: Surrogate, *, fine: bool = False
    ) -> None:
        self.objective, self.surrogate, self.fine = objective, surrogate, fine

    def __call__(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        levels = shared_levels(labels, labels)
        depth = labels.shape[1]
        if self.fine:
            levels, depth = (levels == depth).to(torch.int8), 1
        levels.fill_diagonal_(-1)
        objective = self.objective(level_counts(levels, depth))
        return cube_loss(embeddings @ embeddings.T, levels, objective, self.surrogate)


def cube_loss(
    scores: torch.Tensor, levels: torch.Tensor, objective: Objective, surrogate: Surrogate
) -> torch.Tensor:
    """The ranking loss of `happier.losses` written as its formula: autograd through ``[Q, N, N]`` tensors."""
    weights = objective.weights.to(scores.dtype).gather(1, levels.clamp(min=0).long())  # [Q, N]
    t = scores[:, None, :] - scores[:, :, None]  # [Q, k, j]
    other, own = levels[:, None, :], levels[:, :, None]
    seen = (other >= 0) & ~torch.eye(levels.shape[1], dtype=torch.bool, device=levels.device)
    if isinstance(surrogate, StepSurrogate):
        p = surrogate
        sigmoid = torch.sigmoid(t / p.tau)
        line = p.rho * (t - p.delta) + p.line_offset
        down = torch.where(t > p.delta, line, torch.where(t > 0, sigmoid + p.start, sigmoid))
        up = torch.where(t > 0, (p.nu * t + p.mu).clamp(max=1.0), p.gamma * t)
        ahead = (t > 0).to(t.dtype)
        ranks = torch.where(other < own, down, ahead)
        graded = torch.where(other > own, up, ahead)
    else:
        ranks = graded = torch.sigmoid(t / surrogate.tau)
    rank = 1 + (ranks * seen).sum(2)
    if objective.kind == AP:
        least = torch.minimum(weights[:, None, :], weights[:, :, None])
        gain = (weights + (graded * least * seen).sum(2)) / rank
    elif objective.kind == NDCG:
        gain = weights / torch.log2(1 + rank)
    else:
        inside = torch.sigmoid((objective.cuts - rank[:, :, None]) / objective.temperature)
        gain = (objective.cut_weights[:, None, :] * inside).sum(2).to(rank.dtype)
    values = (gain * (levels > 0)).sum(1)
    return 1 - values[objective.valid].mean()
