"""What a report says, as plain data: collected first, rendered afterwards, and stored as ``data.json``.

Per-model sequences are always in the order of `Report.models`: the model the report is about, then the one
it is compared with, then those shown alongside, if any. Only the first two are compared: the
differences, the choice of examples and the headline are theirs. Levels run from 0 (nothing shared) to L (the
same fine class). Shares and metrics in percent are stored as fractions of 1; only the page multiplies by 100.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from happier.evaluation.table import Metric
from happier.identification.experiment import IdentificationFigures
from happier.storage.records import to_json, write_json

Reason = Literal["gain", "typical", "loss"]


@dataclass(frozen=True)
class Model:
    """One model of the report; see the module for their order."""

    name: str
    source: str
    loss: str | None = None
    backbone: str | None = None
    epochs: int | None = None
    fingerprint: str | None = None


@dataclass(frozen=True)
class DataSet:
    """The data that was searched."""

    name: str
    protocol: str
    levels: tuple[str, ...]
    classes: tuple[int, ...]
    queries: int
    gallery: int
    queries_without_positives: int
    credits: str | None = None

    @property
    def depth(self) -> int:
        """Number of levels L."""
        return len(self.levels)


@dataclass(frozen=True)
class Severity:
    """How wrong the wrong answers are.

    Attributes:
        first_mistake: per model, the share of queries whose first answer outside the query's fine class
            shares level 0 .. L-1 with it.
        never_wrong: per model, the share of queries with no such answer at all.
        ks: depths of the list at which `shares` are taken.
        shares: per model and per level 0..L, the mean share of the top k at exactly that level, one per k.
    """

    first_mistake: tuple[tuple[float, ...], ...]
    never_wrong: tuple[float, ...]
    ks: tuple[int, ...]
    shares: tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True)
class PrecisionRecall:
    """The models' hierarchical precision over the same steps of hierarchical recall, means over queries.

    Attributes:
        recall: middle of each step.
        precision: per model, one value for each step.
        area: per model, the mean height, which is its H-AP.
    """

    recall: tuple[float, ...]
    precision: tuple[tuple[float, ...], ...]
    area: tuple[float, ...]


@dataclass(frozen=True)
class Point:
    """One fine class on the map: its position in each model's plane, 0..1."""

    path: str
    coarse: int
    at: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class ClassMap:
    """t-SNE of the mean embedding of each fine class.

    Attributes:
        coarse: names of the coarse classes, the largest first.
        points: the fine classes, in the order of the pictures in `sprite`.
        left_out: fine classes not drawn because there are too many.
        sprite: one picture of each class in a grid, a file of the report, or None.
        sprite_columns, sprite_cell: its number of columns and the pixels of a cell.
        agreement: per model, the share of a class's 5 nearest other classes, by cosine, that are of its own
            coarse class.
    """

    coarse: tuple[str, ...]
    points: tuple[Point, ...]
    left_out: int
    seed: int
    perplexity: float
    agreement: tuple[float, ...]
    sprite: str | None = None
    sprite_columns: int = 0
    sprite_cell: int = 0


@dataclass(frozen=True)
class Answer:
    """One retrieved image."""

    path: str
    file: str
    image: str
    level: int
    score: float


@dataclass(frozen=True)
class Example:
    """One query with what each model retrieves for it."""

    reason: Reason
    path: str
    file: str
    image: str
    h_ap: tuple[float, ...]
    answers: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True)
class Examples:
    """The retrieval grids and how their queries were chosen: by the first two models, or by the only one."""

    seed: int
    rules: dict[Reason, str]
    items: tuple[Example, ...]


@dataclass(frozen=True)
class Confusion:
    """The class that most often gives the first wrong answer for a class."""

    path: str
    distance: int
    share: float


@dataclass(frozen=True)
class ClassRow:
    """One fine class of the per-class table."""

    path: str
    queries: int
    h_ap: tuple[float, ...]
    ap: tuple[float, ...]
    severity: tuple[float, ...]
    confused: tuple[Confusion | None, ...]


@dataclass(frozen=True)
class Series:
    """One line of a training curve."""

    model: int
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class TrainingCurve:
    """One quantity of the training runs over their steps."""

    name: str
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Provenance:
    """All that is needed to reproduce the report."""

    created: str
    commands: tuple[str, ...]
    environment: dict[str, str]
    configs: tuple[str | None, ...]
    settings: dict[str, str]


@dataclass(frozen=True)
class Report:
    """A whole report, of one to four models.

    Attributes:
        identification: per model, how well its vectors name images; empty where that cannot be measured.
    """

    title: str
    data: DataSet
    models: tuple[Model, ...]
    headline: str
    metrics: tuple[Metric, ...]
    severity: Severity
    curve: PrecisionRecall | None
    class_map: ClassMap | None
    examples: Examples
    classes: tuple[ClassRow, ...]
    identification: tuple[IdentificationFigures, ...]
    training: tuple[TrainingCurve, ...]
    provenance: Provenance

    def metric(self, key: str) -> Metric:
        """The row of the table with this key."""
        return next(metric for metric in self.metrics if metric.key == key)

    def to_json(self) -> str:
        """The whole report as JSON; an undefined number is null."""
        return to_json(_rounded(asdict(self)))

    def write(self, path: Path) -> None:
        """Write `to_json` to a file, atomically."""
        write_json(_rounded(asdict(self)), path)


def _rounded(value: Any) -> Any:
    """Round to six digits: more than any picture shows, and a smaller file."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
