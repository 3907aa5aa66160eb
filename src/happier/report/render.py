"""A `Report` -> ``index.html``: all but the pictures is inside the page, nothing comes from the network."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from happier.data.class_path import leaf, parents, split, trail
from happier.evaluation.table import Metric
from happier.identification.table import COLUMNS, identification_note, identification_rows
from happier.report.charts import (
    answer_bars,
    coverage_names,
    coverage_plots,
    curve_plot,
    level_text,
    mistake_bars,
    share_plots,
    training_plot,
    whiskers,
)
from happier.report.class_map_colours import coarse_colours
from happier.report.data import ClassMap, Report
from happier.report.level_colours import css_variables, print_variables

TEMPLATES = Path(__file__).parent / "templates"
MAX_CLASS_ROWS = 2_000
"""Rows of the per-class table on the page; ``classes.csv`` has them all."""

DASH, MINUS = "\u2013", "\u2212"


def template_environment() -> jinja2.Environment:
    """The templates of the pages; what they show is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(report: Report, figures: Sequence[str] = ()) -> str:
    """The page as text.

    Args:
        report: what to show.
        figures: names of the figure files beside the page, for the list of downloads.
    """
    environment = template_environment()
    depth = report.data.depth
    environment.filters.update(
        pct=_percent,
        signed=_signed,
        count=lambda number: f"{number:,}",
        leaf=leaf,
        parents=parents,
        trail=trail,
        p_value=_p_value,
        json=_script_json,
    )
    page = environment.get_template("index.html.j2")
    shown = report.classes[:MAX_CLASS_ROWS]
    return page.render(
        r=report,
        depth=depth,
        # Three or four models share the width in a layout of their own; the page of fewer does not change.
        many=f" many of-{len(report.models)}" if len(report.models) > 2 else "",
        levels=list(range(depth, -1, -1)),
        level_text=lambda level: level_text(report.data.levels, level),
        colours=Markup(css_variables(depth) + print_variables(depth)),  # noqa: S704 (our own numbers)
        mistake_bars=mistake_bars(report),
        answer_bars=answer_bars(report),
        share_plots=share_plots(report),
        curve=curve_plot(report, report.curve) if report.curve else None,
        identification_columns=COLUMNS,
        identification_rows=[identification_rows(one) for one in report.identification],
        identification_note=identification_note(report.identification[0]) if report.identification else "",
        coverage_names=coverage_names(report) if report.identification else (),
        coverage_plots=coverage_plots(report),
        training=[training_plot(report, curve) for curve in report.training],
        whiskers=whiskers(report.metrics),
        coarse_colours=coarse_colours(report.class_map) if report.class_map else [],
        map_data=_map_data(report.class_map),
        sprite_at={p.path: i for i, p in enumerate(report.class_map.points)} if report.class_map else {},
        class_rows=shown,
        figures=figures,
        groups=_groups(report.metrics),
    )


def _groups(metrics: Sequence[Metric]) -> dict[str, list[Metric]]:
    groups: dict[str, list[Metric]] = {}
    for metric in metrics:
        groups.setdefault(metric.group, []).append(metric)
    return groups


def _map_data(class_map: ClassMap | None) -> dict[str, Any] | None:
    if class_map is None:
        return None
    return {
        "colours": [colour for _, colour in coarse_colours(class_map)],
        "paths": [split(point.path) for point in class_map.points],
        "coarse": [point.coarse for point in class_map.points],
        "at": [[[round(x, 4), round(y, 4)] for x, y in point.at] for point in class_map.points],
        "sprite": class_map.sprite,
        "columns": class_map.sprite_columns,
        "cell": class_map.sprite_cell,
    }


def _percent(fraction: float, digits: int = 1) -> str:
    return DASH if fraction is None or math.isnan(fraction) else f"{100 * fraction:.{digits}f}"


def _signed(value: float, unit: str) -> str:
    if math.isnan(value):
        return DASH
    text = f"{100 * value:+.1f}" if unit == "percent" else f"{value:+.2f}"
    return text.replace("-", MINUS)


def _p_value(value: float) -> str:
    if math.isnan(value):
        return DASH
    return "p\u00a0<\u00a00.001" if value < 0.001 else f"p\u00a0=\u00a0{value:.3f}"


def _script_json(value: Any) -> Markup:
    """JSON that is safe inside a script element: no name in the data can close it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))  # noqa: S704
