"""``happier fit``: one's own images in one command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from happier.cli import app

if TYPE_CHECKING:
    from happier.fit import Fit
    from happier.progress import StageProgress


@app.command(extra="report,search")
def fit(
    source: Annotated[Path, typer.Argument(help="A folder of images in class folders, or a manifest.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Settings of the trainings, as of `happier train`.", metavar="[KEY=VALUE]..."),
    ] = None,
    levels: Annotated[
        str | None, typer.Option(help="Level names, coarse to fine, with commas between.")
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(help="head (on features that are kept) or all. [default: all with a GPU, else head]"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of both trainings.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Make a model of your own images, see what it is good for, and search with it.

    Checks the images, leaves out what cannot be used, splits by class, trains HAPPIER and a fine-only
    baseline, and writes a report and an index. Run it again to go on where it stopped, or after images were
    added.

    Example: happier fit photos -o photos.fit
    """
    import json
    import os

    # Threads that spin while they wait cost a busy machine most of its speed; read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    from happier.fit import FitOptions
    from happier.fit import fit as run

    names = [name.strip() for name in levels.split(",")] if levels is not None else None
    options = FitOptions(levels=names, train=train, seed=seed, overrides=overrides or ())
    with _stages() as progress:
        found = run(source, output, options, progress=progress)
    if as_json:
        typer.echo(json.dumps(_fields(found)))
        return
    if found.left_out:
        parts = ", ".join(f"{number:,} {reason}" for reason, number in found.left_out.items())
        typer.echo(f"Left out: {parts}; {found.images:,} images are used")
    for note in found.notes:
        typer.echo(f"Note: {note}")
    for line in found.lines():
        typer.echo(line)


def _fields(found: Fit) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "images": found.images,
        "left_out": found.left_out,
        "notes": found.notes,
        "h_ap": dict(zip(("happier", "nsm", "frozen"), found.h_ap, strict=True)),
        "training": asdict(found.training),
        "hierarchy": asdict(found.hierarchy),
        "page": str(found.directory.page),
        "index": str(found.directory.index),
    }


@contextmanager
def _stages() -> Iterator[StageProgress]:
    """A bar for each stage on a terminal; elsewhere a line for each, on the error stream."""
    import sys

    from happier.progress import ProgressBar

    if sys.stderr.isatty():
        with ProgressBar() as bar:
            yield bar.stage
        return
    last = ""

    def show(stage: str, done: int, total: int, /) -> None:
        nonlocal last
        del done
        if stage != last:
            last = stage
            typer.echo(f"{stage}, {total:,}" if total else stage, err=True)

    yield show
