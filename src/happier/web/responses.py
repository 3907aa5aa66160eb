"""What the explorer found, in the shapes of the JSON API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from happier.curation.corrections import Correction
from happier.curation.suspects import Suspect
from happier.data.class_path import split as split_path
from happier.data.class_tree import ClassNode
from happier.identification.answers import Choice, Step
from happier.search.identify import Identification
from happier.search.index import Hit
from happier.web import schemas
from happier.web.explorer import ConfusedClass, Explorer, Mistake
from happier.web.indexed_model import IndexedModel
from happier.web.search_query import QueryImage, QueryMetrics, SearchQuery

MAX_CHILDREN = 500


def index_info(model: IndexedModel) -> schemas.IndexInfo:
    """What the page must know about one index."""
    head = model.index.head
    return schemas.IndexInfo(
        side=model.key,
        name=model.name,
        images=len(model.index),
        classes=len(model.tree),
        engine=head.engine,
        exact=model.index.exact,
        embeds=model.embeds,
        model=head.fingerprint,
        analysed=model.analysed,
        version=model.version,
    )


def item_out(model: IndexedModel, row: int) -> schemas.ImageOut:
    """An image of the index."""
    return schemas.ImageOut(**_item_fields(model, row))


def _item_fields(model: IndexedModel, row: int) -> dict[str, Any]:
    path, item_id = model.index.class_paths[row], model.index.ids[row]
    # The id, because a change of the index may move rows.
    address = f"{model.key}/{row}?id={quote(item_id, safe='', errors='surrogatepass')}"
    address += f"&v={model.picture_version(row)}"
    return {
        "row": row,
        "id": item_id,
        "class_path": path,
        "names": list(split_path(path)),
        "thumbnail": f"{model.root_path}/thumbnails/{address}",
        "image": f"{model.root_path}/images/{address}",
    }


def hit_out(model: IndexedModel, hit: Hit, rank: int, level: int | None) -> schemas.HitOut:
    """An image found, or one of a mistake."""
    return schemas.HitOut(**_item_fields(model, hit.row), rank=rank, score=hit.score, level=level)


def node_out(model: IndexedModel, node: ClassNode) -> schemas.NodeOut:
    """A class."""
    return schemas.NodeOut(
        path=node.path,
        names=list(node.names),
        name=node.names[-1] if node.names else "",
        level=len(node.names),
        count=node.count,
        classes=len(node.children),
        h_ap=model.mean_h_ap(node),
    )


def tree_out(model: IndexedModel, node: ClassNode, offset: int) -> schemas.TreeOut:
    """A class and some of those below it."""
    children = list(node.children.values())
    shown = children[offset : offset + MAX_CHILDREN]
    return schemas.TreeOut(
        **node_out(model, node).model_dump(),
        children=[node_out(model, child) for child in shown],
        more=max(0, len(children) - offset - len(shown)),
    )


def identify_out(
    model: IndexedModel, found: Identification, *, sure: float, within: str
) -> schemas.IdentifyOut:
    """What an image is."""
    steps = [
        schemas.StepOut(
            **_choice(step),
            level=step.level,
            new=step.new,
            alternatives=[schemas.ChoiceOut(**_choice(one)) for one in step.alternatives],
        )
        for step in found.steps
    ]
    answer = next(one for one in steps if one.class_path == found.answer.class_path)
    voters = enumerate(found.neighbours, start=1)
    return schemas.IdentifyOut(
        side=model.key,
        sure=sure,
        within=within,
        answer=answer,
        is_new=found.answer.new,
        steps=steps,
        neighbours=[hit_out(model, hit, rank, None) for rank, hit in voters],
        rough=model.index.calibration.rough,
    )


def _choice(one: Step | Choice) -> dict[str, Any]:
    path = one.class_path
    return {"class_path": path, "names": list(split_path(path)), "probability": one.probability}


def search_out(
    explorer: Explorer,
    model: IndexedModel,
    query: SearchQuery,
    *,
    k: int,
    within: str,
    offset: int = 0,
    metrics: bool = True,
) -> schemas.SearchOut:
    """Search, and shape the ranking."""
    ranking = explorer.search(model, query, k=k, within=within, offset=offset, metrics=metrics)
    places = enumerate(zip(ranking.hits, ranking.levels, strict=True), start=offset + 1)
    positive = [_query_out(explorer, model, one, query.class_path) for one in query.positive]
    return schemas.SearchOut(
        side=model.key,
        version=model.version,
        query=positive[0],
        positive=positive,
        negative=[_query_out(explorer, model, one, "") for one in query.negative],
        k=k,
        offset=offset,
        within=within,
        total=ranking.total,
        hits=[hit_out(model, hit, rank, level) for rank, (hit, level) in places],
        metrics=_metrics_out(ranking.metrics),
        alone=_metrics_out(ranking.alone),
    )


def _query_out(explorer: Explorer, model: IndexedModel, image: QueryImage, said: str) -> schemas.QueryOut:
    """An image of a query; ``said`` is the class that an upload was said to be."""
    if image.row is not None:
        item = item_out(model, image.row)
        shared = item.model_dump(include={"class_path", "names", "thumbnail", "image"})
        return schemas.QueryOut(item=item, upload=None, name=item.id, **shared)
    assert image.upload is not None
    address = f"{explorer.root_path}/uploads/{image.upload.key}"
    return schemas.QueryOut(
        item=None,
        upload=image.upload.key,
        name=image.upload.name,
        class_path=said,
        names=list(split_path(said)),
        thumbnail=address,
        image=address,
    )


def _metrics_out(found: QueryMetrics | None) -> schemas.Metrics | None:
    if found is None:
        return None
    return schemas.Metrics(
        h_ap=found.h_ap,
        severity=dict(found.severity),
        average_precision=dict(found.average_precision),
        counts=list(found.counts),
    )


def mistake_out(model: IndexedModel, mistake: Mistake) -> schemas.MistakeOut:
    """A query that went wrong."""
    hit = model.index.hit(mistake.result, mistake.score)
    return schemas.MistakeOut(
        query=item_out(model, mistake.row),
        result=hit_out(model, hit, 1, mistake.level),
        h_ap=mistake.h_ap,
        severity=mistake.severity,
        other_h_ap=mistake.other_h_ap,
    )


def suspect_out(model: IndexedModel, suspect: Suspect, decision: Correction | None) -> schemas.SuspectOut:
    """Something that is probably wrong, with the images to look at."""
    index = model.index
    return schemas.SuspectOut(
        kind=suspect.kind,
        severity=suspect.severity,
        confidence=suspect.confidence,
        item=item_out(model, index.row(suspect.id)) if suspect.id else None,
        label=suspect.label,
        names=list(split_path(suspect.label)),
        proposed=suspect.proposed,
        proposed_names=list(split_path(suspect.proposed)),
        evidence=[item_out(model, index.row(one)) for one in suspect.evidence],
        decision=None if decision is None else decision.decision,
        decided_class="" if decision is None else decision.class_path,
    )


def confusion_out(confusion: ConfusedClass) -> schemas.ConfusionOut:
    """A class that another is confused with."""
    return schemas.ConfusionOut(
        path=confusion.class_path,
        names=list(split_path(confusion.class_path)),
        level=confusion.level,
        share=confusion.share,
    )
