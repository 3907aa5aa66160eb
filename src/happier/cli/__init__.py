"""The ``happier`` command: parse, call, print. One small file per sub-command, no logic."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from happier.errors import HappierError
from happier.extras import check_extra, needs_extra
from happier.storage.disk_errors import disk_fault
from happier.version import __version__


class Commands(typer.Typer):
    """Sub-commands, each with the extra that it needs: a core install says in one line what is missing."""

    def command(  # type: ignore[override]
        self, name: str | None = None, *, extra: str, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a command.

        Args:
            name: of the command; the function's by default.
            extra: what brings its packages, ``"report,search"`` for two.
            options: of `typer.Typer.command`.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            function.extra = extra  # type: ignore[attr-defined]

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                with needs_extra(extra):
                    check_extra(extra)
                    return function(*args, **kwargs)

            return typer.Typer.command(self, name, **options)(run)

        return register


app = Commands(
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
        typer.echo(f"happier {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hierarchical image retrieval: train, evaluate, report, search."""


# What typer raises for words that it cannot parse; its name differs between versions of typer.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command line: an error that a user can cause becomes one line and exit code 2, not a traceback.

    That is every `HappierError`, a wrong option or argument, and every error of the disk (full, read-only, a
    name too long, a directory in place of a file). Ctrl-C ends quietly with 130, a closed pipe (``| head``)
    with 1.
    """
    # A class name may have characters that the terminal's encoding lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = app(standalone_mode=False)
        finally:
            sys.stdout.flush()  # raises here, not at exit, if the disk is full or the pipe closed
        sys.exit(code)
    except typer.Abort:
        sys.exit(130)
    except _UsageError as error:
        _explain_usage(error)
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except HappierError as error:
        _fail(str(error))
    except Exception as error:
        fault = disk_fault(error)
        if fault is None:
            raise
        named = getattr(error, "filename2", None) or getattr(error, "filename", None)
        if isinstance(error, OSError) and error.filename is None:
            _drop_output()  # what could not be written may be the output itself
        _fail(f"{f'{named}: ' if named else ''}{fault[0]}; {fault[1]}")


def _explain_usage(error: Any) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(error.exit_code)
    text = error.format_message().strip().rstrip(".")
    words = error.ctx.command_path if error.ctx is not None else "happier"
    _fail(f"{text[:1].lower()}{text[1:]}; see `{words} --help`")


def _fail(message: str) -> None:
    # The message may hold brackets of its own: text, not markup.
    with suppress(OSError):
        Console(stderr=True).print(Text.assemble(("happier: ", "bold red"), message), soft_wrap=True)
    sys.exit(2)


def _drop_output() -> None:
    """Discard what is still buffered for the standard output: Python would fail on it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Each module registers its command on `app`; heavy imports are inside the commands.
from happier.cli import (  # noqa: E402, F401
    bench,
    data,
    demo,
    embed,
    evaluate,
    export,
    fit,
    identify,
    index,
    report,
    search,
    serve,
    train,
)
