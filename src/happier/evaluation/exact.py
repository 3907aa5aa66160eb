"""Embeddings -> blocks of scores -> every metric; exact, streaming, sharded over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from happier.errors import InputError, OptionError
from happier.evaluation import cpu, ranks
from happier.evaluation import device as torch_engine
from happier.evaluation.graded import GradedRelevance, graded_columns
from happier.evaluation.inputs import Vectors, as_ids
from happier.evaluation.matching import Matching, relevance_table
from happier.evaluation.result import FloatArray, Result
from happier.metrics.schema import Schema, check_ks
from happier.relevance import HierarchyRelevance, Relevance
from happier.taxonomy import UNKNOWN, check_level_names

Ties = Literal["worst", "best"]
Engine = Literal["kernel", "torch"]
PAPER_RELEVANCE = HierarchyRelevance()


def evaluate(
    embeddings: Any,
    labels: Any,
    gallery: Any | None = None,
    gallery_labels: Any | None = None,
    ids: Any | None = None,
    gallery_ids: Any | None = None,
    *,
    relevance: Relevance | GradedRelevance = PAPER_RELEVANCE,
    ks: Sequence[int] = (1, 10, 100),
    ties: Ties = "worst",
    level_names: Sequence[str] | None = None,
    device: str | torch.device | None = None,
    engine: Engine | None = None,
    threads: int | None = None,
    block_size: int | None = None,
    distributed: bool = True,
) -> Result:
    """Every hierarchical retrieval metric of these embeddings, exactly.

    Scores are inner products: give unit vectors for cosine similarity. Each query ranks the gallery by
    falling score; equal scores are ordered by ``ties``. One block of scores is held at a time.

    Under ``torch.distributed`` the queries are shared among the ranks: every rank must call with the same
    inputs, and every rank gets the whole result.

    Args:
        embeddings: queries ``[Q, D]``, numpy (also memory-mapped) or torch on any device, 16, 32 or 64 bit
            floats.
        labels: int ``[Q, L]``, coarse first, -1 unknown.
        gallery: ``[N, D]``; None for leave-one-out over the queries.
        gallery_labels: int ``[N, L]``.
        ids: of the queries, integers or strings; an item with the query's id is the query itself and is
            never retrieved for it. Without ids, leave-one-out leaves out the query's own row.
        gallery_ids: of the gallery.
        relevance: of each level (default: ``HierarchyRelevance()``), or a function that takes query indices
            ``[q]`` and returns the relevance ``[q, N]`` of every gallery item to them, for relevances from
            elsewhere: then H-AP, H-P@k and H-R@k are made of those, and labels may be None.
        ks: cut-offs of the metrics at k.
        ties: order of equal scores: "worst" puts lower levels first, "best" last.
        level_names: names of the levels in the summary, coarse first (default: 1..L).
        device: where to compute; default: where the embeddings live.
        engine: "kernel" (compiled, CPU) or "torch" (any device); default: by device.
        threads: CPU threads (default: torch's number).
        block_size: queries per block (default: by memory).
        distributed: share the work among the ranks of an initialised ``torch.distributed``.

    Returns:
        the summary, every query's values, and what can be made of them.

    Raises:
        InputError: arrays of wrong shape, type or values.
        TaxonomyError: labels that do not form a tree.
        OptionError: an option out of range.

    >>> import numpy as np
    >>> labels = np.array([[0, 0], [0, 0], [0, 1], [1, 2], [1, 2]])
    >>> vectors = np.eye(3, dtype=np.float32)[[0, 0, 0, 1, 1]]
    >>> result = evaluate(vectors, labels, ks=(1,))
    >>> round(result.summary["AP/1"], 3), round(result.summary["R@1/2"], 3)
    (1.0, 0.5)
    """
    if not callable(relevance):
        raise OptionError(f"relevance must be a relevance object or a function, got {relevance!r}")
    if labels is None and isinstance(relevance, Relevance):
        raise InputError("labels may be None only when relevance is a function of query indices")
    if ties not in ("worst", "best"):
        raise OptionError(f"ties must be 'worst' or 'best', got {ties!r}")
    if block_size is not None and block_size < 1:
        raise OptionError(f"block_size must be 1 or more, got {block_size}")
    graded = None if isinstance(relevance, Relevance) else relevance
    if labels is None:
        labels = np.full((len(embeddings), 1), UNKNOWN)
        gallery_labels = None if gallery is None else np.full((len(gallery), 1), UNKNOWN)
    queries, items, matching = check_inputs(embeddings, labels, gallery, gallery_labels, ids, gallery_ids)
    schema = Schema(check_level_names(level_names, matching.depth), check_ks(ks))
    levels_relevance = relevance if isinstance(relevance, Relevance) else PAPER_RELEVANCE
    where, kind = _choose_engine(queries, device, engine)
    options = _Options(ties == "worst", threads or torch.get_num_threads(), block_size)

    shared = ranks.is_active(distributed)
    if shared:
        ranks.check_same_inputs((len(queries), len(items), queries.dimensions, matching.depth))
    first, last = ranks.shard(len(queries), distributed=distributed)
    run = _run_kernel if kind == "kernel" else _run_torch
    columns = run(queries, items, matching, levels_relevance, schema, options, first, last, where, shared)
    if graded:
        replacing = graded_columns(
            graded, queries, items, matching, schema, first, last, worst=options.worst, block_size=block_size
        )
        if shared:
            replacing = {name: ranks.gather_rows(values, len(queries)) for name, values in replacing.items()}
        columns = _replace(columns, replacing)
        without = int(np.isnan(replacing["H-AP"]).sum())
    else:
        without = _without_positives(matching)
    return Result(columns, schema, without)


def evaluate_ranking(
    levels: Any,
    level_counts: Any,
    relevance: Relevance = PAPER_RELEVANCE,
    *,
    ks: Sequence[int] = (1, 10, 100),
    level_names: Sequence[str] | None = None,
) -> Result:
    """Every metric of rankings that are already made.

    Args:
        levels: int ``[Q, n]``: level 0..L each retrieved item shares with its query, best rank first; -1 pads
            shorter lists at their end. Lists may be cut: what is left out counts as not retrieved.
        level_counts: int ``[Q, L+1]``: gallery items at exactly each level, the query itself left out.
        relevance: default ``HierarchyRelevance()``; its ``count_query=True`` counts the query at level L.
        ks: cut-offs of the metrics at k.
        level_names: names of the levels in the summary, coarse first (default: 1..L).

    >>> from happier import LevelRelevance
    >>> ranking = [[2, 3, 0, 1, 3], [1, 3, 0, 2, 3]]
    >>> result = evaluate_ranking(ranking, [[1, 1, 1, 2]] * 2, LevelRelevance([1/3, 2/3, 1]))
    >>> result.per_query["H-AP"].round(4).tolist()
    [0.7833, 0.6722]
    """
    ranked, counts = _check_ranking(levels, level_counts)
    schema = Schema(check_level_names(level_names, counts.shape[1] - 1), check_ks(ks))
    counted = counts.clone()
    if relevance.count_query:
        counted[:, -1] += 1
    values = schema.compute(ranked, relevance(counted), counts)
    columns = {name: value.cpu().numpy() for name, value in values.items()}
    return Result(lambda: columns.items(), schema, int((counts[:, 1:].sum(1) == 0).sum()))


class _Options:
    def __init__(self, worst: bool, threads: int, block_size: int | None) -> None:
        if threads < 1:
            raise OptionError(f"threads must be 1 or more, got {threads}")
        self.worst, self.threads, self.block_size = worst, threads, block_size


Columns = Callable[[], Iterator[tuple[str, FloatArray]]]


def _run_kernel(
    queries: Vectors, items: Vectors, matching: Matching, relevance: Relevance, schema: Schema,
    options: _Options, first: int, last: int, where: torch.device, shared: bool,
) -> Columns:  # fmt: skip
    del where
    found = cpu.tally(
        queries, items, matching, relevance, schema, first=first, last=last, worst=options.worst,
        threads=options.threads, block_size=options.block_size,
    )  # fmt: skip
    if shared:
        found = cpu.Tallies(
            ranks.gather_rows(found.sums, len(queries)), ranks.gather_rows(found.head, len(queries))
        )
    block = matching.block(slice(None))
    table = relevance_table(relevance, block)
    return lambda: cpu.metrics_of(found, block.counts, table, schema)


def _run_torch(
    queries: Vectors, items: Vectors, matching: Matching, relevance: Relevance, schema: Schema,
    options: _Options, first: int, last: int, where: torch.device, shared: bool,
) -> Columns:  # fmt: skip
    values = torch_engine.compute(
        queries, items, matching, relevance, schema, first=first, last=max(last, first + 1),
        worst=options.worst, device=where, block_size=options.block_size,
    )  # fmt: skip
    if shared:  # a rank without queries computed one, for the names
        values = {name: ranks.gather_rows(v[: last - first], len(queries)) for name, v in values.items()}
    return lambda: iter(values.items())


def _replace(columns: Columns, by: dict[str, FloatArray]) -> Columns:
    def replaced() -> Iterator[tuple[str, FloatArray]]:
        for name, values in columns():
            yield name, by.get(name, values)

    return replaced


def _choose_engine(
    queries: Vectors, device: str | torch.device | None, engine: Engine | None
) -> tuple[torch.device, Engine]:
    where = queries.device if device is None else torch.device(device)
    if engine not in (None, "kernel", "torch"):
        raise OptionError(f"engine must be 'kernel' or 'torch', got {engine!r}")
    chosen: Engine = engine or ("kernel" if where.type == "cpu" else "torch")
    if chosen == "kernel" and where.type != "cpu":
        raise OptionError(f"the compiled kernel runs on the CPU only, got device {where}")
    return where, chosen


def check_inputs(
    embeddings: Any, labels: Any, gallery: Any, gallery_labels: Any, ids: Any, gallery_ids: Any
) -> tuple[Vectors, Vectors, Matching]:
    """Check queries and gallery and how they fit together.

    Raises:
        InputError: arrays of wrong shape, type or values, or that do not belong together.
        TaxonomyError: labels that do not form a tree.
    """
    if (gallery is None) != (gallery_labels is None):
        raise InputError("gallery and gallery_labels must be given together")
    queries = Vectors(embeddings)
    items = queries if gallery is None else Vectors(gallery, name="gallery")
    _check_sizes(queries, items)
    mine, theirs = _check_ids(ids, gallery_ids, queries, items, leave_one_out=gallery is None)
    matching = Matching(labels, gallery_labels, mine, theirs)
    if matching.queries != len(queries) or matching.items != len(items):
        raise InputError(
            f"labels must have one row per embedding, got {matching.queries} rows for {len(queries)} queries "
            f"and {matching.items} for a gallery of {len(items)}"
        )
    return queries, items, matching


def _check_sizes(queries: Vectors, items: Vectors) -> None:
    if queries.dimensions != items.dimensions:
        raise InputError(
            f"embeddings and gallery must have the same dimension, got {queries.dimensions} "
            f"and {items.dimensions}"
        )
    limit = float(np.finfo(np.float64 if queries.is_double or items.is_double else np.float32).max)
    if queries.largest_norm * items.largest_norm >= limit:
        raise InputError(
            f"embeddings are too large for their scores: norms up to {queries.largest_norm:.3g} and "
            f"{items.largest_norm:.3g}; scale them, for instance to unit length"
        )


def _check_ids(
    ids: Any, gallery_ids: Any, queries: Vectors, items: Vectors, *, leave_one_out: bool
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    if leave_one_out and gallery_ids is not None:
        raise InputError("gallery_ids were given without a gallery")
    if not leave_one_out and (ids is None) != (gallery_ids is None):
        raise InputError("ids and gallery_ids must be given together")
    mine = None if ids is None else as_ids(ids, len(queries), name="ids")
    theirs = None if gallery_ids is None else as_ids(gallery_ids, len(items), name="gallery_ids")
    if mine is not None and theirs is not None and (mine.dtype.kind == "U") != (theirs.dtype.kind == "U"):
        raise InputError(
            f"ids and gallery_ids must both be integers or both strings, got {mine.dtype} and {theirs.dtype}"
        )
    return mine, theirs


def _without_positives(matching: Matching) -> int:
    return int((matching.block(slice(None)).counts[:, 1:].sum(1) == 0).sum())


def _check_ranking(levels: Any, level_counts: Any) -> tuple[torch.Tensor, torch.Tensor]:
    ranked = torch.as_tensor(levels)
    counts = torch.as_tensor(level_counts, device=ranked.device)
    if ranked.ndim != 2 or ranked.is_floating_point() or 0 in ranked.shape:
        raise InputError(
            f"levels must be integers [queries, ranks], got {tuple(ranked.shape)} of {ranked.dtype}"
        )
    if counts.ndim != 2 or counts.is_floating_point() or len(counts) != len(ranked) or counts.shape[1] < 2:
        raise InputError(
            f"level_counts must be integers [{len(ranked)}, levels + 1], got {tuple(counts.shape)} "
            f"of {counts.dtype}"
        )
    ranked, counts = ranked.to(torch.int64), counts.to(torch.int64)
    depth = counts.shape[1] - 1
    if int(ranked.min()) < -1 or int(ranked.max()) > depth:
        raise InputError(
            f"levels must lie in 0..{depth} (-1 pads), got {int(ranked.min())} to {int(ranked.max())}"
        )
    if bool(((ranked[:, :-1] < 0) & (ranked[:, 1:] >= 0)).any()):
        raise InputError("levels: padding (-1) may stand only at the end of a list")
    for level in range(depth + 1):
        more = (ranked == level).sum(1) > counts[:, level]
        if bool(more.any()):
            row = int(more.nonzero()[0])
            raise InputError(
                f"levels[{row}] holds {int((ranked[row] == level).sum())} items of level {level}, but "
                f"level_counts[{row}] says the gallery has {int(counts[row, level])}"
            )
    return ranked, counts
