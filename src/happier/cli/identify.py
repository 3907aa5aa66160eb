"""``happier identify``: what images are, as deep as the index is sure."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from happier.cli import app

if TYPE_CHECKING:
    from happier.search import Identification


@app.command(extra="search")
def identify(
    index: Annotated[Path, typer.Argument(help="Directory of the index.")],
    images: Annotated[list[Path], typer.Argument(help="The images.")],
    sure: Annotated[float, typer.Option(help="How probable the answer must be.")] = 0.9,
    within: Annotated[
        str, typer.Option(help="The images are known to belong to this branch, e.g. animals/birds.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print all probabilities as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table as CSV.")] = False,
) -> None:
    """Name images: the deepest class that the index is sure of, with the alternatives below it.

    "New below birds" means: a bird, but of no class that the index knows.

    Example: happier identify emoji.index owl.png cat.png --sure 0.8 --within animals-nature
    """
    from happier.errors import OptionError
    from happier.search import Index

    if as_json and as_csv:
        raise OptionError("choose --json or --csv, not both")
    opened = Index.open(index)
    try:
        found = opened.identify_images(images, sure=sure, within=within or None)
        calibration = opened.calibration
    finally:
        opened.close()
    if calibration.rough:
        typer.echo(f"happier: the probabilities are rough: calibrated {calibration.describe()}", err=True)
    pairs = list(zip(images, found, strict=True))
    if as_json:
        items = [_as_data(image, one) for image, one in pairs]
        typer.echo(json.dumps({"sure": sure, "within": within, "rough": calibration.rough, "images": items}))
    elif as_csv:
        _print_csv(pairs)
    else:
        for image, one in pairs:
            typer.echo(f"{image}: {one.describe()}" if len(pairs) > 1 else one.describe())


def _as_data(image: Path, found: Identification) -> dict[str, Any]:
    from dataclasses import asdict

    return {"image": str(image), **asdict(found)}


def _print_csv(pairs: list[tuple[Path, Identification]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["image", "class", "level", "probability", "new", "likeliest", "likeliest_probability"])
    for image, found in pairs:
        answer, last = found.answer, found.steps[-1]
        figures = [answer.level, f"{answer.probability:.4f}", int(answer.new)]
        writer.writerow([image, answer.class_path, *figures, last.class_path, f"{last.probability:.4f}"])
