"""``happier search``: the images of an index that are nearest to one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app


@app.command(extra="search")
def search(
    index: Annotated[Path, typer.Argument(help="Directory of the index.")],
    image: Annotated[Path, typer.Argument(help="The query image.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many images.")] = 10,
    within: Annotated[str, typer.Option(help="Only this branch of the taxonomy, e.g. animals/birds.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the hits as JSON.")] = False,
) -> None:
    """Search by image.

    Example: happier search emoji.index owl.png -k 5 --within animals-nature
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from happier.search import Index

    opened = Index.open(index)
    hits = opened.search_images([image], k=k, within=within or None)[0]
    opened.close()
    if as_json:
        typer.echo(json.dumps({"image": str(image), "within": within, "hits": [asdict(hit) for hit in hits]}))
        return
    table = Table("rank", "score")
    for title in ("class", "id"):
        table.add_column(title, overflow="fold")  # the end of a path is the most informative part
    for rank, hit in enumerate(hits, start=1):
        table.add_row(str(rank), f"{hit.score:.4f}", Text(hit.class_path or "unknown"), Text(hit.id))
    Console().print(table)
