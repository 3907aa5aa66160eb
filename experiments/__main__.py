"""``python -m experiments tuned features --set emoji`` and so on: see experiments/README.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from happier.errors import HappierError

app = typer.Typer(no_args_is_help=True, add_completion=False)
Workers = Annotated[int, typer.Option(min=1, help="Runs side by side; each uses one core.")]
Runs = Annotated[Path, typer.Option(help="Folder of the run directories.")]
RUNS = Path("runs/experiments")


@app.callback()
def experiments() -> None:
    """The paper's experiments on real images that a package client can get."""


@app.command()
def tuned(
    protocol: Annotated[str, typer.Argument(help="features or fine-tuning.")],
    sets: Annotated[list[str], typer.Option("--set", help="Sets of protocols.yaml, one after another.")],
    workers: Workers = 2,
    runs: Runs = RUNS,
    methods: Annotated[list[str] | None, typer.Option("--method", help="Only these methods.")] = None,
) -> None:
    """Tune every method with the same effort, and run the best; it can be stopped and run again."""
    from experiments.tuned import run_protocol

    for name in sets:
        run_protocol(protocol, name, workers=workers, runs=runs, methods=methods)


@app.command()
def changes(
    studies: Annotated[
        list[str] | None, typer.Argument(help="Studies of changes.yaml. [default: all]")
    ] = None,
    workers: Workers = 2,
    runs: Runs = RUNS,
) -> None:
    """Change one thing of HAPPIER at a time: ablations, alpha, lambda, and what might beat it."""
    from experiments.changes import change_names, run_changes

    run_changes(studies or change_names(), workers=workers, runs=runs)


@app.command("warm-start")
def warm_start(
    sets: Annotated[list[str], typer.Option("--set", help="emoji, wesnoth.")],
    runs: Runs = RUNS,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Seeds. [default: 0]")] = None,
) -> None:
    """Train a head, everything, and everything from a trained head, at the same cost."""
    from experiments.warm_start import measure_warm_start

    for name in sets:
        measure_warm_start(name, runs, seeds=seeds or (0,))


@app.command()
def tables(
    page: Annotated[
        Path | None,
        typer.Option(help="Page with marked tables. [default: all that have some]"),
    ] = None,
) -> None:
    """Regenerate the tables of the documentation from the results."""
    from experiments.tables import PAGES, fill_page

    for path in [page] if page else PAGES:
        print(f"{path}: {'regenerated' if fill_page(path) else 'nothing changed'}")


@app.command()
def figures(
    folder: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("docs/images/results"),
    runs: Runs = RUNS,
) -> None:
    """Draw the figures; trains the runs that the maps need."""
    from experiments.figures import write_figures

    for path in write_figures(folder, runs):
        print(path)


@app.command()
def gradients(runs: Runs = RUNS) -> None:
    """Measure which pairs of a batch each surrogate moves."""
    from experiments.gradients import measure_gradients

    print(measure_gradients(runs))


@app.command()
def retrievals(runs: Runs = RUNS) -> None:
    """Draw what four models answer to one emoji of each group; trains them."""
    from experiments.retrievals import find_retrievals

    print(find_retrievals(runs))


@app.command()
def trees(
    runs: Runs = RUNS,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Seeds. [default: 0, 1, 2]")] = None,
) -> None:
    """Train heads on emoji under trees that were built, and evaluate them under the true one."""
    from experiments.built_trees import measure_built_trees

    print(measure_built_trees(runs, seeds=seeds or (0, 1, 2)))


@app.command()
def partial(
    protocol: Annotated[str, typer.Argument(help="features or fine-tuning.")] = "features",
    workers: Workers = 2,
    runs: Runs = RUNS,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Seeds. [default: 0, 1, 2]")] = None,
) -> None:
    """Train on emoji with fewer and fewer fine labels, with and without the partly labelled images."""
    from experiments.partial_labels import SEEDS, measure_partial_labels

    measure_partial_labels(protocol, seeds=seeds or SEEDS, workers=workers, runs=runs)


@app.command("hierarchy-gain")
def hierarchy_gain(
    workers: Workers = 2,
    runs: Runs = RUNS,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Seeds. [default: 0, 1]")] = None,
) -> None:
    """Compare HAPPIER with a fine-only loss on emoji whose tree or images are changed."""
    from experiments.hierarchy_gain import SEEDS, measure_hierarchy_gain

    measure_hierarchy_gain(seeds=seeds or SEEDS, workers=workers, runs=runs)


@app.command()
def identify(
    sets: Annotated[list[str], typer.Option("--set", help="emoji, wesnoth, glyphs, cifar10.")],
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Draws. [default: 200 to 209]")] = None,
) -> None:
    """Name images of real sets with every method, and print how good the names and probabilities are."""
    from experiments.identification import SEEDS, identification_report

    for name in sets:
        print(identification_report(name, seeds or SEEDS), flush=True)


@app.command()
def reference(
    clone: Annotated[Path, typer.Argument(help="A clone of github.com/elias-ramzi/HAPPIER.")],
    batches: Annotated[int, typer.Option(min=1, help="Random batches of two levels, and of three.")] = 10,
) -> None:
    """Compare our losses and metrics with the authors' code; exit code 1 where they differ."""
    from experiments.reference import TOLERANCE, compare_with_reference

    found = compare_with_reference(clone, batches=batches)
    print(f"{'largest relative difference':30}{'value':>10}{'gradient':>10}")
    for one in found:
        gradient = "" if one.gradient is None else f"{one.gradient:.1e}"
        print(f"{one.name:30}{one.value:10.1e}{gradient:>10}{'' if one.agrees else '  differs'}")
    if not all(one.agrees for one in found):
        raise typer.Exit(1)
    print(f"all within {TOLERANCE:g}, over {2 * batches} batches")


if __name__ == "__main__":
    try:
        app()
    except HappierError as error:
        print(f"experiments: {error}", file=sys.stderr)
        sys.exit(2)
