"""Runs -> a folder with ``index.html``, ``data.json``, ``classes.csv``, pictures and figures."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from happier.errors import DataError
from happier.progress import Status, no_status
from happier.report.collect import ReportOptions, collect
from happier.report.data import Report
from happier.report.figures import write_figures
from happier.report.render import render
from happier.runs import Run
from happier.storage.atomic import atomic_folder

PAGE, DATA, CLASSES, FIGURES, PICTURES = "index.html", "data.json", "classes.csv", "figures", "images"
DEFAULTS = ReportOptions()


def write_report(
    runs: Sequence[Run],
    folder: Path | str,
    *,
    options: ReportOptions = DEFAULTS,
    status: Status = no_status,
) -> Report:
    """Write the report of one run, or of one against another; the folder is written atomically.

    Args:
        runs: the model, the one to compare it with, and up to two to show alongside.
        folder: where the report goes; an older report there is replaced.
        options: how, see `ReportOptions`.
        status: called with what is being done.

    Raises:
        DataError: the folder exists and holds something else, or cannot be written.
        InputError: the runs are not of the same rows.
        OptionError: there are none, or more than four.
    """
    folder = Path(folder)
    _check_place(folder)
    with atomic_folder(folder, replace=True) as part:
        report = collect(runs, part, options, status)
        status("writing")
        report.write(part / DATA)
        _write_classes(report, part / CLASSES)
        names = write_figures(report, part / FIGURES) if options.figures else ()
        (part / PAGE).write_text(render(report, names), encoding="utf-8")
    return report


def _check_place(folder: Path) -> None:
    """A report is replaced whole: what is not part of one, such as another page, must not go with it."""
    if not folder.exists():
        return
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else {""}
    if names and not {PAGE, DATA} <= names:
        raise DataError(f"{folder} exists and is not a report; choose another place with -o")
    if foreign := sorted(names - {PAGE, DATA, CLASSES, FIGURES, PICTURES}):
        raise DataError(
            f"{folder} holds {foreign[0]!r}, which is not part of a report; choose another place with -o"
        )


def _write_classes(report: Report, path: Path) -> None:
    kinds = ("H-AP", "AP", "severity", "confused with", "at distance", "share")
    head = ["class", "queries", *(f"{kind} ({model.name})" for kind in kinds for model in report.models)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for row in report.classes:
            figures = [f"{value:.6g}" for values in (row.h_ap, row.ap, row.severity) for value in values]
            paths = [found.path if found else "" for found in row.confused]
            distances = [found.distance if found else "" for found in row.confused]
            shares = [f"{found.share:.6g}" if found else "" for found in row.confused]
            writer.writerow([row.path, row.queries, *figures, *paths, *distances, *shares])
