"""``happier index``: make a catalogue searchable; ``happier unindex``: take images out of it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app


@app.command()
def index(
    run: Annotated[str, typer.Argument(help="A run directory, a saved model, or a hub id.")],
    manifest: Annotated[Path, typer.Argument(help="The images: a Parquet or CSV manifest.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the index.")],
    engine: Annotated[
        str, typer.Option(help="flat (exact), hnsw, ivfpq (both approximate) or milvus.")
    ] = "flat",
    uri: Annotated[
        str, typer.Option(help="Milvus: a local file or a cluster's address (token in MILVUS_TOKEN).")
    ] = "",
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the engine, e.g. effort=256; may be repeated.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only rows of this split; may be repeated.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Add the images that the index lacks.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that is there.")] = False,
    batch_size: Annotated[int, typer.Option(help="Images at a time.")] = 64,
    workers: Annotated[int, typer.Option(help="Processes that decode images.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Embed the images of a manifest and make them searchable.

    The index keeps a copy of the model, so that `happier search` and `happier serve` need nothing else.

    Example: happier index runs/emoji emoji.parquet -o emoji.index
    """
    from happier.cli.progress import image_progress
    from happier.data import Manifest
    from happier.encoder import Encoder
    from happier.search import build_index, extend_index, measure_recall
    from happier.search.engine import parse_options

    encoder = Encoder.from_pretrained(run)
    rows = Manifest.read(manifest)
    if split:
        rows = rows.select(split)
    with image_progress("Embedding") as progress:
        if add:
            built, added = extend_index(
                encoder, rows, output, batch_size=batch_size, workers=workers, progress=progress
            )
        else:
            options = parse_options([*(option or []), *([f"uri={uri}"] if uri else [])])
            built = build_index(
                encoder,
                rows,
                output,
                engine=engine,
                options=options,
                overwrite=overwrite,
                batch_size=batch_size,
                workers=workers,
                progress=progress,
            )
            added = len(built)
    outcome = {
        "index": str(output),
        "images": len(built),
        "added": added,
        "engine": built.head.engine,
        "recall@10": measure_recall(built),
        "model": built.head.fingerprint,
    }
    built.close()
    if as_json:
        typer.echo(json.dumps(outcome))
        return
    quality = "exact" if built.exact else f"recall@10 {outcome['recall@10']:.3f} against exact search"
    typer.echo(f"{output}: {len(built):,} images ({added:,} new), engine {built.head.engine}, {quality}")
    typer.echo(f"Search it: happier search {output} IMAGE    Look at it: happier serve {output}")


@app.command()
def unindex(
    index_directory: Annotated[Path, typer.Argument(metavar="INDEX", help="Directory of the index.")],
    ids: Annotated[list[str], typer.Argument(help="Ids of the images, as `happier search` prints them.")],
) -> None:
    """Take images out of an index.

    Example: happier unindex emoji.index images/1F989.png
    """
    from happier.search import Index

    opened = Index.open(index_directory)
    removed = opened.delete(ids)
    typer.echo(f"{index_directory}: {removed:,} removed, {len(opened):,} left")
    opened.close()
