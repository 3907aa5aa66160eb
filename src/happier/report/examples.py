"""Which queries a report shows, and what each model retrieves for them.

Nothing is picked by hand: the queries with the largest gain, with the largest loss, and some drawn at random
from the middle of all differences, first model against second. Further models do not affect the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from happier.arrays import FloatArray, IntArray
from happier.evaluation import Retrieval
from happier.report.data import Answer, Example, Examples, Reason
from happier.report.evaluated_run import EvaluatedRun
from happier.report.images import Pictures


def examples(
    runs: Sequence[EvaluatedRun], pictures: Pictures, *, answers: int, each: int = 3, seed: int = 0
) -> Examples:
    """The retrieval grids.

    Args:
        runs: one for each model, on the same queries.
        pictures: where the images go.
        answers: retrieved images shown for each query.
        each: queries shown for each reason.
        seed: of the draw of typical queries.
    """
    h_ap = [run.result.per_query["H-AP"] for run in runs]
    # One model alone has no difference: it is judged by its own H-AP.
    judged_by = h_ap[0] - h_ap[1] if len(runs) > 1 else h_ap[0]
    classes = runs[0].query_labels[:, -1]
    chosen = choose(judged_by, classes, each=each, seed=seed)
    items = []
    for reason, queries in chosen.items():
        if not queries:
            continue
        found = [run.retrieve(queries, answers) for run in runs]
        items += [
            Example(
                reason,
                *_described(runs[0], int(runs[0].test_set.queries[query]), pictures),
                tuple(float(values[query]) for values in h_ap),
                tuple(
                    tuple(_answers(run, retrieval, place, pictures))
                    for run, retrieval in zip(runs, found, strict=True)
                ),
            )
            for place, query in enumerate(queries)
        ]
    names = [run.run.name for run in runs]
    return Examples(seed, _rules(names, each, seed, int(np.isfinite(judged_by).sum())), tuple(items))


def choose(values: FloatArray, classes: IntArray, *, each: int, seed: int) -> dict[Reason, list[int]]:
    """Queries with the largest, typical and smallest values, of different classes within each reason.

    Typical ones are drawn at random from the middle fifth.

    >>> values, classes = np.array([0.5, 0.4, 0.0, -0.1, -0.3]), np.array([0, 0, 1, 2, 3])
    >>> choose(values, classes, each=1, seed=0)
    {'gain': [0], 'typical': [2], 'loss': [4]}
    """
    defined = np.flatnonzero(np.isfinite(values))
    # A stable order, so that equal values always give the same queries.
    order = defined[np.argsort(-values[defined], kind="stable")]
    middle = order[len(order) * 2 // 5 : max(len(order) * 3 // 5, len(order) * 2 // 5 + 1)]
    drawn = np.random.default_rng(seed).permutation(middle)
    return {
        "gain": _distinct(order, classes, each),
        "typical": _distinct(drawn, classes, each),
        "loss": _distinct(order[::-1], classes, each),
    }


def _distinct(order: Iterable[np.int64], classes: IntArray, count: int) -> list[int]:
    found: list[int] = []
    seen: set[int] = set()
    for query in order:
        if len(found) == count:
            break
        if (mine := int(classes[query])) not in seen or mine < 0:
            seen.add(mine)
            found.append(int(query))
    return found


def _rules(names: Sequence[str], each: int, seed: int, queries: int) -> dict[Reason, str]:
    if len(names) > 1:
        return {
            "gain": f"The {each} queries, out of {queries:,}, where the H-AP of {names[0]} is furthest above "
            f"that of {names[1]}; one per class.",
            "typical": f"{each} queries drawn at random (seed {seed}) from the middle fifth of all "
            "differences; one per class.",
            "loss": f"The {each} queries where the H-AP of {names[0]} is furthest below that of {names[1]}; "
            "one per class.",
        }
    return {
        "gain": f"The {each} queries, out of {queries:,}, with the highest H-AP; one per class.",
        "typical": f"{each} queries drawn at random (seed {seed}) from the middle fifth by H-AP; "
        "one per class.",
        "loss": f"The {each} queries with the lowest H-AP; one per class.",
    }


def _described(run: EvaluatedRun, row: int, pictures: Pictures) -> tuple[str, str, str]:
    """Class path, file and picture of a row."""
    return run.class_paths[row], run.relative_paths[row], pictures.add(run.files[row])


def _answers(run: EvaluatedRun, found: Retrieval, place: int, pictures: Pictures) -> Iterable[Answer]:
    for item, score, level in zip(
        found.indices[place], found.scores[place], found.levels[place], strict=True
    ):
        if level >= 0:  # below 0 is padding: the gallery is smaller than the list
            row = int(run.test_set.gallery_rows[item])
            yield Answer(*_described(run, row, pictures), int(level), float(score))
