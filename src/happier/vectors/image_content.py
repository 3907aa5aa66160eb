"""Which content an image file had when its vector was computed, so that a changed image is noticed.

A file's size and times are compared first; only where they differ is its content hashed and compared.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from happier.errors import CheckpointError, ImageError, UnreadableImagesError
from happier.storage.checksum import file_checksum
from happier.storage.regular_file import containing_file

__all__ = ["ImageContent", "ImageTable", "image_content", "image_contents", "size_and_times"]

# A file that is changed twice within a tick of the file system's clock keeps its times.
_CLOCK_TICK_NS = 1_000_000_000
_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "mtime_ns": pa.int64(),
        "ctime_ns": pa.int64(),
        "checked_ns": pa.int64(),
        "hash": pa.string(),
    }
)


class ImageContent(NamedTuple):
    """Size and times of a file, when they were read, and the xxh3 hash of its bytes."""

    size: int
    mtime_ns: int
    ctime_ns: int
    checked_ns: int
    hash: str

    def is_current(self, path: Path | str) -> bool:
        """Whether the file has the size and the times it had.

        Raises:
            ImageError: there is no such file any more.
        """
        return self.size_and_times == size_and_times(path)

    @property
    def size_and_times(self) -> tuple[int, int, int]:
        """As the function of this name gives them."""
        return self.size, self.mtime_ns, self.ctime_ns

    def is_certain(self) -> bool:
        """Whether equal times mean equal content: the file was not changed just before it was read."""
        return max(self.mtime_ns, self.ctime_ns) < self.checked_ns - _CLOCK_TICK_NS


@dataclass
class ImageTable:
    """The images that vectors belong to: row ``i`` of the vectors is that of ``paths[i]``.

    Attributes:
        paths: absolute file names.
        contents: what each file held when it was embedded.
    """

    paths: list[str] = field(default_factory=list)
    contents: list[ImageContent] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.paths)

    def write(self, path: Path) -> None:
        """Write as Parquet."""
        columns: dict[str, Any] = {"path": self.paths}
        for place, name in enumerate(ImageContent._fields):
            columns[name] = [content[place] for content in self.contents]
        pq.write_table(pa.table(columns, schema=_SCHEMA), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> ImageTable:
        """Read what `write` wrote.

        Raises:
            CheckpointError: the file is damaged.
            FileNotFoundError: there is none.
        """
        try:
            columns = pq.read_table(path).cast(_SCHEMA).to_pydict()
        except FileNotFoundError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise CheckpointError(f"{path} is damaged: {' '.join(str(error).split())[:200]}") from error
        contents = zip(*(columns[name] for name in ImageContent._fields), strict=True)
        return cls(columns["path"], [ImageContent(*content) for content in contents])


def image_content(path: Path | str) -> ImageContent:
    """Read and hash a file.

    Raises:
        ImageError: it cannot be read, is no ordinary file, or changes while it is read.
    """
    for _ in range(3):
        checked = time.time_ns()
        status = size_and_times(path)
        try:
            content = ImageContent(*status, checked, file_checksum(Path(path)))
        except OSError as error:
            raise ImageError(f"cannot read the image {path}: {error.strerror}") from error
        if content.is_current(path):
            return content
    raise ImageError(f"cannot read the image {path}: it is being changed")


def size_and_times(path: Path | str) -> tuple[int, int, int]:
    """Size, time of the last change of content, and of status, of the regular file that has it.

    Raises:
        ImageError: there is none.
    """
    try:
        found = containing_file(path).stat()
    except OSError as error:
        raise ImageError(f"cannot read the image {path}: {error.strerror}") from error
    except ValueError as error:  # a NUL character in the path
        raise ImageError(f"cannot read the image {path!r}: {error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ImageError(f"cannot read the image {path}: it is not a regular file")
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def image_contents(paths: Sequence[str], known: dict[str, ImageContent]) -> list[ImageContent]:
    """What each file holds now; a file whose size and times are as known is not read.

    Raises:
        UnreadableImagesError: files are missing or cannot be read.
    """

    def is_known(path: str) -> bool:
        content = known.get(path)
        return content is not None and content.is_certain() and content.is_current(path)

    found: dict[str, ImageContent] = {}
    unreadable: dict[str, str] = {}
    unknown = []
    for path in paths:
        try:
            if is_known(path):
                found[path] = known[path]
            else:
                unknown.append(path)
        except ImageError as error:
            unreadable[path] = str(error)
    with ThreadPoolExecutor(max_workers=4) as threads:
        reads = [(path, threads.submit(image_content, path)) for path in dict.fromkeys(unknown)]
    for path, read in reads:
        try:
            found[path] = read.result()
        except ImageError as error:
            unreadable[path] = str(error)
    if unreadable:
        raise UnreadableImagesError(unreadable)
    return [found[path] for path in paths]
