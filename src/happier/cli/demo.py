"""``happier demo``: real images, three models, one page to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from happier.cli import app

if TYPE_CHECKING:
    from happier.demo.eta import Moment


@app.command(extra="report,search")
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A smaller budget: 2 epochs instead of 10.")] = False,
    full: Annotated[bool, typer.Option("--full", help="A larger budget: 40 epochs instead of 10.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="Your own images: FOLDER/KIND/ITEM/IMAGE, or a manifest.", metavar="FOLDER"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory of runs and report. [default: runs/demo]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all trainings.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the budget's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train HAPPIER, a fine-only baseline and HAPPIER_S on real images; write a page about their mistakes.

    Some 15 minutes on 2 cores. Run it again to resume where it stopped; finished parts are reused.

    Example: happier demo --quick
    """
    import json
    import os

    # Threads that spin while they wait cost a busy machine most of its speed; read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    from happier.demo import BUDGETS
    from happier.demo import demo as run
    from happier.errors import OptionError

    if quick and full:
        raise OptionError("choose --quick or --full, not both")
    budget = BUDGETS["quick" if quick else "full" if full else "default"]
    try:
        with _whole_progress() as tell:
            found = run(budget=budget, data=data, out=output, seed=seed, epochs=epochs, tell=tell)
    except KeyboardInterrupt:
        typer.echo("Stopped; the same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        fields = {
            "page": str(found.page),
            "runs": [str(path) for path in found.runs],
            "seconds": round(found.seconds, 1),
        }
        typer.echo(json.dumps(fields))
        return
    for line in found.summary:
        typer.echo(line)
    typer.echo(f"Look: {found.page}")


@contextmanager
def _whole_progress() -> Iterator[Callable[[Moment], None]]:
    """One bar for all stages with the remaining time; silent where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[left]}  {task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0, left="")

        def tell(moment: Moment) -> None:
            minutes, seconds = divmod(round(moment.seconds_left), 60)
            left = f"{minutes}:{seconds:02d} left"
            bar.update(task, completed=moment.fraction, description=moment.what, left=left)

        yield tell
