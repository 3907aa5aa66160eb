"""``happier embed``: every image of a manifest as a vector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app


@app.command()
def embed(
    run: Annotated[str, typer.Argument(help="A run, a saved model, or a repository id of the hub.")],
    manifest: Annotated[Path, typer.Argument(help="The images: Parquet or CSV.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Directory to write.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Only the rows of this split; may be repeated.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images embedded at a time.")] = 64,
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    workers: Annotated[int, typer.Option(help="Processes that decode images.")] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ... [default: a GPU if there is one]")
    ] = None,
) -> None:
    """Embed the images of a manifest into a directory: vectors, rows, and the model's fingerprint.

    Example:
        happier embed runs/emoji manifest.parquet --split test -o emoji.embeddings
    """
    import torch

    from happier.cli.progress import image_progress
    from happier.data import Manifest
    from happier.encoder import Encoder

    encoder = Encoder.from_pretrained(run)
    encoder.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    rows = Manifest.read(manifest)
    if split:
        rows = rows.select(tuple(split))
    with image_progress("embedding") as progress:
        made = encoder.embed_manifest(
            rows, out, batch_size=batch_size, precision=precision, workers=workers, progress=progress
        )
    typer.echo(f"{out}: {len(made.vectors):,} vectors of {encoder.dim} numbers")
