"""The directory of a fit: the only place that knows the names of its files.

    fit.json            what the rest was made of
    manifest.parquet    the images that are used, split
    features/           of each frozen backbone that was used
    happier/, nsm/      the runs: trained on the hierarchy, and on fine classes alone
    report/             index.html
    index/              for ``happier serve``

Each part is made anew where what it is made of has changed, and only there.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal, final

from happier.errors import CheckpointError, DataError
from happier.runs import RunDirectory
from happier.storage.atomic import LOCK_FILE
from happier.storage.lock import locked
from happier.storage.records import Record, read_record, write_record

__all__ = ["LOSSES", "FitDirectory", "FitRecord"]

LOSSES: Final = ("happier", "nsm")
"""The model, and what it is compared with: the same training on fine classes alone."""


class FitRecord(Record):
    """What the parts of a fit were made of.

    Attributes:
        images: digest of the images and labels that were given, "" where nothing is prepared yet.
        left_out: how many images were left out, for each reason.
        training: digest of images and settings that the runs are trained with.
        report: digest of what the report is about.
        index: digest of what the index holds.
    """

    format: Literal[1] = 1
    images: str = ""
    left_out: dict[str, int] = {}  # noqa: RUF012 - pydantic copies it
    training: str = ""
    report: str = ""
    index: str = ""


@final
class FitDirectory:
    """The files of a fit; nothing needs to be there yet.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.record_file: Final = path / "fit.json"
        self.manifest: Final = path / "manifest.parquet"
        self.report: Final = path / "report"
        self.page: Final = self.report / "index.html"
        self.index: Final = path / "index"
        self.tuned: Final = path / "tuned"

    def run(self, loss: str) -> RunDirectory:
        """The run of a loss."""
        return RunDirectory(self.path / loss)

    def feature_folder(self, backbone: str) -> Path:
        """Where the features of a backbone are kept."""
        return self.path / "features" / backbone

    def check(self) -> None:
        """Refuse a place that holds something else.

        Raises:
            DataError: it is a file, or a directory that is not of a fit.
        """
        if self.record_file.is_file() or not self.path.exists():
            return
        if not self.path.is_dir() or any(entry.name != LOCK_FILE for entry in self.path.iterdir()):
            raise DataError(f"{self.path} is there and is not of `happier fit`; choose another with -o")

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of the directory."""
        return locked(self.path, wait=False)

    def read(self) -> FitRecord:
        """What is known of the parts; nothing where the record is missing or damaged."""
        try:
            return read_record(self.record_file, FitRecord)
        except CheckpointError:
            return FitRecord()

    def write(self, record: FitRecord) -> None:
        """Note what the parts were made of."""
        write_record(record, self.record_file)

    def remove_runs(self) -> None:
        """Remove the runs, which are of other images or settings."""
        for loss in LOSSES:
            if self.run(loss).path.is_dir():
                shutil.rmtree(self.run(loss).path)
