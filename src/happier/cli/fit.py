"""``happier fit``: one's own images in one command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from happier.cli import app

if TYPE_CHECKING:
    from happier.fit import Fit, Moment
    from happier.fit.clock import Tell

_SECONDS_BETWEEN_LINES = 30.0


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
    loss: Annotated[
        str, typer.Option(help="Loss of the model; see `Choose a loss` in the documentation.")
    ] = "happier",
    train: Annotated[
        str | None,
        typer.Option(
            help="head (on kept features), or all: then fine-tune. [default: all with a GPU, else head]"
        ),
    ] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Fine-tune on a GPU; an error without one.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all trainings.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train a model on your own images, see how good it is, and search with it.

    Checks the images, leaves out what cannot be used, splits by class, trains HAPPIER and a fine-only
    baseline, and writes a report and an index. Run it again to resume where it stopped, or after images were
    added: only what changed is made again.

    Example: happier fit photos -o photos.fit
    """
    import os

    # Threads that spin while they wait cost a busy machine most of its speed; read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    import torch

    from happier.errors import OptionError
    from happier.fit import FitOptions
    from happier.fit import fit as run

    if gpu and not torch.cuda.is_available():
        raise OptionError("--gpu: torch finds no GPU; --train all fine-tunes on the CPU")
    names = [name.strip() for name in levels.split(",")] if levels is not None else None
    options = FitOptions(
        levels=names, loss=loss, train="all" if gpu else train, seed=seed, overrides=overrides or ()
    )
    with show_progress() as tell:
        found = run(source, output, options, tell=tell)
    print_fit(found, as_json=as_json)


def print_fit(found: Fit, *, as_json: bool) -> None:
    """Print what a fit came to: what was left out, notes, five lines; or all of it as JSON."""
    import json

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
        "h_ap": dict(zip((*found.losses, "frozen"), found.h_ap, strict=True)),
        "head": found.head,
        "training": asdict(found.training),
        "hierarchy": asdict(found.hierarchy),
        "page": str(found.directory.page),
        "index": str(found.directory.index),
    }


@contextmanager
def show_progress() -> Iterator[Tell]:
    """One bar for all stages with the time left on a terminal; elsewhere a line for each stage.

    Ctrl-C ends with a line that says how to continue.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    try:
        if not console.is_terminal:
            yield _lines()
            return
        text = TextColumn("{task.percentage:>3.0f} %  {task.fields[left]}  {task.description}", markup=False)
        with Progress(BarColumn(), text, console=console, transient=True) as bar:
            task = bar.add_task("starting", total=1.0, left="")

            def show(moment: Moment) -> None:
                bar.update(task, completed=moment.fraction, description=_counted(moment), left=_left(moment))

            yield show
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command resumes here.", err=True)
        raise typer.Exit(130) from None


def _lines() -> Tell:
    """A line for each stage, and one now and then in a long one, on the error stream."""
    import time

    stage, printed = "", 0.0

    def show(moment: Moment) -> None:
        nonlocal stage, printed
        if moment.stage == stage and time.monotonic() - printed < _SECONDS_BETWEEN_LINES:
            return
        stage, printed = moment.stage, time.monotonic()
        typer.echo(", ".join(part for part in (_counted(moment), _left(moment)) if part), err=True)

    return show


def _counted(moment: Moment) -> str:
    return f"{moment.stage}, {moment.done:,} of {moment.total:,}" if moment.total else moment.stage


def _left(moment: Moment) -> str:
    minutes, seconds = divmod(round(moment.seconds_left), 60)
    return f"{minutes}:{seconds:02d} left" if moment.seconds_left else ""
