"""Runs -> a folder with ``index.html``, ``data.json``, ``classes.csv``, pictures and figures."""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from happier.errors import DataError
from happier.report.collect import Options, Tell, collect
from happier.report.data import Report
from happier.report.figures import write_figures
from happier.report.render import render
from happier.runs import Run

PAGE = "index.html"
DEFAULTS = Options()


def write_report(
    runs: Sequence[Run], folder: Path | str, *, options: Options = DEFAULTS, tell: Tell | None = None
) -> Report:
    """Write the report of one run, or of one against another; the folder appears whole or not at all.

    Args:
        runs: the model, the one to compare it with, and up to two to show beside.
        folder: where the report goes; an older report there is replaced.
        options: how, see `Options`.
        tell: called with what is being done.

    Raises:
        DataError: the folder is there and holds something else, or cannot be written.
        InputError: the runs are not of the same rows.
        OptionError: there are none, or more than four.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / PAGE).is_file())):
        raise DataError(f"{folder} is there and is no report; choose another place with -o")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror}") from error
    try:
        say = tell or _silent
        report = collect(runs, partial, options, say)
        say("writing")
        report.write(partial / "data.json")
        _write_classes(report, partial / "classes.csv")
        names = write_figures(report, partial / "figures") if options.figures else ()
        (partial / PAGE).write_text(render(report, names), encoding="utf-8")
        partial.chmod(0o755)  # mkdtemp makes it private
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return report


def _silent(text: str) -> None:
    del text


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
