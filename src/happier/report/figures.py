"""The figures of a report as PNG, SVG and PDF files, for papers and slides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from happier.data.class_path import leaf
from happier.data.image import read_image
from happier.report.charts import (
    SIDE,
    Plot,
    coverage_plots,
    curve_plot,
    level_text,
    mistake_bars,
    share_plots,
)
from happier.report.class_map_colours import coarse_colours
from happier.report.data import Example, PrecisionRecall, Report
from happier.report.level_colours import palette

FORMATS = ("png", "svg", "pdf")
LEGEND = 0.5
"""Inches below the panels of a figure."""
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "happier",  # the same data gives the same file
}


def write_figures(report: Report, folder: Path) -> tuple[str, ...]:
    """Write every figure in every format and return their names.

    Args:
        report: what to draw.
        folder: where ``<name>.png``, ``.svg`` and ``.pdf`` go; the pictures of the examples are read from its
            parent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    with mpl.rc_context(STYLE):
        for name, figure in _figures(report, folder.parent):
            FigureCanvasAgg(figure)
            for kind in FORMATS:
                metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
                if kind == "pdf":
                    metadata = {"CreationDate": None}
                figure.savefig(folder / f"{name}.{kind}", dpi=200, metadata=metadata or None)
            names.append(name)
    return tuple(names)


def _figures(report: Report, root: Path) -> Iterator[tuple[str, Figure]]:
    yield "severity", _severity(report)
    yield "composition", _composition(report)
    if report.curve is not None:
        yield "precision-recall", _precision_recall(report, report.curve)
    if report.identification:
        yield "coverage", _coverage(report)
    if report.class_map is not None:
        yield "map", _map(report)
    for reason in report.examples.rules:
        chosen = [example for example in report.examples.items if example.reason == reason]
        if chosen:
            yield f"examples-{reason}", _examples(report, chosen, root)


def _model_lines(report: Report) -> list[tuple[str, str]]:
    """Colour and dashes of the lines of up to four models; dashes distinguish where colours do not."""
    page = palette(report.data.depth).page
    return [(page["accent"], "-"), (page["muted"], "-"), (page["third"], "--"), (page["fourth"], ":")]


def _panels(report: Report, wide: float, high: float, *, sharey: bool = False) -> tuple[Figure, Any]:
    """A figure with a legend below one panel for each model: up to three in a row, four in two rows."""
    models = len(report.models)
    columns = models if models <= 3 else 2
    rows = models // columns
    figure = Figure(figsize=(wide * columns, high * rows + LEGEND), layout="constrained")
    return figure, figure.subplots(rows, columns, sharey=sharey, squeeze=False)


def _severity(report: Report) -> Figure:
    """Stacked bars: what the first wrong answer shares with the query."""
    colours, depth = palette(report.data.depth).levels, report.data.depth
    figure = Figure(figsize=(6.5, 0.75 + 0.38 * len(report.models)), layout="constrained")
    axes = figure.subplots()
    for row, (model, bar) in enumerate(zip(report.models, mistake_bars(report), strict=True)):
        for part in bar:
            left, width = 100 * part.start, 100 * part.share
            axes.barh(row, width, left=left, color=colours[part.level], height=0.72, edgecolor="white")
            middle = left + width / 2
            axes.text(middle, row, part.text, ha="center", va="center", color="white", weight="bold")
        axes.text(-1, row, model.name, ha="right", va="center", weight="bold")
    axes.set(xlim=(0, 100), yticks=[], xlabel="first wrong answer, % of queries")
    axes.spines["left"].set_visible(False)
    axes.invert_yaxis()
    _level_legend(axes, report, range(depth - 1, -1, -1))
    return figure


def _composition(report: Report) -> Figure:
    """Stacked areas: what the top k is made of as k grows."""
    colours, depth = palette(report.data.depth).levels, report.data.depth
    figure, panels = _panels(report, 3.3, 2.2, sharey=True)
    for axes, plot in zip(panels.flat, share_plots(report), strict=True):
        for shape in plot.shapes:
            axes.fill(
                *zip(*shape.points, strict=True),
                facecolor=colours[shape.number],
                edgecolor="white",
                linewidth=0.6,
            )
        _axes_of(axes, plot)
        axes.set(title=plot.title)
    for row in panels:
        for axes in row[1:]:
            axes.set_ylabel("")
    _level_legend(panels[0, 0], report, range(depth, -1, -1), figure=figure)
    return figure


def _axes_of(axes: Any, plot: Plot) -> None:
    """Scales, ticks and labels, as on the page."""
    axes.set(xlim=(0, SIDE), ylim=(0, SIDE), xlabel=plot.x_label, ylabel=plot.y_label)
    axes.set_xticks([SIDE * tick.at / 100 for tick in plot.x_ticks], [tick.text for tick in plot.x_ticks])
    axes.set_yticks([SIDE * tick.at / 100 for tick in plot.y_ticks], [tick.text for tick in plot.y_ticks])


def _level_legend(axes: Any, report: Report, levels: Sequence[int], figure: Figure | None = None) -> None:
    colours = palette(report.data.depth).levels
    handles = [mpl.patches.Patch(color=colours[level]) for level in levels]
    texts = [level_text(report.data.levels, level) for level in levels]
    if figure is not None:
        figure.legend(handles, texts, loc="outside lower center", ncols=min(4, len(texts)))
    else:
        axes.legend(handles, texts, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(4, len(texts)))


def _precision_recall(report: Report, curve: PrecisionRecall) -> Figure:
    figure = Figure(figsize=(4.2, 3.2), layout="constrained")
    axes = figure.subplots()
    _draw_lines(axes, curve_plot(report, curve), report)
    # Drawn back to front, named in the order of the models.
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1])
    return figure


def _draw_lines(axes: Any, plot: Plot, report: Report) -> None:
    lines = _model_lines(report)
    for shape in plot.shapes:
        colour, dashes = lines[shape.number]
        xs, ys = zip(*shape.points, strict=True) if shape.points else ((), ())
        axes.plot(xs, ys, color=colour, linestyle=dashes, linewidth=1.8, label=shape.label)
    _axes_of(axes, plot)
    axes.grid(axis="y", color="#e4e4ea", linewidth=0.7)


def _coverage(report: Report) -> Figure:
    """Accuracy of names over the share of queries named, a panel for each level."""
    plots = coverage_plots(report)
    columns = min(4, len(plots))
    rows = -(-len(plots) // columns)
    figure = Figure(figsize=(2.4 * columns + 0.4, 2.2 * rows + LEGEND), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, plot in zip(panels.flat, plots, strict=False):
        _draw_lines(axes, plot, report)
        axes.set(title=plot.title)
    for axes in panels.flat[len(plots) :]:
        axes.set_axis_off()
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=min(4, len(labels)))
    return figure


def _map(report: Report) -> Figure:
    assert report.class_map is not None
    figure, panels = _panels(report, 3.6, 3.8)
    colours = coarse_colours(report.class_map)
    coarse = np.array([point.coarse for point in report.class_map.points])
    size = float(np.clip(9000 / len(coarse), 3, 22))
    for index, (axes, model) in enumerate(zip(panels.flat, report.models, strict=True)):
        places = np.array([point.at[index] for point in report.class_map.points])
        for group, (name, colour) in enumerate(colours):
            mine = coarse == group
            axes.scatter(*places[mine].T, s=size, color=colour, linewidths=0, label=name, alpha=0.9)
        axes.set(title=model.name, xticks=[], yticks=[], aspect="equal")
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(4, len(names)), markerscale=1.5)
    return figure


def _examples(report: Report, examples: Sequence[Example], root: Path) -> Figure:
    """Query and answers in rows, framed by the level they share, as in the paper's figures."""
    colours = palette(report.data.depth)
    columns = 1 + max(len(answers) for example in examples for answers in example.answers)
    rows = len(examples) * len(report.models)
    # One axes in units of tiles for all pictures: an axes for each would take a minute.
    figure = Figure(figsize=(0.66 * columns, 0.82 * rows))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.35, columns), ylim=(1.24 * rows, 0.0))
    axes.set_axis_off()
    for at, example in enumerate(examples):
        for index, (model, answers) in enumerate(zip(report.models, example.answers, strict=True)):
            top = 1.24 * (at * len(report.models) + index)
            axes.text(-0.18, top + 0.5, model.name, rotation=90, ha="center", va="center", size=6.5)
            _picture(axes, (0.0, top), root / example.image, colours.query, leaf(example.path))
            for place, answer in enumerate(answers, start=1):
                colour = colours.levels[answer.level]
                _picture(axes, (float(place), top), root / answer.image, colour, leaf(answer.path))
    return figure


def _picture(axes: Any, corner: tuple[float, float], file: Path, colour: str, text: str) -> None:
    left, top = corner
    pixels = np.asarray(read_image(file))
    # The picture keeps its shape inside its square.
    height, width = pixels.shape[:2]
    half_wide, half_high = 0.44 * width / max(width, height), 0.44 * height / max(width, height)
    middle = (left + 0.5, top + 0.5)
    extent = (middle[0] - half_wide, middle[0] + half_wide, middle[1] + half_high, middle[1] - half_high)
    axes.imshow(pixels, extent=extent, aspect="auto", interpolation="antialiased")
    axes.add_patch(
        mpl.patches.Rectangle(
            (left + 0.04, top + 0.04), 0.92, 0.92, fill=False, edgecolor=colour, linewidth=2.2
        )
    )
    short = text if len(text) <= 14 else text[:13] + "\u2026"
    axes.text(middle[0], top + 1.02, short, ha="center", va="top", size=4.5)
