"""The figures of identification for a terminal."""

from __future__ import annotations

import math

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from happier.identification.experiment import RIGHT, IdentificationFigures

__all__ = ["COLUMNS", "identification_note", "identification_rows", "identification_table"]

COLUMNS = (
    "method",
    "accuracy by level",
    "ECE by level",
    "depth",
    "right",
    "severity",
    "depth at 90 %",
    "wrong levels",
    "severe",
    "new AUROC",
)


def identification_rows(figures: IdentificationFigures) -> list[tuple[str, ...]]:
    """A row of texts for each method, as `COLUMNS` says; percents but for ECE, depth, severity and AUROC."""
    return [
        (
            one.name,
            " ".join(_number(100 * value, 1) for value in one.accuracy),
            " ".join(_number(value, 3) for value in one.calibration_error),
            _number(one.answers.depth, 2),
            _number(100 * one.answers.right, 1),
            _number(one.answers.severity, 2),
            _number(one.depth_at_right, 2),
            _number(one.at_depth.wrong, 2),
            _number(100 * one.at_depth.severe, 1),
            _number(one.new_auroc, 3),
        )
        for one in figures.methods
    ]


def identification_table(figures: IdentificationFigures, name: str) -> Table:
    """One row for each method."""
    title = Text(f"{name}: images named, {' > '.join(figures.levels)}", style="bold")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in identification_rows(figures):
        table.add_row(*row)
    return table


def identification_note(figures: IdentificationFigures) -> str:
    """What the columns mean."""
    text = (
        f"{figures.queries:,} queries, {100 * figures.new:.0f} % of them of classes that the index of "
        f"{figures.indexed:,} images lacks; coarse to fine. ECE: expected calibration error. Depth, right, "
        f"severity: levels answered where a probability reaches {figures.sure:g} (the nearest neighbour "
        "always answers), share of right answers, wrong levels of a wrong one. Depth at "
        f"{100 * RIGHT:.0f} %: how deep answers can be if that share of them is to be right. At the average "
        "depth of the answers down the tree: wrong levels for each query, and severe, queries with a wrong "
        f"{figures.levels[0]}. New AUROC: seen against unseen classes."
    )
    return text + (" Too few images to calibrate well." if figures.rough else "")


def _number(value: float, digits: int) -> str:
    return "\u2013" if math.isnan(value) else f"{value:.{digits}f}"
