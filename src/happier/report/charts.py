"""Report data -> the geometry of its charts, which the page and the figure files both draw.

A plot's shapes live in a square of 1000 x 1000 that is stretched to its place, so that lines and labels keep
their size on a phone; ticks are positions in percent with their text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from happier.evaluation.table import Metric
from happier.identification.experiment import NEAREST
from happier.report.data import PrecisionRecall, Report, TrainingCurve

SIDE = 1000.0
SMALLEST_LABELLED = 0.06
"""Smallest share of a bar that has room for its figure."""


@dataclass(frozen=True)
class Shape:
    """A line or a filled band of a plot.

    Attributes:
        kind: of shape.
        css: what it stands for: ``model-0``, ``level-2``.
        points: in the square, y upwards; a band's outline.
        label: for the legend.
        y: the values behind it, for the readout.
    """

    kind: Literal["line", "band"]
    css: str
    points: tuple[tuple[float, float], ...]
    label: str
    y: tuple[float, ...] = ()

    @property
    def d(self) -> str:
        """The outline as an SVG path, whose y runs downwards."""
        steps = "L".join(f"{x:.1f} {SIDE - y:.1f}" for x, y in self.points)
        return f"M{steps}{'Z' if self.kind == 'band' else ''}" if steps else ""

    @property
    def number(self) -> int:
        """Number of the model or the level that it stands for."""
        return int(self.css.rpartition("-")[2])


@dataclass(frozen=True)
class Tick:
    """A position along an axis in percent, and its label."""

    at: float
    text: str


@dataclass(frozen=True)
class Plot:
    """One chart: shapes back to front, ticks, and a sentence for those who cannot see it."""

    title: str
    summary: str
    shapes: tuple[Shape, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_label: str
    y_label: str
    unit: Literal["percent", "plain"] = "percent"
    x_positions: tuple[float, ...] = field(default=())
    x_names: tuple[str, ...] = field(default=())


def level_text(levels: Sequence[str], level: int) -> str:
    """What it means to share exactly ``level`` levels.

    >>> level_text(["group", "emoji"], 1), level_text(["group", "emoji"], 0)
    ('same group', 'nothing shared')
    """
    if level == 0:
        return "nothing shared"
    name = levels[level - 1]
    return f"same level {name}" if name.isdigit() else f"same {name}"


def share_plots(report: Report) -> tuple[Plot, ...]:
    """Per model: what the top k is made of as k grows, the same fine class at the bottom."""
    severity, levels = report.severity, report.data.levels
    positions = _log_positions(severity.ks)
    ticks = tuple(
        Tick(100 * at / SIDE, str(k))
        for k, at in zip(severity.ks, positions, strict=True)
        if k in {1, 2, 5, 10, 20, 50, 100} or k == severity.ks[-1]
    )
    plots = []
    for model, shares in zip(report.models, severity.shares, strict=True):
        floor = [0.0] * len(severity.ks)
        shapes = []
        for level in range(len(levels), -1, -1):
            roof = [low + share for low, share in zip(floor, shares[level], strict=True)]
            shapes.append(
                Shape(
                    "band",
                    f"level-{level}",
                    _band(positions, floor, roof),
                    level_text(levels, level),
                    shares[level],
                )
            )
            floor = roof
        first, last = shares[len(levels)][0], shares[len(levels)][-1]
        summary = (
            f"{model.name}: {first:.0%} of the first answers are of the query's own {levels[-1]}, "
            f"{last:.0%} of the first {severity.ks[-1]}; {shares[0][-1]:.0%} of those share nothing with it."
        )
        plots.append(
            Plot(
                model.name,
                summary,
                tuple(shapes),
                ticks,
                _percent_ticks(1.0),
                "k, answers looked at",
                "share of the top k",
                x_positions=tuple(positions),
                x_names=tuple(f"top {k}" for k in severity.ks),
            )
        )
    return tuple(plots)


def curve_plot(report: Report, curve: PrecisionRecall) -> Plot:
    """Hierarchical precision over hierarchical recall of every model."""
    positions = [SIDE * recall for recall in curve.recall]
    shapes = [
        Shape(
            "line",
            f"model-{index}",
            _line(positions, precision),
            f"{model.name}, H-AP {100 * area:.1f}",
            precision,
        )
        for index, (model, precision, area) in enumerate(
            zip(report.models, curve.precision, curve.area, strict=True)
        )
    ]
    areas = ", ".join(
        f"{model.name} {100 * area:.1f}" for model, area in zip(report.models, curve.area, strict=True)
    )
    return Plot(
        "Hierarchical precision and recall",
        f"The area under each curve is the model's H-AP: {areas}.",
        # The model the report is about is drawn last, on top.
        tuple(reversed(shapes)),
        tuple(Tick(100 * step / 5, f"{step / 5:.0%}") for step in range(6)),
        _percent_ticks(1.0),
        "hierarchical recall",
        "hierarchical precision",
        x_positions=tuple(positions),
        x_names=tuple(f"recall {recall:.0%}" for recall in curve.recall),
    )


def coverage_plots(report: Report) -> tuple[Plot, ...]:
    """Per level: accuracy of the names among the surest queries.

    A line for every model; a single one stands beside the nearest neighbour.
    """
    found = report.identification
    if not found:
        return ()
    names = coverage_names(report)
    positions = [SIDE * share for share in found[0].coverage]
    plots = []
    for level, title in enumerate(found[0].levels):
        curves = [one.curves[level] for one in found]
        if len(found) == 1:
            curves.append(found[0].nearest_curves[level])
        shapes = [
            Shape("line", f"model-{index}", _line(positions, curve), name, curve)
            for index, (name, curve) in enumerate(zip(names, curves, strict=True))
        ]
        ends = ", ".join(f"{shape.label} {shape.y[-1]:.0%}" for shape in shapes)
        plots.append(
            Plot(
                title,
                f"Right names at the level {title} over the share of queries named, the surest first; "
                f"where all are named: {ends}.",
                tuple(reversed(shapes)),
                tuple(Tick(25.0 * step, f"{step / 4:.0%}") for step in range(5)),
                _percent_ticks(1.0),
                "queries named, the surest first",
                "right",
                x_positions=tuple(positions),
                x_names=tuple(f"the surest {share:.0%}" for share in found[0].coverage),
            )
        )
    return tuple(plots)


def coverage_names(report: Report) -> tuple[str, ...]:
    """What each line of `coverage_plots` stands for."""
    if len(report.models) == 1:
        return report.identification[0].methods[0].name, NEAREST
    return tuple(model.name for model in report.models)


def training_plot(report: Report, curve: TrainingCurve) -> Plot:
    """One quantity over the steps; losses of different kinds share no scale, so each fills its own."""
    fraction = curve.name != "loss"
    last = max((series.x[-1] for series in curve.series if series.x), default=1.0)
    first = min((series.x[0] for series in curve.series if series.x), default=0.0)
    width = max(last - first, 1e-9)
    shapes = []
    top = 1.0
    if fraction:
        highest = max((value for series in curve.series for value in series.y), default=1.0)
        top = min(1.0, math.ceil(10 * highest + 0.2) / 10)
    for series in curve.series:
        if fraction:
            heights = [value / top for value in series.y]
        else:
            low, high = min(series.y), max(series.y)
            heights = [(value - low) / max(high - low, 1e-12) * 0.92 + 0.04 for value in series.y]
        positions = [SIDE * (x - first) / width for x in series.x]
        shapes.append(
            Shape(
                "line",
                f"model-{series.model}",
                _line(positions, heights),
                f"{report.models[series.model].name}: {_span(series.y, fraction)}",
                series.y,
            )
        )
    return Plot(
        curve.name,
        "; ".join(shape.label for shape in shapes),
        tuple(reversed(shapes)),
        tuple(Tick(100 * (x - first) / width, f"{x:g}") for x in _round_steps(first, last)),
        _percent_ticks(top) if fraction else (),
        "step",
        curve.name if fraction else "loss, each on its own scale",
        unit="percent" if fraction else "plain",
    )


@dataclass(frozen=True)
class Segment:
    """A part of a stacked bar: its level, its share, where it begins, and its label where that fits."""

    level: int
    share: float
    start: float
    text: str


def mistake_bars(report: Report) -> tuple[tuple[Segment, ...], ...]:
    """Per model: what the first wrong answer shares with the query, the nearest at the left."""
    return tuple(_stacked((*shares, 0.0))[1:] for shares in report.severity.first_mistake)


def answer_bars(report: Report) -> tuple[tuple[Segment, ...], ...]:
    """Per model: what the longest top k is made of, the same fine class at the left."""
    return tuple(_stacked([level[-1] for level in shares]) for shares in report.severity.shares)


def _stacked(shares: Sequence[float]) -> tuple[Segment, ...]:
    """The segments of a bar from the shares of the levels 0..L, the finest level first."""
    segments, start = [], 0.0
    for level in range(len(shares) - 1, -1, -1):
        text = f"{100 * shares[level]:.0f} %" if shares[level] >= SMALLEST_LABELLED else ""
        segments.append(Segment(level, shares[level], start, text))
        start += shares[level]
    return tuple(segments)


@dataclass(frozen=True)
class Whisker:
    """A difference with its interval on a common axis, in percent of the width; `zero` is where 0 is."""

    low: float
    mean: float
    high: float
    zero: float


def whiskers(metrics: Sequence[Metric]) -> dict[str, Whisker]:
    """Position of each row's difference, one common scale per unit."""
    result = {}
    for unit in ("percent", "levels"):
        rows = [m for m in metrics if m.unit == unit and m.difference and math.isfinite(m.difference.mean)]
        ends = [0.0] + [end for m in rows if m.difference for end in (m.difference.low, m.difference.high)]
        low, high = min(ends), max(ends)
        margin = 0.06 * max(high - low, 1e-9)
        low, width = low - margin, high - low + 2 * margin
        for metric in rows:
            assert metric.difference is not None
            difference = metric.difference
            result[metric.key] = Whisker(
                *(100 * (x - low) / width for x in (difference.low, difference.mean, difference.high, 0.0))
            )
    return result


def _span(values: Sequence[float], fraction: bool) -> str:
    first, last = values[0], values[-1]
    return f"{100 * first:.1f} to {100 * last:.1f}" if fraction else f"{first:.3g} to {last:.3g}"


def _log_positions(ks: Sequence[int]) -> list[float]:
    """Positions on a logarithmic axis: the first answers matter most."""
    last = math.log(ks[-1]) if ks[-1] > 1 else 1.0
    return [SIDE * math.log(k) / last for k in ks] if len(ks) > 1 else [0.0]


def _percent_ticks(top: float) -> tuple[Tick, ...]:
    steps = 4 if top in (1.0, 0.8, 0.4) else round(10 * top)
    return tuple(Tick(100 * step / steps, f"{top * step / steps:.0%}") for step in range(steps + 1))


def _round_steps(first: float, last: float) -> list[float]:
    width = max(last - first, 1e-9)
    step = next(s for p in range(-3, 9) for s in (10**p, 2 * 10**p, 5 * 10**p) if width / s <= 6)
    start = math.ceil(first / step - 1e-9)
    return [step * n for n in range(start, math.floor(last / step + 1e-9) + 1)]


def _line(xs: Sequence[float], heights: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple((x, SIDE * y) for x, y in zip(xs, heights, strict=True) if math.isfinite(y))


def _band(
    xs: Sequence[float], floor: Sequence[float], roof: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    return _line(xs, roof) + _line(xs, floor)[::-1]
