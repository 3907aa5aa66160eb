"""Learned vectors that stand for classes, and the losses that compare with nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from happier.errors import InputError, OptionError
from happier.losses.option_checks import check_all
from happier.taxonomy import UNKNOWN


class Proxies(nn.Module):
    """One learned vector for each class, drawn from U(-1/sqrt(d), 1/sqrt(d)) and used with unit length.

    They stay in float32 when the module is cast to half precision: a small step would be lost on them.

    Args:
        num_classes: number of proxies C.
        dim: their size D.
        generator: where the first values come from; None uses torch's global one.

    Attributes:
        product: type that products with the proxies are computed in; by default that of the embeddings.

    Shapes:
        unit vectors ``[B, D]`` in, cosines ``[B, C]`` out.

    >>> Proxies(5, 3)(torch.eye(3)).shape
    torch.Size([3, 5])
    """

    def __init__(self, num_classes: int, dim: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        for name, value in (("num_classes", num_classes), ("dim", dim)):
            if not isinstance(value, int) or value < 1:
                raise OptionError(f"{name} must be a whole number of 1 or more, got {value!r}")
        self.product: torch.dtype | None = None
        bound = dim**-0.5
        self.weight = nn.Parameter(torch.empty(num_classes, dim).uniform_(-bound, bound, generator=generator))

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Cosines ``[B, C]`` of unit vectors ``[B, D]`` with the proxies."""
        ours, theirs = self.factors(embeddings)
        return (ours @ theirs.T).to(embeddings.dtype)

    def factors(self, embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The embeddings ``[B, D]`` and the unit proxies ``[C, D]`` in the type of their product."""
        if embeddings.shape[1] != self.weight.shape[1]:
            raise InputError(
                f"embeddings have {embeddings.shape[1]} dimensions, the proxies {self.weight.shape[1]}"
            )
        directions = nn.functional.normalize(self.weight.to(embeddings.dtype), dim=1)
        kind = self.product or embeddings.dtype
        return embeddings.to(kind), directions.to(kind)

    def known(self, classes: torch.Tensor) -> torch.Tensor:
        """Bool ``[B]``: which of the class numbers ``[B]`` are known.

        Raises:
            InputError: a number without a proxy; on CUDA a device-side assertion, which does not wait.
        """
        count = self.weight.shape[0]
        if classes.device.type == "cuda" or torch.compiler.is_compiling():
            inside = (classes < count) & (classes >= UNKNOWN)
            check_all(inside, f"a class number has no proxy: there are {count}, numbered from 0", InputError)
        elif classes.numel():
            low, high = (int(end) for end in torch.aminmax(classes))
            if high >= count or low < UNKNOWN:
                raise InputError(
                    f"the class number {high if high >= count else low} has no proxy: there are {count}, "
                    "numbered from 0 (-1 is unknown); number the training classes with "
                    "Taxonomy.from_labels(labels).codes"
                )
        return classes != UNKNOWN

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Proxies:
        def keep_float32(tensor: torch.Tensor) -> torch.Tensor:
            moved = fn(tensor)
            narrow = moved.dtype in (torch.float16, torch.bfloat16)
            return tensor.to(moved.device) if narrow else moved

        result: Any = super()._apply(keep_float32, recurse)  # type: ignore[no-untyped-call]
        assert isinstance(result, Proxies)
        return result

    def extra_repr(self) -> str:
        """Number and size."""
        return f"num_classes={self.weight.shape[0]}, dim={self.weight.shape[1]}"
