"""Everything that is wrong with a data set, in one pass: files, duplicates, splits, labels."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from happier.data.check_classes import class_findings
from happier.data.finding import Finding
from happier.data.image import content_hash
from happier.data.manifest import Manifest
from happier.data.split import repeated_levels
from happier.errors import ImageError, ManifestError, OptionError
from happier.progress import Progress
from happier.taxonomy import UNKNOWN

MOST_WORKERS = 256
# Of copies in several splits the one in the earliest of these is kept; query, gallery and test keep all.
_KEPT_FIRST = ("test", "query", "gallery", "val", "train", "distractor")


@dataclass(frozen=True)
class CheckReport:
    """All findings about a manifest, and the rows that `cleaned` leaves out."""

    manifest: Manifest
    findings: tuple[Finding, ...]
    left_out: tuple[int, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are faults, not notes."""
        return tuple(finding for finding in self.findings if finding.fault)

    def cleaned(self) -> Manifest:
        """The manifest without unreadable images, rows without any label, and copies of test images.

        Of images in several splits the test copy is kept; of images in several classes, none. Classes in
        several splits are not changed: `split_by_class` makes a new split.

        Raises:
            ManifestError: nothing is left.
        """
        keep = np.setdiff1d(np.arange(len(self.manifest)), self.left_out)
        if not len(keep):
            raise ManifestError("nothing would be left of the manifest")
        return self.manifest.take(keep)


def check_manifest(
    manifest: Manifest, *, workers: int | None = None, progress: Progress | None = None
) -> CheckReport:
    """Decode every image and look for everything that commonly goes wrong in a data set.

    Args:
        manifest: already valid as a table.
        workers: threads that decode; by default one per core.
        progress: called with the number of images done and of all images.
    """
    workers = (os.cpu_count() or 1) if workers is None else workers
    if not 1 <= workers <= MOST_WORKERS:
        raise OptionError(f"workers must be 1 to {MOST_WORKERS}, got {workers}")
    return check_contents(manifest, *_read_all(manifest, workers, progress))


def check_contents(
    manifest: Manifest, hashes: dict[int, str], missing: Sequence[int], unreadable: dict[int, str]
) -> CheckReport:
    """Look for everything that commonly goes wrong in a data set whose images have been read.

    Args:
        manifest: already valid as a table.
        hashes: of the content of each readable row's image.
        missing: rows without a file.
        unreadable: why the images of the other rows cannot be read.
    """
    paths = manifest.table["path"].tolist()
    duplicates, left_out = _duplicates(manifest, hashes)
    findings = [
        Finding.of("missing", "image files are missing", missing, (paths[row] for row in missing)),
        Finding.of("unreadable", "images cannot be read", list(unreadable), iter(unreadable.values())),
        *duplicates,
        *_labels(manifest),
        *class_findings(manifest),
        *_repeated(manifest),
    ]
    found = tuple(finding for finding in findings if finding.rows)
    for finding in found:
        if finding.kind in ("missing", "unreadable", "unlabelled"):
            left_out.update(finding.rows)
    return CheckReport(manifest, found, tuple(sorted(left_out)))


def _read_all(
    manifest: Manifest, workers: int, progress: Progress | None
) -> tuple[dict[int, str], list[int], dict[int, str]]:
    """Content hash of each readable row, rows without a file, and why others cannot be read."""
    files = manifest.files()
    hashes: dict[int, str] = {}
    missing: list[int] = []
    unreadable: dict[int, str] = {}
    unique: dict[Path, list[int]] = defaultdict(list)
    for row, file in enumerate(files):
        unique[file].append(row)

    def read(file: Path) -> str | ImageError | None:
        try:
            return content_hash(file)
        except ImageError as error:
            missing = isinstance(error.__cause__, FileNotFoundError | NotADirectoryError)
            return None if missing else error

    done = 0
    items = list(unique.items())
    # Decoders release the interpreter's lock, so threads use all cores; chunks let Ctrl-C take effect soon.
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(items), 64 * workers):
            portion = items[start : start + 64 * workers]
            results = pool.map(read, (file for file, _ in portion))
            for (_, rows), result in zip(portion, results, strict=True):
                for row in rows:
                    if result is None:
                        missing.append(row)
                    elif isinstance(result, ImageError):
                        unreadable[row] = str(result)
                    else:
                        hashes[row] = result
                done += len(rows)
                if progress:
                    progress(done, len(files))
    return hashes, sorted(missing), dict(sorted(unreadable.items()))


def _duplicates(manifest: Manifest, hashes: dict[int, str]) -> tuple[list[Finding], set[int]]:
    """What is wrong about images of equal content, and the rows to leave out for it."""
    splits = manifest.table["split"].tolist()
    paths, ids, classes = manifest.table["path"].tolist(), manifest.ids(), manifest.class_paths()
    sets = manifest.table["set"].tolist() if "set" in manifest.table else [""] * len(manifest)
    groups: dict[str, list[int]] = defaultdict(list)
    for row, content in hashes.items():
        groups[content].append(row)
    across: list[list[int]] = []
    conflicting: list[list[int]] = []
    left_out: set[int] = set()
    for rows in groups.values():
        if len(rows) < 2:
            continue
        ranks = [_KEPT_FIRST.index(splits[row]) for row in rows]
        # The same image as query and gallery of a test set is intended if its id is the same.
        images = {(sets[row], ids[row]) for row in rows}
        meant = {splits[row] for row in rows} <= {"query", "gallery"} and len(images) == len(
            {test_set for test_set, _ in images}
        )
        if len({splits[row] for row in rows}) > 1 and not meant:
            across.append(rows)
            evaluated = max(min(ranks), _KEPT_FIRST.index("gallery"))
            left_out |= {row for row, rank in zip(rows, ranks, strict=True) if rank > evaluated}
        if len({classes[row] for row in rows}) > len({sets[row] for row in rows}):
            conflicting.append(rows)
            left_out |= set(rows)

    def shown(group: list[int]) -> str:
        return " = ".join(f"{paths[row]} ({splits[row]}, {classes[row]})" for row in group)

    findings = [
        Finding.of(
            "duplicates-across-splits",
            "images are in several splits (same content)",
            [row for rows in across for row in rows],
            map(shown, across),
        ),
        Finding.of(
            "conflicting-duplicates",
            "images are in several classes (same content)",
            [row for rows in conflicting for row in rows],
            map(shown, conflicting),
        ),
    ]
    return findings, left_out


def _labels(manifest: Manifest) -> list[Finding]:
    codes = manifest.labels()
    paths = manifest.table["path"].tolist()
    distractor = (manifest.table["split"] == "distractor").to_numpy()
    none = np.flatnonzero((codes[:, 0] == UNKNOWN) & ~distractor).tolist()
    one_label = np.zeros(len(manifest), dtype=bool)
    if "set" in manifest.table:
        one_label = (manifest.table["set"] != "").to_numpy()
    partly = np.flatnonzero((codes[:, 0] != UNKNOWN) & (codes[:, -1] == UNKNOWN) & ~one_label).tolist()
    return [
        Finding.of("unlabelled", "images have no label at all", none, (paths[row] for row in none)),
        Finding.of(
            "partly-labelled",
            "images have no label at the finest level, and match down to what is known",
            partly,
            (paths[row] for row in partly),
            fault=False,
        ),
    ]


def _repeated(manifest: Manifest) -> list[Finding]:
    classes = manifest.class_paths()
    return [
        Finding.of(
            "repeated-level",
            f"classes of level {level.level} have one {level.below} each in {level.split}: both levels give "
            "the same figures there",
            list(level.rows),
            (classes[row] for row in level.rows),
            fault=False,
        )
        for level in repeated_levels(manifest)
    ]
