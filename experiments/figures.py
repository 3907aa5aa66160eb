"""Results -> figures for docs/results.md: sweeps as lines, and the classes' places as t-SNE maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.study import read_study
from experiments.tables import Figures, read_figures
from happier.report.class_map import class_means, tsne, turned_towards
from happier.report.colours import COARSE_COLOURS
from happier.report.figures import STYLE
from happier.runs import read_run

# The sweeps: name of the file and of what is swept, and the study.
SWEEPS = (("alpha", "emoji_alpha"), ("lambda", "emoji_lambda"))
MAPS = (
    ("maps", "emoji_main", ("NSM", "HAPPIER", "HAPPIER_S")),
    ("maps-lambda", "emoji_lambda", ("λ = 0.3", "λ = 0.5", "λ = 0.9")),
)
PERPLEXITY = 30.0


def write_figures(folder: Path, runs: Path) -> Iterator[Path]:
    """Draw every figure whose results are there, and name its file.

    Args:
        folder: where the SVG files go.
        runs: folder of the run directories; a map needs its runs' embeddings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, study in SWEEPS:
            methods = read_figures(study)
            if len(methods) > 1:
                yield _save(_sweep(methods, name), folder / f"{name}.svg")
        for name, study, chosen in MAPS:
            jobs = {method: read_study(study).methods[method][0] for method in chosen}
            directories = {method: runs / job.folder / job.name for method, job in jobs.items()}
            if all((directory / "model.json").is_file() for directory in directories.values()):
                yield _save(_maps(directories), folder / f"{name}.svg")


def _sweep(methods: dict[str, Figures], swept: str) -> Figure:
    """H-AP and the levels' AP over the swept values, which the methods' names end in."""
    values = [float(name.split("=")[-1]) for name in methods]
    summary = next(iter(methods.values())).results[0]["summary"]
    metrics = ["H-AP", *(name for name in summary if name.startswith("AP/"))]
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.subplots()
    for metric in metrics:
        whole = metric == "H-AP"
        style: dict[str, Any] = {"color": "#111111", "linewidth": 2.2} if whole else {"linewidth": 1.4}
        heights = [100 * one.mean(metric) for one in methods.values()]
        axes.plot(values, heights, marker="o", markersize=4, label=metric.replace("/", " "), **style)
    axes.set(xlabel=swept, ylabel="%", xticks=values)
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside right center")
    return figure


def _maps(directories: dict[str, Path]) -> Figure:
    """t-SNE of the mean vector of each fine class, coloured by coarse class, one plane for each run."""
    figure = Figure(figsize=(3.2 * len(directories), 3.8), layout="constrained")
    panels = figure.subplots(1, len(directories), squeeze=False)[0]
    first = None
    for axes, (name, directory) in zip(panels, directories.items(), strict=True):
        run = read_run(directory, split="test")
        labels = run.manifest.labels()
        rows = np.arange(len(labels))
        codes, example, group = np.unique(labels[:, -1], return_index=True, return_inverse=True)
        plane = tsne(class_means(run.vectors, rows, group, len(codes)), PERPLEXITY, seed=0)
        plane = plane if first is None else turned_towards(plane, first)
        first = plane if first is None else first
        coarse = run.manifest.table[run.manifest.levels[0]].to_numpy()[example]
        for colour, title in zip(COARSE_COLOURS, np.unique(coarse), strict=False):
            axes.scatter(*plane[coarse == title].T, s=7, color=colour, linewidths=0, label=title)
        axes.set(title=name, xticks=[], yticks=[], aspect="equal", adjustable="datalim")
        axes.spines[["left", "bottom"]].set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=5,
        markerscale=2,
        columnspacing=1.0,
        handletextpad=0.1,
    )
    return figure


def _save(figure: Figure, path: Path) -> Path:
    FigureCanvasAgg(figure)
    figure.savefig(path, metadata={"Date": None})
    return path
