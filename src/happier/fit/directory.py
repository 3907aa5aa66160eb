"""The directory of a fit: the only place that knows the names of its files.

    fit.json            what the rest was made of
    manifest.parquet    the images that are used, split
    features/           of each frozen backbone that was used
    happier/, nsm/      the heads, by their loss: trained on the hierarchy, and on fine classes alone
    tuned/happier, nsm  the same, fine-tuned
    report/             index.html
    index/              for ``happier serve``

Each part is made again only where what it is made of has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, final

from happier.data import Manifest
from happier.errors import CheckpointError, DataError, HappierError, ManifestError
from happier.losses import LOSSES
from happier.runs import RunDirectory
from happier.storage.atomic import LOCK_FILE, is_leftover, remove
from happier.storage.lock import locked
from happier.storage.records import SealedRecord, read_record, write_record

__all__ = ["FINE_ONLY", "FitDirectory", "FitRecord", "Part"]

log = logging.getLogger(__name__)
FINE_ONLY: Final = "nsm"
"""The loss that the model is compared with: the same training on fine classes alone."""
Part = Literal["head", "all"]
"""What a training changes: the head on kept features, or, from there on, the whole network."""


class FitRecord(SealedRecord):
    """What the parts of a fit were made of.

    Attributes:
        images: digest of the images and labels that were given, "" while the manifest is being made of them.
        left_out: how many images were left out, for each reason.
        training: digest of images and settings that the heads are trained with.
        tuning: digest of the same, and of the settings of fine-tuning.
        report: digest of what the report is about.
        index: digest of what the index holds.
    """

    format: Literal[1] = 1
    images: str = ""
    left_out: dict[str, int] = {}  # noqa: RUF012 - pydantic copies it
    training: str = ""
    tuning: str = ""
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
        self.features: Final = path / "features"
        self.tuned_further: Final = path / "tuned" / "further"

    def run(self, loss: str, part: Part) -> RunDirectory:
        """The run of a loss."""
        return RunDirectory(self.path / loss if part == "head" else self.path / "tuned" / loss)

    def check(self) -> None:
        """Fail where the place holds something else.

        Raises:
            DataError: it is a file, or a directory that is not of a fit.
        """
        if self.record_file.is_file() or not self.path.exists():
            return
        if not self.path.is_dir() or any(
            entry.name != LOCK_FILE and not is_leftover(entry, self.record_file)
            for entry in self.path.iterdir()
        ):
            raise DataError(
                f"{self.path} exists and was not written by `happier fit`; choose another directory with -o"
            )

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lock of the directory."""
        return locked(self.path, wait=False)

    def read(self) -> FitRecord:
        """What is known of the parts; nothing where the record is missing or damaged."""
        if not self.record_file.exists():
            return FitRecord()
        try:
            return read_record(self.record_file, FitRecord)
        except CheckpointError as error:
            log.warning("%s; all parts are made again", error)
            return FitRecord()

    def read_manifest(self) -> Manifest | None:
        """The images that are used; None where there is no manifest, or a damaged one."""
        if not self.manifest.exists():
            return None
        try:
            return Manifest.read(self.manifest)
        except ManifestError as error:
            log.warning("%s; it is made again", error)
            return None

    def write_manifest(self, manifest: Manifest, record: FitRecord) -> None:
        """Write the images that are used, and the record that says what they were made of.

        A kill in between leaves a record that fits no images, so that the manifest is made again.
        """
        self.write(record.model_copy(update={"images": ""}))
        manifest.write(self.manifest)
        self.write(record)

    def write(self, record: FitRecord) -> None:
        """Note what the parts were made of."""
        write_record(record, self.record_file)

    @contextmanager
    def begun(self, record: FitRecord) -> Iterator[None]:
        """Note that a fit was begun, so that it may be resumed; an error leaves no new directory behind."""
        new = not self.record_file.exists()
        if new:
            self.write(record)
        try:
            yield
        except HappierError:
            if new:
                for entry in (self.record_file, self.features, self.path / LOCK_FILE):
                    remove(entry)
                with suppress(OSError):  # not empty
                    self.path.rmdir()
            raise

    def remove_runs(self, part: Part) -> None:
        """Remove the runs of a part, which are of other images or settings.

        Raises:
            BusyError: another command trains or evaluates one of them.
        """
        for loss in LOSSES:  # another one may have been asked for before
            run = self.run(loss, part)
            if run.path.is_dir():
                with run.locked(wait=False), run.evaluation_locked(wait=False):
                    remove(run.path)
