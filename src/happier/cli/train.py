"""``happier train``: one run, or a sweep of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from happier.cli import app

if TYPE_CHECKING:
    from happier.training.loop import TrainResult


@app.command(extra="train")
def train(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="recipe=NAME loss=NAME run=DIR data.manifest=FILE key=value ...", metavar="KEY=VALUE"
        ),
    ] = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="Run every combination of comma-separated values.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the configuration and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train an encoder, or resume a run that was stopped: the same command does both.

    Examples:
        happier train recipe=emoji loss=happier run=runs/emoji

        happier train -m recipe=emoji loss=nsm,happier seed=0,1,2

        torchrun --standalone --nproc_per_node=2 -m happier train recipe=emoji
    """
    from happier.training.compose import compose, sweep
    from happier.training.config import to_yaml
    from happier.training.loop import train as run

    given = overrides or []
    if multirun:
        sweep(given, lambda config: _print(run(config), as_json=as_json))
    elif show:
        typer.echo(to_yaml(compose(given)), nl=False)
    else:
        _print(run(compose(given)), as_json=as_json)


def _print(result: TrainResult, *, as_json: bool) -> None:
    if not result.is_main:
        return
    if as_json:
        fields = {
            "run": str(result.run_dir),
            "steps": result.steps,
            "best_epoch": result.best_epoch,
            "metrics": result.metrics,
        }
        typer.echo(json.dumps(fields))
        return
    typer.echo(f"{result.run_dir}: {result.steps} steps")
    if result.metrics:
        typer.echo(f"best H-AP {result.metrics['H-AP']:.4f} after epoch {result.best_epoch}")
