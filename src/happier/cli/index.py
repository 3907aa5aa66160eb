"""``happier index``: make a catalogue searchable; ``happier unindex``: take images out of it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from happier.cli import app
from happier.cli.options import BatchSize

if TYPE_CHECKING:
    from happier.search import Index


def _info(directory: Path | None) -> None:
    """Print what an index is made of, and end the command."""
    if directory is None:
        return
    from happier.search import Index

    opened = Index.open(directory)
    head = opened.head
    lines = {
        "images": f"{len(opened):,}, {head.rows - len(opened):,} deleted rows",
        "levels": ", ".join(opened.levels),
        "vectors": f"{head.dim} dimensions",
        "engine": head.engine,
        "search": ", ".join(f"{name} {value}" for name, value in opened.effort.items()) or "every vector",
        "recall": "exact" if opened.exact else head.recall.describe() if head.recall else "not measured",
        "identify": f"calibrated {head.calibration.describe()}" if head.calibration else "not calibrated",
        "model": head.fingerprint[:12] + ("" if head.model else ", not kept here"),
        "state": f"{head.uid[:12]}-{head.generation}",
    }
    opened.close()
    typer.echo(str(directory))
    for name, text in lines.items():
        typer.echo(f"  {name:10}{text}")
    raise typer.Exit


@app.command(extra="search")
def index(
    run: Annotated[str, typer.Argument(help="A run directory, a saved model, or a hub id.")],
    manifest: Annotated[Path, typer.Argument(help="The images: a Parquet or CSV manifest.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the index.")],
    engine: Annotated[
        str, typer.Option(help="flat (exact), hnsw, ivfpq (both approximate), milvus or pgvector.")
    ] = "flat",
    uri: Annotated[
        str,
        typer.Option(
            help="milvus: a local file or a cluster's address (token in MILVUS_TOKEN); "
            "pgvector: postgresql://USER@HOST/DATABASE (password in PGPASSWORD)."
        ),
    ] = "",
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the engine, e.g. effort=256; may be repeated.")
    ] = None,
    recall: Annotated[
        float | None,
        typer.Option(help="Search as hard as it takes to find this share of the exact answer (0.95)."),
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only rows of this split; may be repeated.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Add the images that the index lacks.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    batch_size: BatchSize = 64,
    workers: Annotated[int, typer.Option(help="Processes that decode images.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    info: Annotated[  # noqa: ARG001 - its callback ends the command
        Path | None,
        typer.Option(metavar="INDEX", help="Describe an index and exit.", callback=_info, is_eager=True),
    ] = None,
) -> None:
    """Embed the images of a manifest and make them searchable.

    The index keeps a copy of the model, so that `happier search` and `happier serve` need nothing else.

    Example: happier index runs/emoji emoji.parquet -o emoji.index
    """
    from happier.data import Manifest
    from happier.encoder import Encoder
    from happier.errors import OptionError
    from happier.progress import ProgressBar
    from happier.runs import RunDirectory
    from happier.runs.run_features import head_vectors
    from happier.search import build_index, extend_index
    from happier.search.options import parse_options

    of_new = {"--overwrite": overwrite, "--option": option, "--recall": recall is not None}
    if add and any(of_new.values()):
        names = ", ".join(name for name, given in of_new.items() if given)
        raise OptionError(f"--add keeps the engine of the index and its options: leave out {names}")
    encoder = Encoder.from_pretrained(run)
    whole = Manifest.read(manifest)
    splits = tuple(split or whole.splits)
    rows = whole.select(splits)
    with ProgressBar("Embedding") as progress:
        if add:
            if uri:
                from happier.search.engine import allow_uri

                allow_uri(uri)
            built, added = extend_index(
                encoder, rows, output, batch_size=batch_size, workers=workers, progress=progress
            )
        else:
            options = parse_options(option or [])
            options |= {"uri": uri} if uri else {}
            options |= {"recall": recall} if recall is not None else {}
            built = build_index(
                encoder,
                rows,
                output,
                engine=engine,
                options=options,
                overwrite=overwrite,
                batch_size=batch_size,
                workers=workers,
                vectors=head_vectors(RunDirectory(run), encoder, whole, splits, progress=progress),
                progress=progress,
            )
            added = len(built)
    _print_outcome(built, output, added, as_json=as_json)


def _print_outcome(built: Index, output: Path, added: int, *, as_json: bool) -> None:
    reached = built.head.recall
    outcome = {
        "index": str(output),
        "images": len(built),
        "added": added,
        "engine": built.head.engine,
        "recall@10": reached.whole if reached else 1.0,
        "recall@10 in branches": reached.inside if reached and reached.inside is not None else 1.0,
        "recall reached": reached is None or reached.kept,
        "model": built.head.fingerprint,
    }
    built.close()
    if as_json:
        typer.echo(json.dumps(outcome))
        return
    quality = reached.describe() if reached else "exact"
    typer.echo(f"{output}: {len(built):,} images ({added:,} new), engine {built.head.engine}, {quality}")
    typer.echo(f"Search it: happier search {output} IMAGE    Look at it: happier serve {output}")


@app.command(extra="search")
def unindex(
    index_directory: Annotated[Path, typer.Argument(metavar="INDEX", help="Directory of the index.")],
    ids: Annotated[list[str], typer.Argument(help="Ids of the images, as `happier search` prints them.")],
) -> None:
    """Remove images from an index.

    Example: happier unindex emoji.index images/1F989.png
    """
    from happier.search import Index

    opened = Index.open(index_directory)
    removed = opened.delete(ids)
    typer.echo(f"{index_directory}: {removed:,} removed, {len(opened):,} left")
    opened.close()
