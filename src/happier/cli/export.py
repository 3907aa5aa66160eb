"""``happier export``: the encoder of a run as one ONNX file, or its vectors for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app
from happier.cli.options import BatchSize, EvaluatedSplit, ManifestOfRun, refuse_to_replace


@app.command(extra="train")
def export(
    run: Annotated[str, typer.Argument(help="A run, a saved model, or a repository id of the hub.")],
    path: Annotated[Path, typer.Argument(help="File to write, such as model.onnx, or folder.")],
    to: Annotated[
        str,
        typer.Option(
            help="onnx: the encoder. Vectors, labels and scores: atlas (Embedding Atlas, a Parquet file), "
            "projector (TensorBoard, a folder), fiftyone (a folder)."
        ),
    ] = "onnx",
    manifest: ManifestOfRun = None,
    split: EvaluatedSplit = None,
    batch_size: BatchSize = 64,
) -> None:
    """Write the encoder as ONNX: preprocessed images [batch, 3, H, W] -> unit vectors [batch, dim].

    With --to the vectors of the evaluated images instead, with their labels and scores.

    Example:
        happier export runs/emoji emoji.onnx
    """
    from happier.encoder import Encoder
    from happier.errors import OptionError
    from happier.evaluation.options import EvaluationOptions
    from happier.progress import ProgressBar
    from happier.runs import RunDirectory, read_run
    from happier.runs.exported_vectors import EXPORTS, export_vectors
    from happier.runs.stored_evaluation import evaluate_run

    RunDirectory(run).check_output(path)
    refuse_to_replace(path, run, manifest)
    if to != "onnx":
        if to not in EXPORTS:
            raise OptionError(f"--to must be one of onnx, {', '.join(EXPORTS)}, got {to!r}")
        with ProgressBar("Embedding") as progress:
            found = read_run(run, manifest=manifest, split=split, batch_size=batch_size, progress=progress)
        export_vectors(found, evaluate_run(found, EvaluationOptions(), split=split), path, to)
        typer.echo(f"{path}: {len(found.vectors):,} vectors with labels and scores for {to}")
        return
    if manifest is not None or split is not None:
        raise OptionError(
            "--manifest and --split choose vectors: they need --to atlas, projector or fiftyone"
        )
    encoder = Encoder.from_pretrained(run)
    encoder.export_onnx(path)
    size = encoder.preprocess.size
    typer.echo(f"{path}: images [batch, 3, {size}, {size}] -> embeddings [batch, {encoder.dim}]")
