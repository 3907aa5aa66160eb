"""``happier bench``: speed and memory side by side with the alternatives, as ratios."""

from __future__ import annotations

import typer

from happier.cli import app

bench_app = typer.Typer(
    no_args_is_help=True, help="Speed and memory, side by side with the alternatives, as ratios."
)
app.add_typer(bench_app, name="bench")
