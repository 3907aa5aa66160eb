"""Tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from happier.evaluation.paper_tables import PublishedTable
from happier.evaluation.statistics import format_p_value
from happier.evaluation.table import Metric, format_value


def metrics_table(rows: Sequence[Metric], names: Sequence[str], title: str) -> Table:
    """The figures with their intervals, and the paired differences of the first two models.

    Of more than two models only the means fit a terminal; their intervals are in ``--json``.
    """
    many = len(names) > 2
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0) if many else (0, 1),
    )
    table.add_column("metric", no_wrap=True)
    for name in names:
        # A long name takes several lines, so that no figure is truncated.
        table.add_column(Text(name), justify="right", overflow="fold", min_width=5)
        if not many:
            table.add_column("95 %", style="dim", no_wrap=True)
    if len(names) > 1:
        of = "\n1st - 2nd" if many else ""
        table.add_column(f"difference{of}", justify="right", no_wrap=True)
        table.add_column("95 %", style="dim", no_wrap=True)
        table.add_column("p", justify="right", style="dim", no_wrap=True)
    group = None
    for row in rows:
        if group not in (None, row.group):
            table.add_section()
        group = row.group
        cells: list[Text | str] = [Text(row.key)]
        for index, value in enumerate(row.values):
            style = "bold" if row.best == index else ""
            cells.append(Text(format_value(value.mean, row.unit), style=style))
            if not many:
                cells.append(_interval(value.low, value.high, row))
        if row.difference:
            difference = row.difference
            colour = {True: "green", False: "red", None: ""}[row.improved]
            cells += [
                Text(format_value(difference.mean, row.unit, signed=True), style=colour),
                _interval(difference.low, difference.high, row, signed=True),
                format_p_value(difference.p_value),
            ]
        table.add_row(*cells)
    return table


def dyml_table(summaries: Sequence[Mapping[str, float]], names: Sequence[str]) -> Table:
    """DyML's three metrics: the mean over the test sets, and each set's own."""
    table = Table(
        title="DyML protocol", title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("metric")
    for name in names:
        table.add_column(Text(name), justify="right")
    sets = [key.split("/", 1)[1] for key in summaries[0] if key.startswith("mAP/")]
    for suffix in ("", *(f"/{name}" for name in sets)):
        for metric in ("mAP", "ASI", "R@1"):
            key = metric + suffix
            label = f"{metric}, mean" if not suffix else f"{metric}, {suffix[1:]}"
            style = "bold" if not suffix else ""
            table.add_row(
                Text(label, style=style), *(format_value(found[key], "percent") for found in summaries)
            )
        table.add_section()
    return table


def revisited_table(summaries: Sequence[Mapping[str, float]], names: Sequence[str]) -> Table:
    """MAP and mP@k of the protocols of revisited Oxford and Paris."""
    table = Table(title="Revisited protocol", title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("metric")
    for name in names:
        table.add_column(Text(name), justify="right")
    for key in summaries[0]:
        if not key.startswith("queries"):
            label = ", ".join(key.split("/"))
            table.add_row(label, *(format_value(found[key], "percent") for found in summaries))
    return table


def published_table(published: PublishedTable, own: Mapping[str, tuple[float, ...]]) -> Table:
    """The paper's rows, with these models below."""
    title = f"{published.title} as published (Ramzi et al., ECCV 2022), and these models"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for column in published.columns:
        table.add_column(column, justify="right")
    for name, values in published.rows.items():
        table.add_row(name, *("-" if value is None else f"{value:.1f}" for value in values), style="dim")
    table.add_section()
    for name, figures in own.items():
        table.add_row(Text(name, style="bold"), *(f"{value:.1f}" for value in figures))
    return table


def _interval(low: float, high: float, row: Metric, *, signed: bool = False) -> str:
    if math.isnan(low):
        return ""
    return f"{format_value(low, row.unit, signed=signed)}..{format_value(high, row.unit, signed=signed)}"
