"""From a backbone's features to vectors: one linear layer, or a small network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torch import Tensor, nn
from torch.nn import functional as F

from happier.errors import OptionError

__all__ = ["HEADS", "Head", "HeadOnly", "unit_vectors"]

HEADS: Final = ("linear", "mlp")


@dataclass(frozen=True)
class Head:
    """The shape of a head; both kinds read layer-normalised features.

        linear:  W x + b
        mlp:     W2 dropout(gelu(W1 x + b1)) + b2

    Attributes:
        kind: ``linear`` (the paper's) or ``mlp``.
        hidden: width of the hidden layer of ``mlp``.
        dropout: share of its hidden units that a training step leaves out.

    >>> Head("mlp", hidden=32).build(8, 4)[0].weight.shape
    torch.Size([32, 8])
    """

    kind: str = "linear"
    hidden: int = 1024
    dropout: float = 0.3

    def __post_init__(self) -> None:
        if self.kind not in HEADS:
            raise OptionError(f"the head must be one of {', '.join(HEADS)}, got {self.kind!r}")
        if self.hidden < 1 or not 0 <= self.dropout < 1:
            raise OptionError(
                f"hidden must be 1 or more and dropout at least 0 and below 1, got {self.hidden} and "
                f"{self.dropout}"
            )

    def build(self, features: int, dim: int) -> nn.Module:
        """The layers from features ``[B, features]`` to ``[B, dim]``."""
        if self.kind == "linear":
            return nn.Linear(features, dim)
        return nn.Sequential(
            nn.Linear(features, self.hidden),
            nn.GELU(),
            nn.Dropout(self.dropout),
            nn.Linear(self.hidden, dim),
        )


class HeadOnly(nn.Module):
    """The part of an encoder behind its backbone, sharing its weights: features -> unit vectors.

        v = normalise( head(norm(x)) )

    Args:
        norm: layer norm of the features.
        head: see `Head`.
    """

    def __init__(self, norm: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.norm, self.head = norm, head

    def forward(self, features: Tensor) -> Tensor:
        """Unit vectors ``[B, dim]`` of features ``[B, F]``."""
        return unit_vectors(features, self.norm, self.head)


def unit_vectors(features: Tensor, norm: nn.Module, head: nn.Module) -> Tensor:
    """Unit vectors ``[B, dim]`` of features ``[B, F]``."""
    embeddings: Tensor = head(norm(features))
    # Half precision would leave the norm off by a thousandth.
    return F.normalize(embeddings.float(), dim=-1)
