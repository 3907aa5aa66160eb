"""``happier report``: one folder with a page that shows how good a model is and how bad its mistakes are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from happier.cli import app
from happier.cli.options import Against, BatchSize, EvaluatedRun, EvaluatedSplit, ManifestOfRun


@app.command(extra="report")
def report(
    run: EvaluatedRun,
    against: Against = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write. [default: RUN/report]")
    ] = None,
    manifest: ManifestOfRun = None,
    split: EvaluatedSplit = None,
    name: Annotated[str | None, typer.Option(help="Display name of the model.")] = None,
    against_name: Annotated[
        list[str] | None, typer.Option(help="Display names of the others, in the order of --against.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    figures: Annotated[bool, typer.Option(help="Also write each figure as PNG, SVG and PDF.")] = True,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of examples, map and intervals.")] = 0,
    resamples: Annotated[
        int, typer.Option(help="Resamples of the finest classes, for the intervals.")
    ] = 1000,
    batch_size: BatchSize = 64,
) -> None:
    """Write a page about a run, or about up to four side by side; it works offline.

    Example: happier report runs/happier --against runs/nsm -o report
    """
    import sys
    from itertools import zip_longest

    from rich.console import Console

    from happier.errors import OptionError
    from happier.progress import ProgressBar
    from happier.report import ReportOptions, write_report
    from happier.report.write import PAGE
    from happier.runs import RunDirectory, read_run
    from happier.runs.comparison import check_number

    others, names = against or [], against_name or []
    check_number(1 + len(others))  # before anything is embedded
    if len(names) > len(others):
        raise OptionError(
            f"--against-name is given {len(names)} times but --against {len(others)} times: "
            "each name belongs to one --against, in the same order"
        )
    if output is None:
        if not Path(run).is_dir():
            raise OptionError(f"{run} is not a directory: say where the report goes with -o")
        output = RunDirectory(run).report_folder
    with ProgressBar("Embedding") as progress:
        runs = [
            read_run(
                source, manifest=manifest, split=split, name=called, batch_size=batch_size, progress=progress
            )
            for source, called in zip_longest((run, *others), (name, *names))
        ]
    command = " ".join(["happier", *sys.argv[1:]])
    options = ReportOptions(
        split=split, seed=seed, resamples=resamples, title=title, commands=(command,), figures=figures
    )
    console = Console(stderr=True)
    with console.status("Reporting") as status:
        written = write_report(
            runs, output, options=options, status=lambda what: status.update(f"Report: {what}")
        )
    typer.echo(written.headline)
    typer.echo(output / PAGE)
