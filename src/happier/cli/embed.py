"""``happier embed``: every image of a manifest as a vector."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app
from happier.cli.options import BatchSize


@app.command(extra="train")
def embed(
    run: Annotated[str, typer.Argument(help="A run, a saved model, or a repository id of the hub.")],
    manifest: Annotated[Path, typer.Argument(help="The images: Parquet or CSV.")],
    output: Annotated[
        Path, typer.Option("--output", "--out", "-o", metavar="DIR", help="Directory to write.")
    ],
    split: Annotated[
        list[str] | None, typer.Option(help="Only the rows of this split; may be repeated.")
    ] = None,
    batch_size: BatchSize = 64,
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    workers: Annotated[int, typer.Option(help="Processes that decode images.")] = 0,
    backend: Annotated[
        str, typer.Option(help="auto (the fastest with the same vectors), torch, onnxruntime or compile.")
    ] = "auto",
    features: Annotated[
        bool, typer.Option("--features", help="Features of the backbone, to train heads on, not embeddings.")
    ] = False,
    views: Annotated[
        int, typer.Option(min=0, max=1000, help="With --features: augmented views of each image.")
    ] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ... [default: a GPU if there is one]")
    ] = None,
) -> None:
    """Embed the images of a manifest into a directory: vectors, rows, and the model's fingerprint.

    Only images that the directory lacks, or whose content changed, are computed.

    Example:
        happier embed runs/emoji manifest.parquet --split test -o emoji.embeddings
    """
    import torch

    from happier.data import Manifest
    from happier.distributed import process_group
    from happier.encoder import Encoder, FeatureStore, PassOptions
    from happier.errors import OptionError
    from happier.progress import ProgressBar

    if features and precision != "fp32":
        raise OptionError("features are kept in fp32; leave out --precision")
    if views and not features:
        raise OptionError("--views needs --features")
    encoder = Encoder.from_pretrained(run)
    encoder.to(_usable(device or ("cuda" if torch.cuda.is_available() else "cpu")))
    rows = Manifest.read(manifest)
    if split:
        rows = rows.select(tuple(split))
    with process_group() as rank, ProgressBar("Embedding", quiet=rank > 0) as progress:
        if features:
            options = PassOptions(batch_size=batch_size, workers=workers)
            vectors = FeatureStore.open_or_compute(
                encoder, rows, output, views=views, backend=backend, options=options, progress=progress
            ).vectors
        else:
            vectors = encoder.embed_manifest(
                rows,
                output,
                batch_size=batch_size,
                precision=precision,
                workers=workers,
                backend=backend,
                progress=progress,
            ).vectors
    if rank == 0:
        typer.echo(f"{output}: {len(vectors):,} vectors of {vectors.shape[1]} numbers")


def _usable(device: str) -> str:
    """The device, on which something was computed."""
    import torch

    from happier.errors import OptionError, first_line

    try:
        float(torch.ones(1, device=device))
    # torch raises an AssertionError where it was built without the device.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise OptionError(f"--device {device} cannot be used here: {first_line(error)[:200]}") from error
    return device
