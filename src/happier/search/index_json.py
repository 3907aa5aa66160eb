"""``index.json``: the small file that says which files make up an index now."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from happier.errors import SearchError
from happier.identification.calibration import Calibration
from happier.search.settings import check_settings
from happier.storage.records import Record, SealedRecord, read_json, read_record, write_record

HEAD_FILE = "index.json"
# Format 1 has no checksums; it can still be read.
FORMAT: Literal[2] = 2
Fraction = Annotated[float, Field(ge=0, le=1)]
_REBUILD = "build the index again with `happier index`"


class IndexRecall(Record):
    """How much of the exact answer an approximate engine was found to give.

    Attributes:
        k: nearest images that were compared.
        target: the recall that was asked for.
        whole: measured over the whole index.
        inside: measured inside branches of the taxonomy, the worst of them; None where all of them are small
            enough to be searched exactly.
        rows: images of the index when it was measured.
    """

    k: Annotated[int, Field(ge=1)]
    target: Fraction
    whole: Fraction
    inside: Fraction | None
    rows: Annotated[int, Field(ge=1)]

    @property
    def kept(self) -> bool:
        """Whether it is what was asked for."""
        return min(self.whole, 1.0 if self.inside is None else self.inside) >= self.target

    def describe(self) -> str:
        """In one line."""
        inside = "exact in branches" if self.inside is None else f"{self.inside:.3f} in the worst branch"
        text = f"recall@{self.k} {self.whole:.3f} ({inside}), {self.target:.3g} asked for"
        if not self.kept:
            text += ": not reached at the highest effort; --engine flat is exact"
        return text


class IndexHead(SealedRecord):
    """What ``index.json`` says.

    Attributes:
        format: of this file.
        uid: random name of the index; with the generation it names one state of it.
        generation: counts the changes.
        rows: rows of the vector file that count.
        dim: length of a vector.
        fingerprint: of the model's weights.
        root: folder that the images' relative paths are against.
        engine: name of the engine.
        options: the engine's options as given when the index was built.
        settings: what the engine needs to be opened again.
        items, vectors: file names.
        model: name of the model's folder, or None.
        recall: what the engine was found to reach; None for exact search and for format 1.
        calibration: how neighbours' votes become probabilities; None where the labels leave nothing to
            choose, and for indexes of earlier versions.
        vector_checksums: of each block of the vector file; empty in format 1.
        checksums: of the other files, by name; empty in format 1.
        checksum: of this file; None in format 1.
    """

    format: Literal[1, 2] = FORMAT
    uid: str
    generation: Annotated[int, Field(ge=1, lt=2**53)]
    rows: Annotated[int, Field(ge=1, lt=2**40)]
    dim: Annotated[int, Field(ge=1, lt=2**20)]
    fingerprint: str
    root: str
    engine: Literal["flat", "hnsw", "ivfpq", "milvus", "pgvector"]
    options: dict[str, int | float | str]
    settings: dict[str, Any]
    # Names, never paths: an index from elsewhere must not point outside itself.
    items: Annotated[str, Field(pattern=r"^items-\d+\.parquet$")]
    vectors: Annotated[str, Field(pattern=r"^vectors-\d+\.f32$")]
    model: Annotated[str, Field(pattern=r"^model(-\d+)?$")] | None
    recall: IndexRecall | None = None
    calibration: Calibration | None = None
    vector_checksums: list[str] = Field(default_factory=list)
    checksums: dict[str, str] = Field(default_factory=dict)


def read_head(directory: Path) -> IndexHead:
    """Read and check ``index.json``.

    Raises:
        SearchError: not an index, a damaged one, or one of another format.
    """
    path = directory / HEAD_FILE
    try:
        there = path.exists()
    except OSError as error:
        raise SearchError(f"cannot read {path}: {error.strerror}") from error
    if not there:
        raise SearchError(
            f"no index at {directory}; build one with `happier index RUN MANIFEST -o {directory}`"
        )
    content = read_json(path, error=SearchError, hint=_REBUILD)
    number = content.get("format") if isinstance(content, dict) else None
    if type(number) is not int or number not in (1, 2):
        raise SearchError(f"{path} is not of format {FORMAT}; {_REBUILD}")
    head = read_record(path, IndexHead, error=SearchError, hint=_REBUILD)
    if head.checksum is None and head.format > 1:
        raise SearchError(f"{path} is damaged: its checksum is missing; {_REBUILD}")
    check_settings(head.engine, head.settings, path)
    return head


def write_head(directory: Path, head: IndexHead) -> None:
    """Replace ``index.json``: the commit of a change."""
    write_record(head, directory / HEAD_FILE)
