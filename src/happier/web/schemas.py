"""The shapes of the JSON API."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


class Health(BaseModel):
    """Whether the server answers."""

    status: str
    version: str
    uptime_seconds: float


class IndexInfo(BaseModel):
    """One index."""

    side: str
    name: str
    images: int
    classes: int
    engine: str
    exact: bool
    embeds: bool = Field(description="whether new images can be searched with")
    model: str = Field(description="fingerprint of the model's weights")
    analysed: bool = Field(description="whether mistakes and class scores answer at once")
    version: str = Field(description="state of the index; another one after each change")


class Info(BaseModel):
    """What is being explored."""

    title: str
    levels: list[str] = Field(description="coarse to fine")
    sides: list[IndexInfo]
    max_k: int
    max_upload_bytes: int
    credits: str | None


class ImageOut(BaseModel):
    """An image of the index."""

    row: int
    id: str
    class_path: str
    names: list[str] = Field(description="the class, coarse to fine, down to what is known")
    thumbnail: str
    image: str


class HitOut(ImageOut):
    """An image found."""

    rank: int
    score: float
    level: int | None = Field(description="level shared with the query, 0 for none; null where unknown")


class Metrics(BaseModel):
    """How good the whole ranking of this query is."""

    h_ap: float | None
    severity: dict[int, float | None]
    average_precision: dict[str, float | None]
    counts: list[int] = Field(description="images of the index at each shared level, 0 first")


class QueryOut(BaseModel):
    """What was searched with."""

    item: ImageOut | None
    upload: str | None
    name: str
    class_path: str
    names: list[str]
    thumbnail: str
    image: str


class SearchOut(BaseModel):
    """A ranking."""

    side: str
    version: str = Field(description="state of the index that was searched")
    query: QueryOut = Field(description="the first image that the results should be like")
    positive: list[QueryOut] = Field(description="all images that they should be like")
    negative: list[QueryOut] = Field(description="images that they should not be like")
    k: int
    offset: int
    within: str
    total: int = Field(description="images that could be found")
    hits: list[HitOut]
    metrics: Metrics | None = Field(description="for the class of the first image")
    alone: Metrics | None = Field(
        description="of several images: the same for the first one alone, ranking the same images"
    )


class ChangeOut(BaseModel):
    """What a change of the index did."""

    ids: list[str] = Field(description="of the images that were added or removed")
    version: str = Field(description="state of the index after the change")
    images: int = Field(description="in the index after the change")


class ChoiceOut(BaseModel):
    """A class and its probability."""

    class_path: str
    names: list[str]
    probability: float


class StepOut(ChoiceOut):
    """One class of the likeliest path."""

    level: int = Field(description="1 is the coarsest; 0 is the whole tree")
    new: float = Field(description="probability of this class, but of none that the index knows below it")
    alternatives: list[ChoiceOut] = Field(description="the known classes below it, likeliest first")


class IdentifyOut(BaseModel):
    """What an image is, as deep as the index is sure."""

    side: str
    sure: float
    within: str
    answer: StepOut = Field(description="the deepest class whose probability reaches `sure`")
    is_new: bool = Field(description="whether it is sure to be of no class below the answer")
    steps: list[StepOut] = Field(description="the likeliest path, from the whole tree to the finest class")
    neighbours: list[HitOut] = Field(description="the images that voted, nearest first")
    rough: bool = Field(description="whether there were too few images to calibrate well")


class UploadOut(BaseModel):
    """An image that is kept for a while to search with."""

    upload: str = Field(description="its key")
    thumbnail: str


class NodeOut(BaseModel):
    """A class of the taxonomy."""

    path: str
    names: list[str]
    name: str
    level: int = Field(description="1 is the coarsest; 0 is the whole tree")
    count: int
    classes: int = Field(description="children")
    h_ap: float | None


class TreeOut(NodeOut):
    """A class and those below it."""

    children: list[NodeOut]
    more: int = Field(description="children that were left out")


class ItemsOut(BaseModel):
    """Some images of a branch."""

    items: list[ImageOut]
    total: int
    offset: int
    version: str = Field(description="state of the index that was listed")


class FoundOut(BaseModel):
    """Classes by name."""

    classes: list[NodeOut]


class MistakeOut(BaseModel):
    """A query and its first result that is further off than necessary."""

    query: ImageOut
    result: HitOut
    h_ap: float | None
    severity: float
    other_h_ap: float | None


class MistakesOut(BaseModel):
    """Queries that went wrong, the worst first."""

    ready: bool = Field(description="false while the rankings are being computed: ask again")
    mistakes: list[MistakeOut]
    total: int
    offset: int


class MapOut(BaseModel):
    """The catalogue as a plane; its points are at ``/api/map/points``."""

    ready: bool = Field(description="false while it is being laid out: ask again")
    version: str = Field(description="state of the index that it is of")
    total: int = Field(description="number of images")
    classes: list[str] = Field(description="paths of the classes that points refer to")


class SuspectOut(BaseModel):
    """A label, or a class, that is probably wrong."""

    kind: str = Field(description="label, duplicate, alike or divided")
    severity: int = Field(description="levels between the label and what it probably should be")
    confidence: float
    item: ImageOut | None = Field(description="the image; null where it is about whole classes")
    label: str
    names: list[str] = Field(description="the label, coarse to fine")
    proposed: str
    proposed_names: list[str]
    evidence: list[ImageOut]
    decision: str | None = Field(description="right, wrong or skip; null where it is open")
    decided_class: str


class SuspectsOut(BaseModel):
    """Labels that are probably wrong, the most severe first."""

    ready: bool = Field(description="false while they are being found: ask again")
    writable: bool = Field(description="whether decisions are kept")
    suspects: list[SuspectOut]
    total: int
    decided: int
    offset: int


class DecisionIn(BaseModel):
    """What a person decided."""

    id: str = Field("", max_length=4096, description="the image; empty for the whole class")
    label: str = Field(max_length=2048)
    decision: Literal["right", "wrong", "skip"]
    class_path: str = Field("", max_length=2048, description="the class that it is, where it is wrong")


class DecisionOut(BaseModel):
    """How many decisions there are now."""

    decisions: int


class ConfusionOut(BaseModel):
    """A class that another is confused with."""

    path: str
    names: list[str]
    level: int
    share: float


class ClassOut(BaseModel):
    """A class: what is in it, how well it is found, what it is confused with."""

    node: TreeOut
    ready: bool = Field(description="false while the rankings are being computed: ask again")
    confusions: list[ConfusionOut]
