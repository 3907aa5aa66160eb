"""The ``happier`` command: parse, call, print. One small file per sub-command, no logic."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import happier
from happier.errors import HappierError

app = typer.Typer(
    name="happier",
    help="Hierarchical image retrieval: train, evaluate, report, search.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"happier {happier.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hierarchical image retrieval: train, evaluate, report, search."""


def main() -> None:
    """Run the command line: a `HappierError` becomes one line and exit code 2."""
    try:
        app()
    except HappierError as error:
        # The message may hold brackets of its own: text, not markup.
        Console(stderr=True).print(Text.assemble(("happier: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(2)


# Each module registers its command on `app`; heavy imports wait inside the commands.
from happier.cli import bench, data, demo, embed, evaluate, export, index, report, search, serve, train  # noqa: E402, F401
