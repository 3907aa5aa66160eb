"""``happier export``: the encoder of a run as one ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app


@app.command(extra="train")
def export(
    run: Annotated[str, typer.Argument(help="A run, a saved model, or a repository id of the hub.")],
    path: Annotated[Path, typer.Argument(help="File to write, such as model.onnx.")],
) -> None:
    """Write the encoder as ONNX: preprocessed images [batch, 3, H, W] -> unit vectors [batch, dim].

    Example:
        happier export runs/emoji emoji.onnx
    """
    from happier.encoder import Encoder
    from happier.runs import RunDirectory

    RunDirectory(run).check_output(path)
    encoder = Encoder.from_pretrained(run)
    encoder.export_onnx(path)
    size = encoder.preprocess.size
    typer.echo(f"{path}: images [batch, 3, {size}, {size}] -> embeddings [batch, {encoder.dim}]")
