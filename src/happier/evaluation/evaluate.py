"""Embeddings -> blocks of scores -> every metric; exact, streaming, sharded over ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from happier.arrays import FloatArray
from happier.errors import InputError
from happier.evaluation import distributed as ranks
from happier.evaluation import kernel_engine, torch_engine
from happier.evaluation.graded import graded_columns
from happier.evaluation.matching import relevance_table
from happier.evaluation.options import PAPER_RELEVANCE, Engine, EvaluationOptions, GradedRelevance, Ties
from happier.evaluation.problem import RetrievalProblem
from happier.evaluation.result import Result
from happier.metrics.schema import Schema, check_ks
from happier.relevance import Relevance
from happier.taxonomy import UNKNOWN, check_level_names

__all__ = ["PAPER_RELEVANCE", "Engine", "Ties", "evaluate", "evaluate_problem", "evaluate_ranking"]

DEFAULTS = EvaluationOptions()


def evaluate(  # noqa: PLR0913 - the public signature, a contract
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
            elsewhere: then H-AP, H-P@k and H-R@k are computed from those, and labels may be None.
        ks: cut-offs of the metrics at k.
        ties: order of equal scores: "worst" puts lower levels first, "best" last.
        level_names: names of the levels in the summary, coarse first (default: 1..L).
        device: where to compute; default: where the embeddings live.
        engine: "kernel" (compiled, CPU) or "torch" (any device); default: by device.
        threads: CPU threads (default: torch's number).
        block_size: queries per block (default: by memory).
        distributed: share the work among the ranks of an initialised ``torch.distributed``.

    Returns:
        the summary, the values per query, and what can be derived from them.

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
    options = EvaluationOptions(
        relevance=relevance,
        ks=ks,
        ties=ties,
        level_names=level_names,
        device=device,
        engine=engine,
        threads=threads,
        block_size=block_size,
        distributed=distributed,
    )
    if labels is None:
        if options.graded_relevance is None:
            raise InputError("labels may be None only when relevance is a function of query indices")
        labels = np.full((len(embeddings), 1), UNKNOWN)
        gallery_labels = None if gallery is None else np.full((len(gallery), 1), UNKNOWN)
    problem = RetrievalProblem.prepare(embeddings, labels, gallery, gallery_labels, ids, gallery_ids)
    return evaluate_problem(problem, options)


def evaluate_problem(problem: RetrievalProblem, options: EvaluationOptions = DEFAULTS) -> Result:
    """Every metric of a prepared problem, as `evaluate`.

    Args:
        problem: queries and gallery, checked and sorted.
        options: those of `evaluate`.

    Raises:
        OptionError: an option that does not fit the problem.

    >>> problem = RetrievalProblem.prepare(np.eye(3)[[0, 0, 1]], [[0], [0], [1]])
    >>> evaluate_problem(problem).summary["AP/1"]
    1.0
    """
    schema = options.schema(problem.depth)
    device, engine = options.place(problem.queries.device)
    queries = len(problem.queries)
    shared = ranks.is_active(options.distributed)
    if shared:
        sizes = (queries, len(problem.gallery), problem.queries.dimensions, problem.depth)
        ranks.check_same_inputs(sizes)
    part = range(*ranks.query_range(queries, distributed=options.distributed))
    columns = (
        _kernel_columns(problem, schema, options, part)
        if engine == "kernel"
        else _torch_columns(problem, schema, options, part, device)
    )
    if (graded := options.graded_relevance) is None:
        return Result(columns, schema, problem.without_positives, problem.matching.query_classes)
    replacing = graded_columns(problem, graded, options, part)
    if shared:
        replacing = {name: ranks.gather_rows(values, queries) for name, values in replacing.items()}
    without_positives = int(np.isnan(replacing["H-AP"]).sum())
    return Result(_replace(columns, replacing), schema, without_positives, problem.matching.query_classes)


def evaluate_ranking(
    levels: Any,
    level_counts: Any,
    relevance: Relevance = PAPER_RELEVANCE,
    *,
    ks: Sequence[int] = (1, 10, 100),
    level_names: Sequence[str] | None = None,
    classes: Any | None = None,
) -> Result:
    """Every metric of existing rankings.

    Args:
        levels: int ``[Q, n]``: level 0..L each retrieved item shares with its query, best rank first; -1 pads
            shorter lists at their end. Lists may be cut: what is left out counts as not retrieved.
        level_counts: int ``[Q, L+1]``: gallery items at exactly each level, the query itself left out.
        relevance: default ``HierarchyRelevance()``; its ``count_query=True`` counts the query at level L.
        ks: cut-offs of the metrics at k.
        level_names: names of the levels in the summary, coarse first (default: 1..L).
        classes: finest class of each query, integers or strings ``[Q]``, which intervals resample; without
            them queries are resampled.

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
    known = None if classes is None else np.unique(np.asarray(classes), return_inverse=True)[1]
    return Result(lambda: columns.items(), schema, int((counts[:, 1:].sum(1) == 0).sum()), known)


Columns = Callable[[], Iterator[tuple[str, FloatArray]]]


def _kernel_columns(
    problem: RetrievalProblem, schema: Schema, options: EvaluationOptions, part: range
) -> Columns:
    found = kernel_engine.tally(problem, schema, options, part)
    if ranks.is_active(options.distributed):
        queries = len(problem.queries)
        found = kernel_engine.Tallies(
            ranks.gather_rows(found.sums, queries), ranks.gather_rows(found.head, queries)
        )
    block = problem.matching.block(slice(None))
    table = relevance_table(options.level_relevance, block)
    return lambda: kernel_engine.metrics_of(found, block.counts, table, schema)


def _torch_columns(
    problem: RetrievalProblem, schema: Schema, options: EvaluationOptions, part: range, device: torch.device
) -> Columns:
    # A rank without queries computes one, for the names of the metrics.
    at_least_one = range(part.start, max(part.stop, part.start + 1))
    values = torch_engine.compute(problem, schema, options, at_least_one, device)
    if ranks.is_active(options.distributed):
        queries = len(problem.queries)
        values = {name: ranks.gather_rows(own[: len(part)], queries) for name, own in values.items()}
    return lambda: iter(values.items())


def _replace(columns: Columns, by: dict[str, FloatArray]) -> Columns:
    def replaced() -> Iterator[tuple[str, FloatArray]]:
        for name, values in columns():
            yield name, by.get(name, values)

    return replaced


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
            f"levels must be in 0..{depth} (-1 pads), got {int(ranked.min())} to {int(ranked.max())}"
        )
    if bool(((ranked[:, :-1] < 0) & (ranked[:, 1:] >= 0)).any()):
        raise InputError("levels: padding (-1) is allowed only at the end of a list")
    for level in range(depth + 1):
        more = (ranked == level).sum(1) > counts[:, level]
        if bool(more.any()):
            row = int(more.nonzero()[0])
            raise InputError(
                f"levels[{row}] holds {int((ranked[row] == level).sum())} items of level {level}, but "
                f"level_counts[{row}] says the gallery has {int(counts[row, level])}"
            )
    return ranked, counts
