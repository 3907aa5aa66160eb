"""``happier evaluate``: every metric of a run, exactly, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from happier.cli import app
from happier.cli.options import (
    Against,
    BatchSize,
    EvaluatedRun,
    EvaluatedSplit,
    ManifestOfRun,
    refuse_to_replace,
)

if TYPE_CHECKING:
    from happier.identification.experiment import IdentificationFigures
    from happier.runs.comparison import Comparison


@app.command(extra="train")
def evaluate(
    run: EvaluatedRun,
    manifest: ManifestOfRun = None,
    split: EvaluatedSplit = None,
    against: Against = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON; - prints them.")
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every query's figures as Parquet.")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table as LaTeX; - prints it.")
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Count the query in its own class, as the published figures do."),
    ] = False,
    alpha: Annotated[float, typer.Option(help="Exponent of the relevance (Eq. 4).")] = 1.0,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Relevance of H-AP: labels, or attributes (the share in common). "
            "[default: what the run was trained on]",
        ),
    ] = None,
    k: Annotated[
        list[int] | None, typer.Option(help="Cut-offs, may be repeated. [default: 1 10 100]")
    ] = None,
    ties: Annotated[str, typer.Option(help="Order of equal scores: worst or best.")] = "worst",
    resamples: Annotated[
        int, typer.Option(help="Resamples of the finest classes, for the intervals; 0 for none.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    identify: Annotated[
        bool,
        typer.Option(
            "--identify", help="Also measure `happier identify`, beside simpler ways to name images."
        ),
    ] = False,
    batch_size: BatchSize = 64,
) -> None:
    """Evaluate a run: H-AP, ASI, NDCG, AP and recall at every level, and how severe its mistakes are.

    The manifest's splits say how: test rows are searched for among each other, queries in their gallery,
    distractors are added, DyML's three test sets are evaluated one by one, revisited Oxford and Paris by
    their own protocol too.

    Example: happier evaluate runs/happier --against runs/nsm --json figures.json
    """
    from dataclasses import asdict

    from happier.evaluation.files import to_json, write_json, write_per_query, write_text
    from happier.evaluation.options import EvaluationOptions
    from happier.evaluation.revisited import evaluate_revisited
    from happier.evaluation.table import to_latex
    from happier.progress import ProgressBar
    from happier.runs import RunDirectory, read_run
    from happier.runs.comparison import check_number, compare_runs, relevance_of, store
    from happier.runs.identified import identify_runs

    _check_choice("--ties", ties, "worst", "best")
    _check_choice("--by", by, None, "labels", "attributes")
    sources = (run, *(against or ()))
    check_number(len(sources))  # before anything is embedded
    for source in sources:
        for output in filter(None, (json_file, per_query, latex)):
            RunDirectory(source).check_output(output)
            refuse_to_replace(output, source, manifest)
    with ProgressBar("Embedding") as progress:
        runs = [
            read_run(source, manifest=manifest, split=split, batch_size=batch_size, progress=progress)
            for source in sources
        ]
    options = EvaluationOptions(
        relevance=relevance_of(runs[0], by, alpha=alpha, count_query=paper),
        ks=tuple(k or (1, 10, 100)),
        ties="worst" if ties == "worst" else "best",
    )
    found = compare_runs(runs, options, split=split, resamples=resamples, seed=seed, published=paper)
    store(found)
    named = identify_runs(found, seed=seed) if identify else ()
    results = [evaluate_revisited(one.vectors, one.manifest, ties=options.ties) for one in found.runs]
    revisited = [one.summary for one in results if one is not None]
    data = found.to_data() | ({"identify": [asdict(one) for one in named]} if identify else {})
    data |= {"revisited": revisited} if revisited else {}
    table = "\n".join(to_latex(rows, found.names) for rows in found.rows)
    if per_query is not None:
        write_per_query(found.evaluations[0], found.runs[0].manifest, per_query)
    if json_file is not None and str(json_file) != "-":
        write_json(data, json_file)
    if latex is not None and str(latex) != "-":
        write_text(table, latex)
    if str(json_file) == "-":
        typer.echo(to_json(data), nl=False)
        return
    if str(latex) == "-":
        typer.echo(table, nl=False)
        return
    _print(found, revisited)
    for name, one in zip(found.names, named, strict=False):
        _print_identification(name, one)


def _check_choice(option: str, value: str | None, *choices: str | None) -> None:
    from happier.errors import OptionError

    if value not in choices:
        raise OptionError(f"{option} must be {' or '.join(filter(None, choices))}, got {value!r}")


def _print_identification(name: str, figures: IdentificationFigures) -> None:
    """How well images are named."""
    from rich.console import Console

    from happier.identification.table import identification_note, identification_table

    console = Console(width=150)
    console.print(identification_table(figures, name))
    console.print(identification_note(figures), markup=False, highlight=False)


def _print(found: Comparison, revisited: list[dict[str, float]]) -> None:
    """The tables on a terminal, and the notes to them."""
    from rich.console import Console

    from happier.evaluation.terminal import dyml_table, metrics_table, published_table, revisited_table

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)  # a file needs no wrapping
    for rows, title in zip(found.rows, found.titles(), strict=True):
        console.print(metrics_table(rows, found.names, title))
    if found.evaluations[0].dyml is not None:
        console.print(dyml_table([one.dyml or {} for one in found.evaluations], found.names))
    if revisited:
        console.print(revisited_table(revisited, found.names))
    if found.published is not None:
        console.print(published_table(found.published, found.own_published_row()))
    for note in found.notes():
        console.print(note, markup=False, highlight=False)
