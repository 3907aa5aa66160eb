"""What does a model answer? The first answers of four models to one emoji of each group, with the drawings.

The models are heads on kept features, each with the configuration that was chosen for it (`tuned`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.results import RESULTS
from experiments.tuned import FEATURES, find_method, train_tuned
from happier.data import read_image
from happier.evaluation import retrieve
from happier.report.figures import STYLE
from happier.report.level_colours import palette
from happier.runs import Run, read_run
from happier.storage.atomic import atomic_file

FILE = RESULTS / "retrievals.json"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "results" / "retrievals.webp"
MODELS = ("NSM", "CSL", "HAPPIER_S", "HAPPIER")
ANSWERS = 6
SEED = 0


@dataclass(frozen=True)
class Answers:
    """The first answers to one query.

    Attributes:
        query: its image.
        group: its coarsest class.
        found: the image of each answer of each model, and how many levels it shares with the query.
    """

    query: Path
    group: str
    found: dict[str, list[tuple[Path, int]]]


def find_retrievals(runs: Path) -> Path:
    """Draw the first answers of each model, and keep how many of all are related; returns the picture.

    Args:
        runs: folder of features and runs.

    Raises:
        ConfigError: a method has not been tuned yet.
    """
    chosen = {name: find_method(FEATURES, "emoji", name).first for name in MODELS}
    read = {name: read_run(train_tuned(run, runs), split="test") for name, run in chosen.items()}
    with mpl.rc_context(STYLE), atomic_file(PICTURE) as part:
        depth = len(next(iter(read.values())).manifest.levels)
        figure = draw(first_answers(read), depth)
        FigureCanvasAgg(figure)
        figure.savefig(part, format="webp", dpi=160, pil_kwargs={"quality": 88, "method": 6})
    with atomic_file(FILE) as part:
        shares = {name: related(run) for name, run in read.items()}
        part.write_text(json.dumps(shares, indent=1) + "\n", encoding="utf-8")
    return PICTURE


def first_answers(runs: dict[str, Run]) -> list[Answers]:
    """One query of each coarsest class, drawn at random, and what each model answers."""
    manifest = next(iter(runs.values())).manifest
    labels, files = manifest.labels(), list(manifest.files())
    coarse = manifest.table[manifest.levels[0]].to_numpy()
    generator = np.random.default_rng(SEED)
    queries = np.array([generator.choice(np.flatnonzero(coarse == name)) for name in np.unique(coarse)])
    found = {name: retrieve(run.vectors, labels, k=ANSWERS, queries=queries) for name, run in runs.items()}
    return [
        Answers(
            files[query],
            str(coarse[query]),
            {
                name: [
                    (files[item], int(level))
                    for item, level in zip(one.indices[row], one.levels[row], strict=True)
                ]
                for name, one in found.items()
            },
        )
        for row, query in enumerate(queries)
    ]


def related(run: Run) -> float:
    """Share of the first answers that are of the query's coarsest class, over all queries."""
    found = retrieve(run.vectors, run.manifest.labels(), k=ANSWERS)
    return round(float((found.levels > 0).mean()), 4)


def draw(answers: list[Answers], depth: int) -> Figure:
    """A row for each query, its answers in columns, framed in the colour of the level they share."""
    colours = palette(depth)
    models = list(answers[0].found)
    width = 1 + len(models) * (ANSWERS + 0.5)
    figure = Figure(figsize=(11.0, 11.0 * (len(answers) + 0.6) / (width + 2.6)), layout="constrained")
    axes = figure.subplots()
    for row, one in enumerate(answers):
        axes.text(-0.15, row + 0.5, one.group, ha="right", va="center", fontsize=9)
        _tile(axes, one.query, (0, row), colours.query)
        for place, name in enumerate(models):
            left = 1.5 + place * (ANSWERS + 0.5)
            for column, (file, level) in enumerate(one.found[name]):
                _tile(axes, file, (left + column, row), colours.levels[level])
    for place, name in enumerate(models):
        axes.text(1.5 + place * (ANSWERS + 0.5), -0.15, name, ha="left", va="bottom", fontsize=10)
    axes.set(xlim=(-2.6, width), ylim=(len(answers), -0.6), aspect="equal")
    axes.axis("off")
    return figure


def _tile(axes: Axes, file: Path, place: tuple[float, float], colour: str) -> None:
    left, top = place
    axes.imshow(read_image(file), extent=(left + 0.1, left + 0.9, top + 0.9, top + 0.1))
    axes.add_patch(
        Rectangle((left + 0.06, top + 0.06), 0.88, 0.88, fill=False, edgecolor=colour, linewidth=2)
    )
