"""What the explorer found, in the shapes of the JSON API."""

from __future__ import annotations

import math

from happier.search.branch import split_path
from happier.search.index import Hit
from happier.web import schemas
from happier.web.explorer import Explorer
from happier.web.side import Query, Side
from happier.web.tree import Node

MAX_CHILDREN = 500


def side_info(side: Side) -> schemas.SideInfo:
    """What the page must know of one index."""
    head = side.index.head
    return schemas.SideInfo(
        side=side.key,
        name=side.name,
        images=len(side.index),
        classes=len(side.tree),
        engine=head.engine,
        exact=side.index.exact,
        embeds=side.embeds,
        model=head.fingerprint,
        analysed=side.analysed,
    )


def item_out(side: Side, row: int) -> schemas.Item:
    """An image of the index."""
    path = side.index.class_paths[row]
    return schemas.Item(
        row=row,
        id=side.index.ids[row],
        class_path=path,
        names=list(split_path(path)),
        thumbnail=f"/thumbnails/{side.key}/{row}?v={side.version}",
        image=f"/images/{side.key}/{row}?v={side.version}",
    )


def hit_out(side: Side, hit: Hit, rank: int, level: int | None) -> schemas.HitOut:
    """An image found, or one of a mistake."""
    return schemas.HitOut(**item_out(side, hit.row).model_dump(), rank=rank, score=hit.score, level=level)


def node_out(side: Side, node: Node) -> schemas.NodeOut:
    """A class."""
    return schemas.NodeOut(
        path=node.path,
        names=list(node.names),
        name=node.names[-1] if node.names else "",
        level=len(node.names),
        count=node.count,
        classes=len(node.children),
        h_ap=side.mean_h_ap(node),
    )


def tree_out(side: Side, node: Node, offset: int) -> schemas.TreeOut:
    """A class and some of those below it."""
    children = list(node.children.values())
    shown = children[offset : offset + MAX_CHILDREN]
    return schemas.TreeOut(
        **node_out(side, node).model_dump(),
        children=[node_out(side, child) for child in shown],
        more=max(0, len(children) - offset - len(shown)),
    )


def search_out(explorer: Explorer, side: Side, query: Query, k: int, within: str) -> schemas.SearchOut:
    """Search, and shape the ranking."""
    hits, levels, metrics = explorer.search(side, query, k=k, within=within)
    item = None if query.row is None else item_out(side, query.row)
    if item is not None:
        thumbnail, image, name = item.thumbnail, item.image, item.id
    else:
        assert query.upload is not None
        thumbnail = image = f"/uploads/{query.upload.key}"
        name = query.upload.name
    return schemas.SearchOut(
        side=side.key,
        query=schemas.QueryOut(
            item=item,
            upload=None if query.upload is None else query.upload.key,
            name=name,
            class_path=query.class_path,
            names=list(split_path(query.class_path)),
            thumbnail=thumbnail,
            image=image,
        ),
        k=k,
        within=within,
        hits=[
            hit_out(side, hit, rank, level)
            for rank, (hit, level) in enumerate(zip(hits, levels, strict=True), start=1)
        ],
        metrics=None
        if metrics is None
        else schemas.Metrics(
            h_ap=number(metrics.h_ap),
            severity={cut: number(value) for cut, value in metrics.severity.items()},
            average_precision={level: number(value) for level, value in metrics.average_precision.items()},
            counts=list(metrics.counts),
        ),
    )


def number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value
