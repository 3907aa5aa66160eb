"""What does a model answer? The first answers to one emoji of each group, as characters."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from experiments.results import RESULTS
from experiments.running import run_directories
from experiments.study import first_jobs
from happier.evaluation import retrieve
from happier.runs import Run, read_run
from happier.storage.atomic import atomic_file

FILE = RESULTS / "retrievals.json"
STUDY, MODELS = "emoji_main", ("NSM", "CSL", "HAPPIER", "HAPPIER_S")
ANSWERS = 6
SEED = 0


def find_retrievals(runs: Path, *, workers: int) -> Path:
    """First answers of the first seed of each model to the same queries; returns their file.

    Args:
        runs: folder of the run directories.
        workers: parallel processes, where runs have to be trained.
    """
    directories = run_directories(first_jobs(STUDY, MODELS), workers=workers, runs=runs)
    read = {name: read_run(directory, split="test") for name, directory in directories.items()}
    found = {"answers": answers(read), "related": {name: related(run) for name, run in read.items()}}
    with atomic_file(FILE) as part:
        part.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return FILE


def answers(runs: dict[str, Run]) -> list[dict[str, Any]]:
    """One query of each coarsest class, drawn at random, and what each model answers: character, level."""
    manifest = next(iter(runs.values())).manifest
    labels, paths = manifest.labels(), manifest.table["path"].to_list()
    coarse = manifest.table[manifest.levels[0]].to_numpy()
    generator = np.random.default_rng(SEED)
    queries = np.array([generator.choice(np.flatnonzero(coarse == name)) for name in np.unique(coarse)])
    found = {name: retrieve(run.vectors, labels, k=ANSWERS, queries=queries) for name, run in runs.items()}
    return [
        {
            "group": str(coarse[query]),
            "query": character(paths[query]),
            "answers": {
                name: [
                    [character(paths[item]), int(level)]
                    for item, level in zip(one.indices[row], one.levels[row], strict=True)
                ]
                for name, one in found.items()
            },
        }
        for row, query in enumerate(queries)
    ]


def related(run: Run) -> float:
    """Share of the first answers that are of the query's coarsest class, over all queries."""
    found = retrieve(run.vectors, run.manifest.labels(), k=ANSWERS)
    return round(float((found.levels > 0).mean()), 4)


def character(path: str) -> str:
    """The emoji that an image shows: its folder is named after the code points."""
    points = [int(point, 16) for point in PurePath(path).parent.name.split("-")]
    # Characters that are older than emoji are drawn as text by default.
    return "".join(map(chr, points)) + ("\ufe0f" if points[0] < 0x1F000 and len(points) == 1 else "")
