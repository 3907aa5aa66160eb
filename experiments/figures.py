"""Results -> figures for docs/results.md: methods as dots, sweeps as lines, classes as t-SNE maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.changes import read_changes
from experiments.tables import Figures, change_figures, partial_figures, tuned_figures
from experiments.tuned import FEATURES, TunedRun, find_method, read_methods, train_tuned
from happier.losses import LOSSES
from happier.report.class_map import class_means, tsne, turned_towards
from happier.report.class_map_colours import COARSE_COLOURS
from happier.report.figures import STYLE
from happier.runs import read_run

MAIN = {"emoji": "emoji", "Wesnoth": "wesnoth", "glyphs": "glyphs"}
# What a loss uses of the hierarchy, and its colour.
KINDS = {"fine level only": "#8d99a8", "all levels": "#2f6fb5", "HAPPIER": "#d4572a"}
SWEEPS = ("alpha", "lambda")
METHODS = ("NSM", "HAPPIER", "HAPPIER_S")
LAMBDAS = ("λ = 0.3", "λ = 0.5", "λ = 0.9")
PERPLEXITY = 30.0


def write_figures(folder: Path, runs: Path) -> Iterator[Path]:
    """Draw every figure and yield its file.

    Args:
        folder: where the SVG files go.
        runs: folder of features and runs; what the maps need is trained.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        yield _save(
            _methods({title: tuned_figures(FEATURES, name) for title, name in MAIN.items()}),
            folder / "main.svg",
        )
        for name in SWEEPS:
            yield _save(_sweep(change_figures(name), name), folder / f"{name}.svg")
        yield _save(_partial(partial_figures("features")), folder / "partial-labels.svg")
        maps = {
            "maps": {name: find_method(FEATURES, "emoji", name).first for name in METHODS},
            "maps-lambda": {row: read_changes("lambda")[row][0] for row in LAMBDAS},
        }
        for name, chosen in maps.items():
            yield _save(_maps(chosen, runs), folder / f"{name}.svg")


def _methods(studies: dict[str, dict[str, Figures]]) -> Figure:
    """H-AP of every method: a small dot for each seed, a large one for their mean; one panel per data set."""
    studies = {title: methods for title, methods in studies.items() if methods}
    names = [one.name for methods in read_methods(FEATURES, "emoji") for one in methods]
    figure = Figure(figsize=(7.6, 4.6), layout="constrained")
    panels = figure.subplots(1, len(studies), sharey=True, squeeze=False)[0]
    for axes, (title, methods) in zip(panels, studies.items(), strict=True):
        for name, one in methods.items():
            place = names.index(name)
            colour = KINDS[_kind(one.jobs[0].loss)]
            seeds = 100 * np.array(one.values("H-AP"))
            axes.scatter(seeds, np.full(len(seeds), place), s=10, color=colour, alpha=0.55, linewidths=0)
            axes.scatter(seeds.mean(), place, s=44, color=colour, linewidths=0)
        axes.set(title=title, xlabel="H-AP, %", yticks=range(len(names)), yticklabels=names)
        axes.grid(axis="x", alpha=0.25)
        axes.tick_params(axis="y", length=0)
    panels[0].invert_yaxis()
    handles = [Line2D([], [], marker="o", linestyle="", color=colour) for colour in KINDS.values()]
    figure.legend(handles, KINDS, loc="outside lower center", ncols=len(KINDS))
    return figure


def _kind(loss: str) -> str:
    if loss.startswith("happier"):
        return "HAPPIER"
    return "fine level only" if LOSSES[loss].fine_only else "all levels"


def _sweep(methods: dict[str, Figures], swept: str) -> Figure:
    """H-AP and the levels' AP over the swept values, which the methods' names end in; bars span the seeds."""
    values = sorted(float(name.split("=")[-1]) for name in methods)
    methods = dict(sorted(methods.items(), key=lambda entry: float(entry[0].split("=")[-1])))
    summary = next(iter(methods.values())).results[0].summary
    metrics = ["H-AP", *(name for name in summary if name.startswith("AP/"))]
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.subplots()
    for metric in metrics:
        whole = metric == "H-AP"
        style: dict[str, Any] = {"color": "#111111", "linewidth": 2.2} if whole else {"linewidth": 1.4}
        seeds = [100 * np.array(one.values(metric)) for one in methods.values()]
        means = np.array([one.mean() for one in seeds])
        spans = np.abs([[one.min(), one.max()] for one in seeds] - means[:, None]).T
        label = metric.replace("/", " ")
        axes.errorbar(values, means, spans, marker="o", markersize=4, elinewidth=0.9, label=label, **style)
    axes.set(xlabel=swept, ylabel="%", xticks=values)
    axes.grid(axis="y", alpha=0.25)
    figure.legend(loc="outside right center")
    return figure


def _partial(figures: dict[bool, dict[float, Figures]]) -> Figure:
    """H-AP over the share of fine labels removed, with and without the partly labelled images."""
    figure = Figure(figsize=(5.2, 3.0), layout="constrained")
    axes = figure.subplots()
    for (kept, shares), colour in zip(figures.items(), ("#d4572a", "#8d99a8"), strict=True):
        seeds = [100 * np.array(one.values("H-AP")) for one in shares.values()]
        label = "all images" if kept else "fully labelled images only"
        removed = [100 * share for share in shares]
        axes.plot(removed, [one.mean() for one in seeds], marker="o", color=colour, label=label)
        for share, one in zip(removed, seeds, strict=True):
            axes.scatter(np.full(len(one), share), one, s=10, color=colour, alpha=0.55, linewidths=0)
    axes.set(xlabel="fine labels removed, %", ylabel="H-AP, %", xticks=[0, 25, 50, 75, 90])
    axes.grid(axis="y", alpha=0.25)
    axes.legend()
    return figure


def _maps(chosen: dict[str, TunedRun], runs: Path) -> Figure:
    """t-SNE of the mean vector of each fine class, coloured by coarse class, one plane for each run."""
    figure = Figure(figsize=(3.2 * len(chosen), 3.8), layout="constrained")
    panels = figure.subplots(1, len(chosen), squeeze=False)[0]
    first = None
    for axes, (name, tuned_run) in zip(panels, chosen.items(), strict=True):
        run = read_run(train_tuned(tuned_run, runs), split="test")
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
