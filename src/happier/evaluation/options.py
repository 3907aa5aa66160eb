"""How an evaluation is computed: relevance, cut-offs, ties, and where the work is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from happier.errors import OptionError
from happier.metrics.schema import Schema, check_ks
from happier.relevance import HierarchyRelevance, Relevance
from happier.taxonomy import check_level_names

Ties = Literal["worst", "best"]
Engine = Literal["kernel", "torch"]
PAPER_RELEVANCE = HierarchyRelevance()


class GradedRelevance(Protocol):
    """Relevance of every gallery item ``[q, N]`` to the queries with these indices ``[q]``."""

    def __call__(self, queries: npt.NDArray[np.int64], /) -> Any:
        """Return non-negative relevances ``[q, N]``, numpy or torch."""
        ...


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """The options of `happier.evaluate`, where each is described; checked on construction.

    Raises:
        OptionError: an option out of range.
    """

    relevance: Relevance | GradedRelevance = PAPER_RELEVANCE
    ks: Sequence[int] = (1, 10, 100)
    ties: Ties = "worst"
    level_names: Sequence[str] | None = None
    device: str | torch.device | None = None
    engine: Engine | None = None
    threads: int | None = None
    block_size: int | None = None
    distributed: bool = True

    def __post_init__(self) -> None:
        if not callable(self.relevance):
            raise OptionError(f"relevance must be a relevance object or a function, got {self.relevance!r}")
        if self.ties not in ("worst", "best"):
            raise OptionError(f"ties must be 'worst' or 'best', got {self.ties!r}")
        if self.engine not in (None, "kernel", "torch"):
            raise OptionError(f"engine must be 'kernel' or 'torch', got {self.engine!r}")
        if self.block_size is not None and self.block_size < 1:
            raise OptionError(f"block_size must be 1 or more, got {self.block_size}")
        if self.threads is not None and self.threads < 0:
            raise OptionError(f"threads must be 1 or more, got {self.threads}")

    @property
    def level_relevance(self) -> Relevance:
        """Relevance of each level; the paper's where the relevance is graded."""
        return self.relevance if isinstance(self.relevance, Relevance) else PAPER_RELEVANCE

    @property
    def graded_relevance(self) -> GradedRelevance | None:
        """The relevance where it is a function of the queries."""
        return None if isinstance(self.relevance, Relevance) else self.relevance

    @property
    def worst(self) -> bool:
        """Whether equal scores are ordered worst first."""
        return self.ties == "worst"

    @property
    def thread_count(self) -> int:
        """CPU threads to use."""
        return self.threads or torch.get_num_threads()

    def schema(self, depth: int) -> Schema:
        """The metrics for this number of levels.

        Raises:
            OptionError: names or cut-offs that do not fit.
        """
        return Schema(check_level_names(self.level_names, depth), check_ks(self.ks))

    def place(self, embeddings: torch.device) -> tuple[torch.device, Engine]:
        """The device and the engine for embeddings that live on a device.

        Raises:
            OptionError: the compiled kernel is requested on a GPU.
        """
        device = embeddings if self.device is None else torch.device(self.device)
        engine: Engine = self.engine or ("kernel" if device.type == "cpu" else "torch")
        if engine == "kernel" and device.type != "cpu":
            raise OptionError(f"the compiled kernel runs on the CPU only, got device {device}")
        return device, engine
