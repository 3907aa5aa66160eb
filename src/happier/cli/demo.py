"""``happier demo``: a fit on real images that are fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app
from happier.cli.fit import print_fit, show_progress


@app.command(extra="report,search")
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Images of 64 px and fewer steps.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Then fine-tune the whole network.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory to write. [default: runs/demo]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all trainings.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    data: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Fit HAPPIER and a fine-only baseline to the emoji: `happier fit` on images that are fetched.

    About 4 CPU minutes after fetching. Run it again to resume where it stopped; finished parts are reused.

    Example: happier demo --quick
    """
    import os

    # Threads that spin while they wait cost a busy machine most of its speed; read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

    from happier.demo import BUDGETS
    from happier.demo import demo as run
    from happier.errors import OptionError

    if data is not None:
        raise OptionError(f"the demo is of emoji; for your own images: happier fit {data} -o DIR")
    if quick and full:
        raise OptionError("choose --quick or --full, not both")
    budget = BUDGETS["quick" if quick else "full" if full else "default"]
    with show_progress() as tell:
        found = run(budget, out=output, seed=seed, tell=tell)
    print_fit(found, as_json=as_json)
