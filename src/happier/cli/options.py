"""Options that several commands share, each with its help, and a check of outputs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from happier.errors import OptionError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
EvaluatedRun = Annotated[
    str, typer.Argument(help="A run, a saved model, a directory of embeddings, or a .npy file.")
]
Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RUN2",
        help="Compare with this one, query by query; repeat it to show one or two more.",
    ),
]
ManifestOfRun = Annotated[
    Path | None, typer.Option("--manifest", help="The images and labels; by default the run's own.")
]
EvaluatedSplit = Annotated[
    str | None,
    typer.Option("--split", help="test, val, train (leave-one-out) or query (query and gallery)."),
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Images embedded at a time.")]


def refuse_to_replace(output: Path, *inputs: Path | str | None) -> None:
    """Keep a command from overwriting what it reads.

    Raises:
        OptionError: the output and an input are the same file.
    """
    if os.path.realpath(output) in [os.path.realpath(one) for one in inputs if one is not None]:
        raise OptionError(f"{output} is the input; choose another name for the result")
