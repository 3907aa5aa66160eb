"""The shapes of the JSON API; made from its description by `happier.client.openapi_types`."""

from __future__ import annotations

from typing import TypedDict


class ChangeOut(TypedDict):
    """What a change of the index did."""

    ids: list[str]
    version: str
    images: int


class ChoiceOut(TypedDict):
    """A class and its probability."""

    class_path: str
    names: list[str]
    probability: float


class ClassOut(TypedDict):
    """A class: what is in it, how well it is found, what it is confused with."""

    node: TreeOut
    ready: bool
    confusions: list[ConfusionOut]


class ConfusionOut(TypedDict):
    """A class that another is confused with."""

    path: str
    names: list[str]
    level: int
    share: float


class DecisionIn(TypedDict):
    """What a person decided."""

    id: str
    label: str
    decision: str
    class_path: str


class DecisionOut(TypedDict):
    """How many decisions there are now."""

    decisions: int


class FoundOut(TypedDict):
    """Classes by name."""

    classes: list[NodeOut]


class Health(TypedDict):
    """Whether the server answers."""

    status: str
    version: str
    uptime_seconds: float


class HitOut(TypedDict):
    """An image found."""

    row: int
    id: str
    class_path: str
    names: list[str]
    thumbnail: str
    image: str
    rank: int
    score: float
    level: int | None


class IdentifyOut(TypedDict):
    """What an image is, as deep as the index is sure."""

    side: str
    sure: float
    within: str
    answer: StepOut
    is_new: bool
    steps: list[StepOut]
    neighbours: list[HitOut]
    rough: bool


class ImageOut(TypedDict):
    """An image of the index."""

    row: int
    id: str
    class_path: str
    names: list[str]
    thumbnail: str
    image: str


class IndexInfo(TypedDict):
    """One index."""

    side: str
    name: str
    images: int
    classes: int
    engine: str
    exact: bool
    embeds: bool
    model: str
    analysed: bool
    version: str


class Info(TypedDict):
    """What is being explored."""

    title: str
    levels: list[str]
    sides: list[IndexInfo]
    max_k: int
    max_upload_bytes: int
    credits: str | None


class ItemsOut(TypedDict):
    """Some images of a branch."""

    items: list[ImageOut]
    total: int
    offset: int
    version: str


class MapOut(TypedDict):
    """The catalogue as a plane; its points are at ``/api/map/points``."""

    ready: bool
    version: str
    total: int
    classes: list[str]


class Metrics(TypedDict):
    """How good the whole ranking of this query is."""

    h_ap: float | None
    severity: dict[str, float | None]
    average_precision: dict[str, float | None]
    counts: list[int]


class MistakeOut(TypedDict):
    """A query and its first result that is further off than necessary."""

    query: ImageOut
    result: HitOut
    h_ap: float | None
    severity: float
    other_h_ap: float | None


class MistakesOut(TypedDict):
    """Queries that went wrong, the worst first."""

    ready: bool
    mistakes: list[MistakeOut]
    total: int
    offset: int


class NodeOut(TypedDict):
    """A class of the taxonomy."""

    path: str
    names: list[str]
    name: str
    level: int
    count: int
    classes: int
    h_ap: float | None


class Problem(TypedDict):
    """Why a request was refused."""

    detail: str


class QueryOut(TypedDict):
    """What was searched with."""

    item: ImageOut | None
    upload: str | None
    name: str
    class_path: str
    names: list[str]
    thumbnail: str
    image: str


class SearchOut(TypedDict):
    """A ranking."""

    side: str
    version: str
    query: QueryOut
    positive: list[QueryOut]
    negative: list[QueryOut]
    k: int
    offset: int
    within: str
    total: int
    hits: list[HitOut]
    metrics: Metrics | None
    alone: Metrics | None


class StepOut(TypedDict):
    """One class of the likeliest path."""

    class_path: str
    names: list[str]
    probability: float
    level: int
    new: float
    alternatives: list[ChoiceOut]


class SuspectOut(TypedDict):
    """A label, or a class, that is probably wrong."""

    kind: str
    severity: int
    confidence: float
    item: ImageOut | None
    label: str
    names: list[str]
    proposed: str
    proposed_names: list[str]
    evidence: list[ImageOut]
    decision: str | None
    decided_class: str


class SuspectsOut(TypedDict):
    """Labels that are probably wrong, the most severe first."""

    ready: bool
    writable: bool
    suspects: list[SuspectOut]
    total: int
    decided: int
    offset: int


class TreeOut(TypedDict):
    """A class and those below it."""

    path: str
    names: list[str]
    name: str
    level: int
    count: int
    classes: int
    h_ap: float | None
    children: list[NodeOut]
    more: int


class UploadOut(TypedDict):
    """An image that is kept for a while to search with."""

    upload: str
    thumbnail: str
